//! NVML. nvml-wrapper opens the library, counts GPUs and reads what it wraps; GPU and compute
//! instances have no safe wrappers there, so those calls are made here on its symbols.

mod functions;
mod gpus;
mod mig;
mod profiles;
mod queries;
mod session;
mod signs;
#[cfg(test)]
pub(crate) mod tests;

pub use session::{Listener, Session};
