//! CUDA's error codes, those that the simulation gives out.

use std::ffi::CStr;

use nvml_sim::holders::Refusal;
use serde::{Deserialize, Serialize};

/// A `CUresult` other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct CudaError(pub u32);

macro_rules! errors {
    ($($name:ident $code:literal $text:literal)*) => {
        impl CudaError {
            $(pub const $name: CudaError = CudaError($code);)*
        }

        /// Returns the C name of a code, and `None` for one that the simulation never gives out.
        pub fn name(code: u32) -> Option<&'static CStr> {
            match code {
                0 => Some(c"CUDA_SUCCESS"),
                $($code => Some($text),)*
                _ => None,
            }
        }
    };
}

errors! {
    INVALID_VALUE 1 c"CUDA_ERROR_INVALID_VALUE"
    OUT_OF_MEMORY 2 c"CUDA_ERROR_OUT_OF_MEMORY"
    NOT_INITIALIZED 3 c"CUDA_ERROR_NOT_INITIALIZED"
    DEVICE_UNAVAILABLE 46 c"CUDA_ERROR_DEVICE_UNAVAILABLE"
    NO_DEVICE 100 c"CUDA_ERROR_NO_DEVICE"
    INVALID_DEVICE 101 c"CUDA_ERROR_INVALID_DEVICE"
    INVALID_CONTEXT 201 c"CUDA_ERROR_INVALID_CONTEXT"
    NOT_FOUND 500 c"CUDA_ERROR_NOT_FOUND"
    ILLEGAL_ADDRESS 700 c"CUDA_ERROR_ILLEGAL_ADDRESS"
    MPS_CONNECTION_FAILED 805 c"CUDA_ERROR_MPS_CONNECTION_FAILED"
    MPS_RPC_FAILURE 806 c"CUDA_ERROR_MPS_RPC_FAILURE"
    MPS_SERVER_NOT_READY 807 c"CUDA_ERROR_MPS_SERVER_NOT_READY"
    MPS_CLIENT_TERMINATED 810 c"CUDA_ERROR_MPS_CLIENT_TERMINATED"
    UNKNOWN 999 c"CUDA_ERROR_UNKNOWN"
}

impl From<Refusal> for CudaError {
    fn from(refusal: Refusal) -> CudaError {
        match refusal {
            Refusal::Missing(_) => CudaError::INVALID_DEVICE,
            Refusal::ComputeMode(_) => CudaError::DEVICE_UNAVAILABLE,
            Refusal::OutOfMemory(_) => CudaError::OUT_OF_MEMORY,
            Refusal::Io(_) => CudaError::UNKNOWN,
        }
    }
}
