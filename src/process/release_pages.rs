//! Gives back the memory that only planning and launching needed: while a guest runs, sandpen should hold next to nothing, outside
//! and inside.

use std::time::Duration;

/// A guest that ends sooner is not worth giving memory back for.
pub const MIN_GUEST_TIME: Duration = Duration::from_millis(100);

/// Lets go of the program's own pages in memory. They are the file's, unchanged: the kernel brings back the few that waiting
/// and cleaning up still need.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn release_code_pages() {
    unsafe extern "C" {
        // The linker's names for the first and the last byte of the program's code and constants.
        static __executable_start: u8;
        static etext: u8;
    }
    let (start, end) = (&raw const __executable_start as usize, &raw const etext as usize);
    let page = rustix::param::page_size();
    let (start, end) = (start.next_multiple_of(page), end / page * page);
    if start < end {
        // SAFETY: read-only pages of a private file mapping lose nothing: the next access reads them from the file again.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED);
        }
    }
}

/// Elsewhere nothing is done.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_code_pages() {}
