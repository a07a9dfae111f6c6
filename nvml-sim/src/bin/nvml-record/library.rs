//! The library, opened as its clients open it.

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};
use std::ffi::{CStr, c_char};
use std::path::Path;

/// Stands for a return code where the library lacks the function: NVML's own code for that.
pub const FUNCTION_NOT_FOUND: u32 = 13;

pub struct Library {
    pub nvml: NvmlLib,
}

pub struct Gpu<'a> {
    pub library: &'a Library,
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

/// Asks a question about a GPU, and records it: the function with `which` in brackets, and on success the values beside
/// the code. Gives the code.
macro_rules! ask {
    ($gpu:expr, $name:ident($($argument:expr),*); $which:expr $(=> $values:expr)?) => {{
        let code = $crate::library::call!($gpu.library, $name($gpu.device $(, $argument)*));
        let question = format!("{}({})", stringify!($name), $which);
        $gpu.answer(&question, code, || String::new() $(+ &$values.to_string())?);
        code
    }};
}
pub(crate) use ask;

impl Library {
    pub fn open(path: &Path) -> Result<Library, String> {
        // SAFETY: loading NVML runs nothing but its own constructors.
        let nvml = unsafe { NvmlLib::new(path) };
        let nvml = nvml.map_err(|e| format!("cannot open {}: {e}", path.display()))?;
        Ok(Library { nvml })
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

    pub fn gpu(&self, index: u32) -> Option<Gpu<'_>> {
        let mut device = std::ptr::null_mut();
        let code = call!(self, nvmlDeviceGetHandleByIndex_v2(index, &mut device));
        let library = self;
        (code == 0 && !device.is_null()).then_some(Gpu {
            library,
            index,
            device,
        })
    }

    pub fn versions(&self) -> String {
        let mut driver = [0 as c_char; 80];
        call!(self, nvmlSystemGetDriverVersion(driver.as_mut_ptr(), 80));
        let mut cuda = 0;
        call!(self, nvmlSystemGetCudaDriverVersion_v2(&mut cuda));
        let (major, minor) = (cuda / 1000, cuda % 1000 / 10);
        format!("driver {}, CUDA {major}.{minor}", text(&driver))
    }
}

impl Gpu<'_> {
    pub fn uuid(&self) -> String {
        let mut uuid = [0 as c_char; 96];
        call!(
            self.library,
            nvmlDeviceGetUUID(self.device, uuid.as_mut_ptr(), 96)
        );
        text(&uuid)
    }

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
