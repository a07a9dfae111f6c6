//! runmig, the architecture on one page: see ARCHITECTURE.md.
pub mod cli;
pub mod config;
pub mod error;
pub mod files;
pub mod framed;
#[doc(hidden)]
pub mod fuzzing;
pub mod gpu;
pub mod hook;
pub mod lease;
pub mod log;
pub mod model;
pub mod paths;
pub mod placement;
pub mod policy;
pub mod process;
pub mod request;
pub mod runtime;
pub mod spec;
pub mod store;
pub mod trust;
