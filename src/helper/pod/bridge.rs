//! Passes bytes between the launcher, which started this process with `kubectl exec`, and the keeper.
//! The keeper outlives it, so that a lost connection loses no work.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use super::{CONNECT_TIMEOUT, connect};
use crate::plan::kubernetes::LINK_SOCKET;
use crate::process::copy_bytes;

pub fn run() -> io::Result<()> {
    let mut keeper = connect(Path::new(LINK_SOCKET), CONNECT_TIMEOUT)?;
    let mut to_keeper = keeper.try_clone()?;
    let mut stdin = File::from(rustix::stdio::stdin().as_fd().try_clone_to_owned()?);
    let mut stdout = File::from(rustix::stdio::stdout().as_fd().try_clone_to_owned()?);
    thread::spawn(move || {
        let _ = copy_bytes(&mut stdin, &mut to_keeper);
        // The keeper takes the end of the stream for the end of the launcher.
        let _ = to_keeper.shutdown(Shutdown::Write);
    });
    copy_bytes(&mut keeper, &mut stdout)?;
    Ok(())
}
