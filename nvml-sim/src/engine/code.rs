use std::ffi::CStr;
use std::fmt;

/// An NVML return code other than success, by its number in nvml.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl Code {
            $(pub const $name: Code = Code($number);)*

            /// The constants of nvml.h, without their `NVML_ERROR_`.
            pub const ALL: &'static [(&'static str, Code)] = &[$((stringify!($name), Code::$name)),*];
        }

        /// The words `nvmlErrorString` has for a return code, as it hands them out.
        pub fn c_words(code: u32) -> &'static CStr {
            match code {
                0 => c"Success",
                $($number => $words,)*
                _ => c"Unknown Error",
            }
        }
    };
}

codes! {
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5, c"Already Initialized";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires reset";
    OPERATING_SYSTEM = 17, c"GPU access blocked by the operating system";
    LIB_RM_VERSION_MISMATCH = 18, c"RM has detected an NVML/RM version mismatch.";
    IN_USE = 19, c"In use by another client";
    MEMORY = 20, c"Insufficient Memory";
    NO_DATA = 21, c"No data";
    VGPU_ECC_NOT_SUPPORTED = 22, c"vGPU ECC not supported";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient Resources";
    FREQ_NOT_SUPPORTED = 24, c"Frequency Not Supported";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument version mismatch";
    DEPRECATED = 26, c"Deprecated";
    NOT_READY = 27, c"System is not in ready state";
    GPU_NOT_FOUND = 28, c"No GPUs were found";
    INVALID_STATE = 29, c"Invalid State";
    RESET_TYPE_NOT_SUPPORTED = 30, c"Reset Type Not Supported";
    UNKNOWN = 999, c"Unknown Error";
}

impl Code {
    pub fn words(self) -> &'static str {
        c_words(self.0).to_str().unwrap_or_default()
    }

    /// A code by its number or by its constant's name, `NVML_ERROR_` or not, in any case.
    pub fn parse(text: &str) -> Option<Code> {
        if let Ok(number) = text.parse() {
            return Some(Code(number));
        }
        let upper = text.to_ascii_uppercase().replace('-', "_");
        let name = upper.strip_prefix("NVML_ERROR_").unwrap_or(&upper);
        Code::ALL.iter().find(|(n, _)| *n == name).map(|(_, c)| *c)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (NVML {})", self.words(), self.0)
    }
}

impl std::error::Error for Code {}
