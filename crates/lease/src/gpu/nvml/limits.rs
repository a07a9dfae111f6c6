//! Memory limits by cgroup. The two functions came with driver 615, and nvml-wrapper does not know them yet.

use super::session::{Session, check, raw};
use crate::gpu::{DriverError, FUNCTION_NOT_FOUND, LimitMemory, MemoryLimits, Reason, Result};
use crate::model::GpuUuid;
use nvml_wrapper_sys::bindings as sys;
use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The name of a function of type F.
struct Name<F>(&'static CStr, PhantomData<F>);

const SET: Name<Set> = Name(c"nvmlDeviceSetMemoryLimits_v1", PhantomData);
const GET: Name<Get> = Name(c"nvmlDeviceGetMemoryLimits_v1", PhantomData);

/// `nvmlSetMemoryLimits_v1_t`.
#[repr(C)]
struct SetLimits {
    /// The directory of the cgroup.
    name_space: *const c_char,
    soft: u64,
    hard: u64,
}

/// `nvmlGetMemoryLimits_v1_t`.
#[repr(C)]
struct GetLimits {
    name_space: *const c_char,
    soft: u64,
    hard: u64,
    used: u64,
}

type Set = unsafe extern "C" fn(sys::nvmlDevice_t, *mut SetLimits) -> sys::nvmlReturn_t;
type Get = unsafe extern "C" fn(sys::nvmlDevice_t, *mut GetLimits) -> sys::nvmlReturn_t;

impl LimitMemory for Session {
    fn set_memory_limits(
        &self,
        gpu: &GpuUuid,
        cgroup: &Path,
        MemoryLimits { soft, hard }: MemoryLimits,
    ) -> Result<()> {
        let what = || self.limit_of("set", gpu, cgroup);
        let path = path(cgroup, &what)?;
        let device = self.device(gpu)?;
        let mut limits = SetLimits {
            name_space: path.as_ptr(),
            soft,
            hard,
        };
        let set: Set = self.function(SET, &what)?;
        crate::effect::driver("nvmlDeviceSetMemoryLimits_v1");
        // SAFETY: the library and the device belong to the open session; the struct and its path live until the end of
        // the call.
        check(&what, unsafe { set(raw(&device), &raw mut limits) })
    }
}

impl Session {
    pub(super) fn read_memory_limits(&self, gpu: &GpuUuid, cgroup: &Path) -> Result<MemoryLimits> {
        let what = || self.limit_of("read", gpu, cgroup);
        let path = path(cgroup, &what)?;
        let device = self.device(gpu)?;
        let mut limits = GetLimits {
            name_space: path.as_ptr(),
            soft: 0,
            hard: 0,
            used: 0,
        };
        let get: Get = self.function(GET, &what)?;
        // SAFETY: as for the setter.
        check(&what, unsafe { get(raw(&device), &raw mut limits) })?;
        Ok(MemoryLimits {
            soft: limits.soft,
            hard: limits.hard,
        })
    }

    fn limit_of(&self, verb: &str, gpu: &GpuUuid, cgroup: &Path) -> String {
        let (gpu, cgroup) = (self.called(gpu), cgroup.display());
        format!("{verb} the memory limit of cgroup {cgroup} on GPU {gpu}")
    }

    /// Finds a function in the open library, by its name and with its type. A missing one is `FUNCTION_NOT_FOUND`, as
    /// NVML says it of functions that its kernel module lacks.
    fn function<F: Copy>(&self, name: Name<F>, what: &impl Fn() -> String) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let symbol = self.symbol(name.0, what)?.ok_or_else(|| DriverError {
            what: what(),
            reason: Reason::Code(FUNCTION_NOT_FOUND),
        })?;
        // SAFETY: F has the size of a pointer, and is the type that NVML's header gives the function of this name.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol.as_ptr()) })
    }
}

fn path(cgroup: &Path, what: &impl Fn() -> String) -> Result<CString> {
    CString::new(cgroup.as_os_str().as_bytes()).map_err(|e| DriverError {
        what: what(),
        reason: Reason::Answer(e.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_have_layout_of_header() {
        assert_eq!((size_of::<SetLimits>(), size_of::<GetLimits>()), (24, 32));
        assert_eq!(
            (offset_of!(SetLimits, soft), offset_of!(SetLimits, hard)),
            (8, 16)
        );
        assert_eq!(
            (offset_of!(GetLimits, hard), offset_of!(GetLimits, used)),
            (16, 24)
        );
    }
}
