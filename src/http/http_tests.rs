use super::*;

fn read(answer: &'static str) -> io::Result<(u16, String)> {
    let response = read_response(answer.as_bytes())?;
    let status = response.status;
    let content = response.content(100)?;
    Ok((status, String::from_utf8_lossy(&content).into_owned()))
}

#[test]
fn bodies_are_read_to_their_end() -> io::Result<()> {
    assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef")?, (200, "abc".into()));
    assert_eq!(
        read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\n\r\nuntil the end")?,
        (404, "until the end".into())
    );
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\nmore";
    assert_eq!(read(chunked)?, (200, "abcde".into()));
    Ok(())
}

#[test]
fn answers_that_are_cut_or_ambiguous_are_errors() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ] {
        assert!(read(answer).is_err(), "{answer:?}");
    }
    let long: &'static str = Box::leak(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(101)).into_boxed_str());
    assert!(read(long).is_err());
    let head: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(LONGEST_HEAD)).into_boxed_str());
    assert!(read(head).is_err());
}
