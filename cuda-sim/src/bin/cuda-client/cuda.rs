//! CUDA's driver interface, loaded at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::mem::transmute_copy;
use std::ptr;

/// Kernels for every GPU since Maxwell. `spin` runs for the nanoseconds of its parameter.
const PTX: &CStr = c"
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %p;
    .reg .u64 %start, %now, %gone, %time;
    ld.param.u64 %time, [nanoseconds];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %gone, %now, %start;
    setp.lt.u64 %p, %gone, %time;
    @%p bra again;
    ret;
}

.visible .entry fault()
{
    .reg .u64 %address;
    .reg .u32 %value;
    mov.u64 %address, 16;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
";

const MEM_ATTACH_GLOBAL: c_uint = 1;
const OUT_OF_MEMORY: u32 = 2;

pub enum Failure {
    /// A CUDA call failed.
    Cuda { code: u32, name: String },
    /// The library or one of its functions is missing.
    Library(String),
    /// A command is wrong.
    Usage(String),
}

impl Failure {
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Failure::Cuda { code, .. } if *code == OUT_OF_MEMORY)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Cuda { name, .. } => write!(f, "error {name}"),
            Failure::Library(why) | Failure::Usage(why) => f.write_str(why),
        }
    }
}

/// A context on device 0.
pub struct Cuda {
    library: *mut c_void,
    spin: *mut c_void,
    fault: *mut c_void,
    allocations: Vec<u64>,
}

/// Calls a function of the library by its name, and checks its code.
macro_rules! call {
    ($cuda:expr, $name:literal($($arg:expr => $type:ty),* $(,)?)) => {{
        let address = $cuda.address($name)?;
        type Function = unsafe extern "C" fn($($type),*) -> u32;
        // SAFETY: the address is that of the function, whose type is that of `cuda.h`.
        let function: Function = unsafe { transmute_copy(&address) };
        // SAFETY: pointers among the arguments lead to live values of the function's types.
        let code = unsafe { function($($arg),*) };
        $cuda.check(code)
    }};
}

impl Cuda {
    /// Loads the library, makes a context on device 0 and loads the kernels.
    pub fn start() -> Result<Cuda, Failure> {
        let name = std::env::var("CUDA_CLIENT_LIBRARY");
        let name = CString::new(name.unwrap_or_else(|_| "libcuda.so.1".into()));
        let name = name.map_err(|e| Failure::Library(format!("cannot load a library: {e}")))?;
        // SAFETY: a CUDA library may be loaded at any time; `name` is a C string.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            let why = format!("cannot load {}", name.to_string_lossy());
            return Err(Failure::Library(why));
        }
        let mut cuda = Cuda {
            library,
            spin: ptr::null_mut(),
            fault: ptr::null_mut(),
            allocations: Vec::new(),
        };
        let (mut device, mut context, mut module) = (0, ptr::null_mut(), ptr::null_mut());
        call!(cuda, c"cuInit"(0 => c_uint))?;
        call!(cuda, c"cuDeviceGet"(&raw mut device => *mut c_int, 0 => c_int))?;
        call!(cuda, c"cuDevicePrimaryCtxRetain"(
            &raw mut context => *mut *mut c_void, device => c_int,
        ))?;
        call!(cuda, c"cuCtxSetCurrent"(context => *mut c_void))?;
        call!(cuda, c"cuModuleLoadData"(
            &raw mut module => *mut *mut c_void, PTX.as_ptr().cast() => *const c_void,
        ))?;
        cuda.spin = cuda.function(module, c"spin")?;
        cuda.fault = cuda.function(module, c"fault")?;
        Ok(cuda)
    }

    fn function(&self, module: *mut c_void, name: &CStr) -> Result<*mut c_void, Failure> {
        let mut function = ptr::null_mut();
        call!(self, c"cuModuleGetFunction"(
            &raw mut function => *mut *mut c_void, module => *mut c_void,
            name.as_ptr() => *const c_char,
        ))?;
        Ok(function)
    }

    fn address(&self, name: &CStr) -> Result<*mut c_void, Failure> {
        // SAFETY: the library is never unloaded; `name` is a C string.
        let address = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        let missing = || format!("cannot find {}", name.to_string_lossy());
        let found = Some(address).filter(|address| !address.is_null());
        found.ok_or_else(|| Failure::Library(missing()))
    }

    fn check(&self, code: u32) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = ptr::null();
        if let Ok(address) = self.address(c"cuGetErrorName") {
            type Function = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
            // SAFETY: the address is that of the function, whose type is that of `cuda.h`.
            let function: Function = unsafe { transmute_copy(&address) };
            // SAFETY: `name` may be written to.
            unsafe { function(code, &raw mut name) };
        }
        let name = match name.is_null() {
            true => code.to_string(),
            // SAFETY: CUDA gives out C strings that are never freed.
            false => unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned(),
        };
        Err(Failure::Cuda { code, name })
    }

    /// Returns the total and the free bytes.
    pub fn memory(&self) -> Result<(usize, usize), Failure> {
        let (mut free, mut total) = (0, 0);
        call!(self, c"cuMemGetInfo_v2"(
            &raw mut free => *mut usize, &raw mut total => *mut usize,
        ))?;
        Ok((total, free))
    }

    pub fn allocate(&mut self, bytes: u64) -> Result<(), Failure> {
        let mut address = 0;
        call!(self, c"cuMemAlloc_v2"(&raw mut address => *mut u64, bytes as usize => usize))?;
        self.allocations.push(address);
        Ok(())
    }

    pub fn allocate_managed(&mut self, bytes: u64) -> Result<(), Failure> {
        let mut address = 0;
        call!(self, c"cuMemAllocManaged"(
            &raw mut address => *mut u64, bytes as usize => usize, MEM_ATTACH_GLOBAL => c_uint,
        ))?;
        self.allocations.push(address);
        Ok(())
    }

    pub fn free_all(&mut self) -> Result<(), Failure> {
        while let Some(address) = self.allocations.pop() {
            call!(self, c"cuMemFree_v2"(address => u64))?;
        }
        Ok(())
    }

    /// Starts a kernel that runs for so many nanoseconds.
    pub fn spin(&self, mut nanoseconds: u64) -> Result<(), Failure> {
        let mut parameters: [*mut c_void; 1] = [(&raw mut nanoseconds).cast()];
        self.launch(self.spin, parameters.as_mut_ptr())
    }

    /// Starts a kernel that accesses an illegal address.
    pub fn fault(&self) -> Result<(), Failure> {
        self.launch(self.fault, ptr::null_mut())
    }

    fn launch(&self, function: *mut c_void, parameters: *mut *mut c_void) -> Result<(), Failure> {
        call!(self, c"cuLaunchKernel"(
            function => *mut c_void,
            1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, ptr::null_mut() => *mut c_void,
            parameters => *mut *mut c_void, ptr::null_mut() => *mut *mut c_void,
        ))
    }

    pub fn synchronize(&self) -> Result<(), Failure> {
        call!(self, c"cuCtxSynchronize"())
    }
}
