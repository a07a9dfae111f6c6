//! runmig, the architecture on one page: see ARCHITECTURE.md.
pub mod bundles;
pub mod cli;
#[doc(hidden)]
pub mod fuzzing;
pub mod hook;
mod log;
pub mod runtime;
pub mod spec;
