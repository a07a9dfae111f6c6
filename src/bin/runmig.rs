//! The OCI runtime: see `runmig::runtime`.
//!
//! A C `main`, because Rust's would set SIGPIPE to be ignored, and what is ignored here is ignored
//! by the low-level runtime, and then in the container.
#![no_main]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// # Safety
/// `argv` has so many texts, each of which ends with a null byte and stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    // musl, unlike glibc, does not tell Rust's library the arguments.
    let argument = |n| {
        // SAFETY: C calls `main` so.
        let text = unsafe { CStr::from_ptr(*argv.offset(n)) };
        OsStr::from_bytes(text.to_bytes()).to_owned()
    };
    let arguments: Vec<OsString> = (0..argc as isize).map(argument).collect();
    runmig::runtime::front(arguments)
}
