//! Keeps children from inheriting open files beyond stdin, stdout and stderr.

/// Marks every inherited descriptor to be closed at the next `exec`.
#[cfg(target_os = "linux")]
pub fn close_on_exec_beyond_stdio() {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC only sets a flag on descriptors; it closes none.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Marks descriptors one by one, where there is no `close_range`.
#[cfg(not(target_os = "linux"))]
pub fn close_on_exec_beyond_stdio() {
    for descriptor in 3..256 {
        // SAFETY: F_SETFD only sets a flag; on a number that is not open it fails with EBADF.
        unsafe {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}
