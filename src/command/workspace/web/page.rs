//! Puts the page together. It is one document without requests to anywhere: its style and its program are
//! inside, and the browser runs nothing else.

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};

use super::server::Reply;

const DOCUMENT: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// The parts of the program, in the order in which they run.
const PROGRAM: [&str; 5] = [
    include_str!("page/text.js"),
    include_str!("page/model.js"),
    include_str!("page/tree.js"),
    include_str!("page/changes.js"),
    include_str!("page/main.js"),
];

/// Returns the page with the session's key, and the token for the next time.
pub fn page(session_key: &str, next_token: &str) -> Reply {
    let program = PROGRAM.concat();
    // Both values are hexadecimal.
    let document = DOCUMENT
        .replacen("{session}", session_key, 1)
        .replacen("{next}", next_token, 1)
        .replacen("{style}", STYLE, 1)
        .replacen("{program}", &program, 1);
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(&program),
        hash(STYLE)
    );
    let mut reply = protected(Reply {
        content_type: "text/html; charset=utf-8",
        content: document.into_bytes(),
        ..Reply::text(200, "")
    });
    reply.headers.push(("Content-Security-Policy", policy));
    reply
}

/// Names the only script or style that the browser accepts.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", Base64::encode_string(&Sha256::digest(text.as_bytes())))
}

/// Adds what keeps an answer from other pages and from the disk.
pub fn protected(reply: Reply) -> Reply {
    let headers = [
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    ];
    Reply { headers: headers.map(|(name, value)| (name, value.to_owned())).to_vec(), ..reply }
}
