//! Parses arbitrary bytes as a request to the proxy: `cargo +nightly fuzz run proxy_request`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandpen::internals::value::HostName;
use sandpen::internals::{Action, parse};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some((request, length))) = parse(bytes) else { return };
    assert!(length <= bytes.len());
    // The host that the policy checks is canonical, and occurs verbatim in the request.
    let host = request.host.to_string();
    assert_eq!(HostName::parse(&host).as_ref(), Ok(&request.host));
    assert!(bytes.windows(host.len()).any(|part| part == host.as_bytes()));
    if let Action::Forward { head, .. } = request.action {
        // The server receives a single request for the same host.
        assert!(head.ends_with(b"\r\n\r\n"));
        assert_eq!(head.windows(4).filter(|end| end == b"\r\n\r\n").count(), 1);
        let named = String::from_utf8_lossy(&head).to_ascii_lowercase().matches("\r\nhost: ").count();
        assert_eq!(named, 1);
    }
});
