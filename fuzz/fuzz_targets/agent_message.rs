//! Parses arbitrary bytes as a message to the SSH agent: `cargo +nightly fuzz run agent_message`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandpen::internals::{AgentPurpose, AgentRequest, HostCertificate};

fuzz_target!(|bytes: &[u8]| {
    match AgentRequest::parse(bytes) {
        AgentRequest::List => assert_eq!(bytes, [11]),
        AgentRequest::Sign(request) => {
            // Nothing is left over: one type, two strings with their lengths, and the flags.
            assert_eq!(bytes.len(), 1 + 4 + request.key.len() + 4 + request.data.len() + 4);
            let _ = AgentPurpose::parse(request.data, request.key);
        }
        AgentRequest::Bind(request) => {
            let _ = HostCertificate::parse(request.host_key);
        }
        AgentRequest::Query | AgentRequest::Forbidden(_) => {}
    }
    let _ = AgentPurpose::parse(bytes, b"key");
    let _ = HostCertificate::parse(bytes);
});
