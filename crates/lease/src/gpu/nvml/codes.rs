//! Return codes: NVML's own, whatever nvml-wrapper made of them.

use crate::gpu::{DriverError, Reason};
use nvml_wrapper::error::NvmlError;

/// nvml-wrapper's errors back into NVML's codes: its enum lacks some (23 arrives as an unexpected
/// variant).
#[allow(deprecated)] // a code that NVML may still give
pub(super) fn failed(what: String, e: NvmlError) -> DriverError {
    use NvmlError as E;
    let code = match &e {
        E::Uninitialized => 1,
        E::InvalidArg => 2,
        E::NotSupported => 3,
        E::NoPermission => 4,
        E::AlreadyInitialized => 5,
        E::NotFound => 6,
        E::InsufficientSize(_) => 7,
        E::InsufficientPower => 8,
        E::DriverNotLoaded => 9,
        E::Timeout => 10,
        E::IrqIssue => 11,
        E::LibraryNotFound => 12,
        E::FunctionNotFound => 13,
        E::CorruptedInfoROM => 14,
        E::GpuLost => 15,
        E::ResetRequired => 16,
        E::OperatingSystem => 17,
        E::LibRmVersionMismatch => 18,
        E::InUse => 19,
        E::InsufficientMemory => 20,
        E::NoData => 21,
        E::VgpuEccNotSupported => 22,
        E::UnexpectedVariant(code) => *code,
        E::Unknown => 999,
        other => {
            // The loader's own words say it all.
            let why = match other {
                E::LibloadingError(e) => e.to_string(),
                other => other.to_string(),
            };
            return DriverError {
                what,
                reason: Reason::Library(why),
            };
        }
    };
    DriverError {
        what,
        reason: Reason::Code(code),
    }
}
