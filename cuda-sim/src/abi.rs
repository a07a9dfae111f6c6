//! CUDA's C interface. Every function has the signature of CUDA's `cuda.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::account::Size;
use crate::driver::{self, Cuda};
use crate::error::{self, CudaError};
use crate::protocol::Kernel;

/// The handle of the one context.
const CONTEXT: u64 = 1;
/// The handles of the kernels.
const SPIN: u64 = 1;
const FAULT: u64 = 2;

fn run(body: impl FnOnce() -> Result<(), CudaError>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => CudaError::UNKNOWN.0,
    }
}

/// Writes an answer through a pointer of the caller's.
fn put<T>(to: *mut T, value: T) -> Result<(), CudaError> {
    if to.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: CUDA's contract is that a pointer for an answer may be written to or is null.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a C string of the caller's.
fn text(from: *const c_char) -> Result<String, CudaError> {
    if from.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: CUDA's contract is that a text ends with NUL.
    let text = unsafe { CStr::from_ptr(from) };
    Ok(text.to_string_lossy().into_owned())
}

/// Reads the one parameter of the kernel `spin`.
fn parameter(parameters: *mut *mut c_void) -> Result<u64, CudaError> {
    if parameters.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: CUDA's contract is that there is a pointer for each parameter; `spin` has one.
    let first = unsafe { parameters.read() }.cast::<u64>();
    // SAFETY: by the same contract the pointer leads to the parameter, a `.u64` of the PTX.
    Ok(unsafe { first.read_unaligned() })
}

macro_rules! cuda {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        // SAFETY: CUDA's own name; no other library of a process defines it.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub extern "C" fn $name($($arg: $type),*) -> u32 {
            run(move || $body)
        }
    )*};
}

cuda! {
    fn cuInit(flags: c_uint) {
        match flags {
            0 => driver::init(),
            _ => Err(CudaError::INVALID_VALUE),
        }
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        driver::with(|_| Ok(()))?;
        match ordinal {
            0 => put(device, 0),
            _ => Err(CudaError::INVALID_DEVICE),
        }
    }

    fn cuDevicePrimaryCtxRetain(context: *mut u64, _device: c_int) {
        driver::with(Cuda::make_context)?;
        put(context, CONTEXT)
    }

    fn cuCtxSetCurrent(context: u64) {
        match context {
            CONTEXT => Ok(()),
            _ => Err(CudaError::INVALID_CONTEXT),
        }
    }

    fn cuCtxSynchronize() {
        driver::synchronize()
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let (free_bytes, total_bytes) = driver::with(Cuda::memory)?;
        put(free, free_bytes as usize)?;
        put(total, total_bytes as usize)
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        put(address, driver::with(|cuda| cuda.allocate(Size::plain(bytes as u64)))?)
    }

    /// Driver 580 holds managed memory to the limit of MPS too. No limit of a cgroup holds it.
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: c_uint) {
        put(address, driver::with(|cuda| cuda.allocate(Size::managed(bytes as u64)))?)
    }

    fn cuMemFree_v2(address: u64) {
        driver::with(|cuda| cuda.free(address))
    }

    fn cuModuleLoadData(module: *mut u64, _image: *const c_void) {
        put(module, 1)
    }

    fn cuModuleGetFunction(function: *mut u64, _module: u64, name: *const c_char) {
        match text(name)?.as_str() {
            "spin" => put(function, SPIN),
            "fault" => put(function, FAULT),
            _ => Err(CudaError::NOT_FOUND),
        }
    }

    fn cuLaunchKernel(
        function: u64, _grid_x: c_uint, _grid_y: c_uint, _grid_z: c_uint, _block_x: c_uint,
        _block_y: c_uint, _block_z: c_uint, _shared: c_uint, _stream: *mut c_void,
        parameters: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        let kernel = match function {
            FAULT => Kernel::Fault,
            SPIN => Kernel::Spin(parameter(parameters)?),
            _ => return Err(CudaError::INVALID_VALUE),
        };
        driver::with(|cuda| cuda.launch(kernel))
    }

    fn cuGetErrorName(code: u32, name: *mut *const c_char) {
        let known = error::name(code);
        put(name, known.map_or(std::ptr::null(), CStr::as_ptr))?;
        known.map(drop).ok_or(CudaError::INVALID_VALUE)
    }
}
