//! The functions of NVML that runmig calls, and whether the library has them.

use super::session::Session;
use crate::gpu::{Reason, Result};
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

/// Every function in use, also those that nvml-wrapper calls. Left out are the two for memory limits: drivers before 615
/// lack them, and the level `driver` of shares asks for them; and those for the health of a GPU, without which it has no
/// sign.
pub(super) const IN_USE: [&str; 35] = [
    "nvmlComputeInstanceDestroy",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstanceRemainingCapacity",
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetUUID",
    "nvmlDeviceSetMigMode",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlGpuInstanceGetComputeInstanceById",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlGpuInstanceGetInfo",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
];

impl Session<'_> {
    /// Returns the functions in use that the open library lacks.
    ///
    /// # Errors
    /// The library cannot be opened.
    pub fn missing_functions(&self) -> Result<Vec<String>> {
        let what = || "look for the functions of NVML".to_owned();
        let mut missing = Vec::new();
        for name in IN_USE {
            if self.symbol(name, &what)?.is_none() {
                missing.push(name.to_owned());
            }
        }
        Ok(missing)
    }

    /// Finds a function in the open library by its name.
    pub(super) fn symbol(
        &self,
        name: &str,
        what: &impl Fn() -> String,
    ) -> Result<Option<NonNull<c_void>>> {
        self.nvml()?;
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|e| self.wrong(what, e.to_string()));
        let library = text(self.library.as_os_str().as_bytes())?;
        let name = text(name.as_bytes())?;
        // SAFETY: the session has loaded this library, and the flag makes the call load nothing.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            let why = "the driver's library was replaced meanwhile".to_owned();
            return Err(self.failure(what, Reason::Library(why)));
        }
        // SAFETY: the handle is the library's, and the name ends with a NUL.
        let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
        // SAFETY: this takes back the reference of the call above. The session keeps the library loaded.
        unsafe { libc::dlclose(handle) };
        Ok(NonNull::new(symbol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The macro `call` names each function that nvml-wrapper does not wrap.
    #[test]
    fn lists_every_called_function() {
        let sources = [
            include_str!("gpus.rs"),
            include_str!("mig.rs"),
            include_str!("profiles.rs"),
            include_str!("queries.rs"),
            include_str!("session.rs"),
            include_str!("signs.rs"),
        ];
        let words = sources.iter().flat_map(|text| {
            text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .filter(|word| word.starts_with("nvml") && !word.ends_with("_t"))
                .filter(|word| !word.contains("_enum_"))
                .filter(|word| word.chars().nth(4).is_some_and(char::is_uppercase))
        });
        // Older drivers lack these, so the call itself finds them.
        let found_late = [
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceSetMemoryLimits_v1",
            "nvmlDeviceGetMemoryLimits_v1",
        ];
        let words = words.filter(|word| !found_late.contains(word));
        let unknown: Vec<&str> = words.filter(|word| !IN_USE.contains(word)).collect();
        assert_eq!(unknown, [""; 0]);
    }
}
