//! Releases the memory of code that only planning and launching needed, so that sandpen stays below
//! 2 MB (PSS) while a guest runs: the native launcher and pid 1 have 3.2 MB without it, 0.7 MB with
//! it.
//!
//! Each of the four callers keeps its own timer: the native launcher and pid 1 must not start a
//! thread, which takes longer than many commands; the container launcher and the helper have one.

use std::time::Duration;

/// The time to wait before memory is released: for a guest that ends sooner it is not worth it.
pub const MIN_GUEST_TIME: Duration = Duration::from_millis(100);

/// Drops the program's code and constants from memory. The pages are unchanged copies of the file:
/// the kernel reads the few that waiting and cleaning up need again.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn release_code_pages() {
    unsafe extern "C" {
        // GNU ld and lld define these for the first byte of the program and the end of its code.
        // They are a convention of linkers, not part of the ABI: another linker fails the build.
        static __executable_start: u8;
        static etext: u8;
    }
    let (start, end) = (&raw const __executable_start as usize, &raw const etext as usize);
    let page = rustix::param::page_size();
    let (start, end) = (start.next_multiple_of(page), end / page * page);
    if start < end {
        // SAFETY: dropping a page of a private file mapping loses what was written to it, and nothing
        // is ever written to these. The whole pages between the two symbols belong to the segments
        // that the linker maps `R` and `RX`; the writable ones, with all relocated data (`.got`,
        // `.data.rel.ro`), begin on a later page, so that even a relocatable program keeps its
        // relocations. Code and constants, this function included, are read from the file again on
        // their next use; the running program keeps its file even if that is deleted, and the kernel
        // refuses to overwrite it (ETXTBSY).
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED);
        }
    }
}

/// Does nothing on other platforms.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_code_pages() {}
