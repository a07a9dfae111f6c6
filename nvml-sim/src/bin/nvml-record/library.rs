//! The library, opened as its clients open it.

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};
use std::ffi::{CStr, c_char};
use std::path::Path;

/// Stands for a return code where the library lacks the function: NVML's own code for that.
pub const FUNCTION_NOT_FOUND: u32 = 13;

pub struct Library {
    pub nvml: NvmlLib,
}

pub struct Gpu {
    pub index: u32,
    pub device: nvmlDevice_t,
}

/// Calls a function of the library, and gives its return code.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $library.nvml.$name.as_ref() {
            // SAFETY: the types are NVML's own; handles are those that this session gave out, and
            // pointers lead to values that live until the call returns.
            Ok(function) => unsafe { function($($argument),*) },
            Err(_) => $crate::library::FUNCTION_NOT_FOUND,
        }
    };
}
pub(crate) use call;

impl Library {
    pub fn open(path: &Path) -> Result<Library, String> {
        // SAFETY: loading NVML runs nothing but its own constructors.
        match unsafe { NvmlLib::new(path) } {
            Ok(nvml) => Ok(Library { nvml }),
            Err(e) => Err(format!("cannot open {}: {e}", path.display())),
        }
    }

    pub fn init(&self) -> u32 {
        call!(self, nvmlInit_v2())
    }

    pub fn shutdown(&self) -> u32 {
        call!(self, nvmlShutdown())
    }

    /// The return code and the count.
    pub fn count(&self) -> (u32, u32) {
        let mut count = 0;
        (call!(self, nvmlDeviceGetCount_v2(&mut count)), count)
    }

    pub fn gpu(&self, index: u32) -> Option<Gpu> {
        let mut device = std::ptr::null_mut();
        let code = call!(self, nvmlDeviceGetHandleByIndex_v2(index, &mut device));
        (code == 0 && !device.is_null()).then_some(Gpu { index, device })
    }

    pub fn versions(&self) -> String {
        let mut driver = [0 as c_char; 80];
        let length = driver.len() as u32;
        call!(
            self,
            nvmlSystemGetDriverVersion(driver.as_mut_ptr(), length)
        );
        let mut cuda = 0;
        call!(self, nvmlSystemGetCudaDriverVersion_v2(&mut cuda));
        let (major, minor) = (cuda / 1000, cuda % 1000 / 10);
        format!("driver {}, CUDA {major}.{minor}", text(&driver))
    }

    pub fn uuid(&self, gpu: &Gpu) -> String {
        let mut uuid = [0 as c_char; 96];
        let length = uuid.len() as u32;
        call!(
            self,
            nvmlDeviceGetUUID(gpu.device, uuid.as_mut_ptr(), length)
        );
        text(&uuid)
    }
}

impl Gpu {
    pub fn row(&self, question: &str, answer: impl std::fmt::Display) {
        println!("gpu {} {question} = {answer}", self.index);
    }

    /// The return code and, on success, what came with it.
    pub fn answer(&self, question: &str, code: u32, values: impl FnOnce() -> String) {
        let values = if code == 0 { values() } else { String::new() };
        self.row(question, format!("{code} {values}").trim_end());
    }
}

pub fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
