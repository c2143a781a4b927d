//! One test for each check. Each begins with a request that is answered, and changes one header of it, so
//! that it fails when exactly that check is missing.

use super::*;

const PORT: u16 = 4000;
const HOST: (&str, &str) = ("Host", "127.0.0.1:4000");
const ORIGIN: (&str, &str) = ("Origin", "http://127.0.0.1:4000");

fn access() -> Access {
    Access::new(PORT).expect("random numbers")
}

fn head(method: &str, path: &str, query: Option<&str>, headers: &[(&str, &str)]) -> RequestHead {
    let headers = headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_bytes().to_vec()));
    RequestHead {
        method: method.into(),
        path: path.into(),
        query: query.map(str::to_owned),
        headers: headers.collect(),
    }
}

/// Asks for the page with the token of the address, in a browser's words.
fn opens(access: &Access, headers: &[(&str, &str)]) -> bool {
    let address = access.address();
    access.permits(&head("GET", "/", address.split_once('?').map(|(_, query)| query), headers))
}

/// Sends a request of the page, with further headers.
fn acts(access: &Access, headers: &[(&str, &str)]) -> bool {
    let login = format!("Bearer {}", access.session_key());
    let all: Vec<(&str, &str)> = headers.iter().copied().chain([("Authorization", login.as_str())]).collect();
    access.permits(&head("POST", "/apply", None, &all))
}

#[test]
fn the_page_needs_the_token_of_the_address_which_works_once() {
    let access = access();
    let query = access.address().split_once('?').map(|(_, query)| query.to_owned());
    let wrong = format!("token={}", "0".repeat(2 * TOKEN_BYTES));
    let ask = |query: Option<&str>| access.permits(&head("GET", "/", query, &[HOST]));
    for other in [None, Some(""), Some("token="), Some(wrong.as_str())] {
        assert!(!ask(other), "{other:?}");
    }
    assert!(ask(query.as_deref()));
    assert!(!ask(query.as_deref()), "it is used up");
    assert!(ask(Some(&format!("token={}", access.next_token()))), "a page can be loaded again");
}

#[test]
fn requests_of_the_page_need_the_session_key() {
    let access = access();
    let ask =
        |headers: &[(&str, &str)]| access.permits(&head("POST", "/apply", None, &[&[HOST, ORIGIN], headers].concat()));
    let right = format!("Bearer {}", access.session_key());
    assert!(ask(&[("Authorization", &right)]));
    assert!(!ask(&[]));
    let wrong = format!("Bearer {}", "0".repeat(2 * TOKEN_BYTES));
    for other in [wrong.as_str(), "Bearer ", access.session_key(), &right[..right.len() - 1]] {
        assert!(!ask(&[("Authorization", other)]), "{other}");
    }
    let query = format!("token={}", access.next_token());
    assert!(!access.permits(&head("POST", "/apply", Some(&query), &[HOST, ORIGIN])), "the token opens the page only");
}

#[test]
fn host_is_the_address_itself() {
    let access = access();
    for other in ["localhost:4000", "rebound.example:4000", "127.0.0.1", "127.0.0.1:4001", ""] {
        assert!(!opens(&access, &[("Host", other)]), "{other}");
        assert!(!acts(&access, &[("Host", other), ORIGIN]), "{other}");
    }
    assert!(!opens(&access, &[]) && !acts(&access, &[ORIGIN]));
    assert!(!opens(&access, &[HOST, ("Host", "rebound.example")]), "two of them");
    assert!(acts(&access, &[HOST, ORIGIN]) && opens(&access, &[HOST]));
}

#[test]
fn origin_is_that_of_the_page() {
    let access = access();
    for other in ["http://rebound.example:4000", "http://127.0.0.1:4001", "https://127.0.0.1:4000", "null", ""] {
        assert!(!opens(&access, &[HOST, ("Origin", other)]), "{other}");
        assert!(!acts(&access, &[HOST, ("Origin", other)]), "{other}");
    }
    assert!(!acts(&access, &[HOST]), "browsers send one with each POST");
    assert!(acts(&access, &[HOST, ORIGIN]) && opens(&access, &[HOST]));
}

#[test]
fn requests_of_the_page_are_not_those_of_another_site() {
    let access = access();
    for other in ["cross-site", "same-site", "none", ""] {
        assert!(!acts(&access, &[HOST, ORIGIN, ("Sec-Fetch-Site", other)]), "{other}");
    }
    assert!(acts(&access, &[HOST, ORIGIN, ("Sec-Fetch-Site", "same-origin")]));
}

#[test]
fn the_page_is_a_document_of_its_own() {
    let access = access();
    for other in ["iframe", "frame", "script", "image", "empty", "object"] {
        assert!(!opens(&access, &[HOST, ("Sec-Fetch-Dest", other)]), "{other}");
    }
    assert!(!access.permits(&head("POST", "/", Some(&format!("token={}", access.next_token())), &[HOST, ORIGIN])));
    assert!(opens(&access, &[HOST, ("Sec-Fetch-Dest", "document")]));
}
