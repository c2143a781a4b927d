//! Reads arbitrary bytes as the list of refs of a server, and as the ref updates of a guest:
//! `cargo +nightly fuzz run push_commands`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandpen::internals::{Advertisement, CommandList};

const OFFER: &str = "00601111111111111111111111111111111111111111 refs/heads/main\0report-status atomic agent=git/2.470000";

fuzz_target!(|bytes: &[u8]| {
    let _ = Advertisement::read(&mut &*bytes);
    let Ok(offered) = Advertisement::read(&mut OFFER.as_bytes()) else { panic!("the offer is valid") };
    let Ok(commands) = CommandList::read(&mut &*bytes, &offered) else { return };
    // What is sent to the server is what was decided.
    let mut written = Vec::new();
    assert!(commands.write(&mut written).is_ok());
    assert_eq!(CommandList::read(&mut written.as_slice(), &offered).ok(), Some(commands));
});
