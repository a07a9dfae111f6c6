//! The memory of the process. The C library's allocator keeps what the process has freed: of each thread apart, and between
//! pieces that are in use. Short work, such as a write of all ResourceSlices, would leave its peak with the process.

use nix::libc;

/// Lets the threads share their memory. For the start, before there is a second thread.
pub(crate) fn share() {
    // SAFETY: the call sets a number of the allocator, and takes nothing from the caller.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Gives the pages that are free back to the kernel.
pub(crate) fn give_back() {
    // SAFETY: the call frees pages that no allocation is in, under the allocator's own lock.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}
