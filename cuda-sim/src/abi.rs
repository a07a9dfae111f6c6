//! CUDA's C interface. Every function has the signature of CUDA's `cuda.h`.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::account::Size;
use crate::driver::{self, Cuda};
use crate::error::{self, CudaError};
use crate::protocol::Kernel;

thread_local! {
    /// The current context of this thread; 0 is none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

fn current() -> Result<u64, CudaError> {
    match CURRENT.get() {
        0 => Err(CudaError::INVALID_CONTEXT),
        context => Ok(context),
    }
}

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

    fn cuDriverGetVersion(version: *mut c_int) {
        put(version, driver::version()?.cast_signed())
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        put(count, driver::with(|cuda| Ok(cuda.device_count()))? as c_int)
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        driver::with(|cuda| cuda.describe(ordinal, |_| ()))?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        let product = driver::with(|cuda| cuda.describe(device, |g| g.model().product.clone()))?;
        let room = usize::try_from(length).unwrap_or(0);
        let bytes = product.bytes().take(room.saturating_sub(1)).chain([0]);
        for (i, byte) in bytes.enumerate().take(room) {
            put(name.wrapping_add(i), byte as c_char)?;
        }
        Ok(())
    }

    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) {
        let text = driver::with(|cuda| cuda.describe(device, |gpu| gpu.uuid.clone()))?;
        let digits: String = text.trim_start_matches("GPU-").split('-').collect();
        let number = u128::from_str_radix(&digits, 16).map_err(|_| CudaError::UNKNOWN)?;
        put(uuid, number.to_be_bytes())
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        let mib = |gpu: &nvml_sim::engine::Gpu| gpu.model().memory_mb - gpu.model().reserved_mb;
        put(bytes, (driver::with(|cuda| cuda.describe(device, mib))? << 20) as usize)
    }

    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) {
        put(context, driver::with(|cuda| cuda.retain_primary(device))?)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        driver::with(|cuda| cuda.release_primary(device))
    }

    /// The new context is current in this thread, as CUDA has it.
    fn cuCtxCreate_v2(context: *mut u64, _flags: c_uint, device: c_int) {
        let new = driver::with(|cuda| cuda.make_context(device))?;
        CURRENT.set(new);
        put(context, new)
    }

    fn cuCtxSetCurrent(context: u64) {
        driver::with(|cuda| match context == 0 || cuda.has_context(context) {
            true => Ok(()),
            false => Err(CudaError::INVALID_CONTEXT),
        })?;
        CURRENT.set(context);
        Ok(())
    }

    fn cuCtxDestroy_v2(context: u64) {
        if CURRENT.get() == context {
            CURRENT.set(0);
        }
        driver::with(|cuda| cuda.destroy_context(context))
    }

    fn cuCtxSynchronize() {
        driver::synchronize(current()?)
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let context = current()?;
        let (free_bytes, total_bytes) = driver::with(|cuda| cuda.memory(context))?;
        put(free, free_bytes as usize)?;
        put(total, total_bytes as usize)
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        let context = current()?;
        put(address, driver::with(|cuda| cuda.allocate(context, Size::plain(bytes as u64)))?)
    }

    /// Driver 580 holds managed memory to the limit of MPS too. No limit of a cgroup holds it.
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: c_uint) {
        let context = current()?;
        put(address, driver::with(|cuda| cuda.allocate(context, Size::managed(bytes as u64)))?)
    }

    fn cuMemFree_v2(address: u64) {
        current()?;
        driver::with(|cuda| cuda.free(address))
    }

    fn cuModuleLoadData(module: *mut u64, image: *const c_void) {
        current()?;
        let image = text(image.cast())?;
        put(module, driver::with(|cuda| cuda.load_module(&image))?)
    }

    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) {
        let name = text(name)?;
        put(function, driver::with(|cuda| cuda.function(module, &name))?)
    }

    fn cuLaunchKernel(
        function: u64, _grid_x: c_uint, _grid_y: c_uint, _grid_z: c_uint, _block_x: c_uint,
        _block_y: c_uint, _block_z: c_uint, _shared: c_uint, _stream: *mut c_void,
        parameters: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        current()?;
        driver::with(|cuda| match kernel(cuda, function, parameters)? {
            Some(kernel) => cuda.launch(kernel),
            None => Ok(()),
        })
    }

    fn cuGetErrorName(code: u32, name: *mut *const c_char) {
        let known = error::name(code);
        put(name, known.map_or(std::ptr::null(), CStr::as_ptr))?;
        known.map(drop).ok_or(CudaError::INVALID_VALUE)
    }
}

/// Returns the work of a kernel, known by its name; other kernels do nothing.
fn kernel(
    cuda: &Cuda,
    function: u64,
    parameters: *mut *mut c_void,
) -> Result<Option<Kernel>, CudaError> {
    let name = cuda.function_name(function);
    match name.ok_or(CudaError::INVALID_VALUE)? {
        "fault" => Ok(Some(Kernel::Fault)),
        "spin" if parameters.is_null() => Err(CudaError::INVALID_VALUE),
        "spin" => {
            // SAFETY: CUDA's contract is that there is a pointer for each parameter; `spin` has one.
            let first = unsafe { parameters.read() }.cast::<u64>();
            // SAFETY: by the same contract the pointer leads to the parameter, a `.u64` of the PTX.
            Ok(Some(Kernel::Spin(unsafe { first.read_unaligned() })))
        }
        _ => Ok(None),
    }
}
