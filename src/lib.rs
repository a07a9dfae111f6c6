//! runmig, the architecture on one page: see ARCHITECTURE.md.
pub mod bundles;
pub mod cli;
#[doc(hidden)]
pub mod fuzzing;
pub mod hook;
mod log;
pub mod runtime;
pub mod spec;

// The programs have the unwinder in themselves: a shared libgcc_s is one more library to find, map and bind at each start.
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}
