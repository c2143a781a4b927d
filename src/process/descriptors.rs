//! Open files: nothing beyond stdin, stdout and stderr travels on to a child.

/// Marks every inherited file as closed at the next `exec`.
#[cfg(target_os = "linux")]
pub fn close_on_exec_beyond_stdio() {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC only sets a flag on descriptors; it frees none that Rust owns.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Elsewhere, descriptors are marked one by one.
#[cfg(not(target_os = "linux"))]
pub fn close_on_exec_beyond_stdio() {
    for descriptor in 3..256 {
        // SAFETY: F_SETFD only sets a flag; on a number that is not open it fails with EBADF, which is fine.
        unsafe {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}
