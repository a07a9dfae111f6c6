//! The program for calls that concern a slice; `runmig` hands them over: see `runmig::runtime`.
//!
//! A C `main`, because Rust's would set SIGPIPE to be ignored, and what is ignored here is ignored
//! by the low-level runtime, and then in the container.
#![no_main]

#[unsafe(no_mangle)]
pub extern "C" fn main() -> i32 {
    runmig::runtime::slice()
}
