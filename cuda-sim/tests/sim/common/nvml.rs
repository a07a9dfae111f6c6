//! A client of a machine's NVML.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nvml_sim::abi::types::ProcessInfo;

use super::Machine;

pub struct Nvml(*mut libc::c_void);

impl Nvml {
    /// Loads the library of a machine and opens a session.
    pub fn open(machine: &Machine) -> Nvml {
        let library = machine.dir().join("lib/libnvidia-ml.so.1");
        let name = CString::new(library.as_os_str().as_bytes()).unwrap();
        // SAFETY: loading the simulated library runs no code of its own.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        let nvml = Nvml(library);
        assert_eq!(nvml.call("nvmlInit_v2", [0; 3]), 0);
        nvml
    }

    /// Calls a function with its arguments as the registers have them.
    pub fn call(&self, function: &str, args: [u64; 3]) -> u32 {
        let name = CString::new(function).unwrap();
        // SAFETY: the library stays loaded for as long as the process lives.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{function}");
        type Function = extern "C" fn(u64, u64, u64) -> u32;
        // SAFETY: every function takes integers and pointers in registers and ignores the rest.
        let function = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(address) };
        function(args[0], args[1], args[2])
    }

    pub fn gpu(&self) -> u64 {
        let mut gpu = 0_u64;
        let args = [0, &raw mut gpu as u64, 0];
        assert_eq!(self.call("nvmlDeviceGetHandleByIndex_v2", args), 0);
        gpu
    }

    /// Lists processes by a function: pids and MiB.
    pub fn processes(&self, function: &str) -> Vec<(u32, u64)> {
        // SAFETY: all-zero is a value of the struct, which is numbers only.
        let mut infos: [ProcessInfo; 64] = unsafe { std::mem::zeroed() };
        let mut count = infos.len() as u32;
        let args = [self.gpu(), &raw mut count as u64, infos.as_mut_ptr() as u64];
        assert_eq!(self.call(function, args), 0, "{function}");
        let listed = infos[..count as usize].iter();
        let mut all: Vec<_> = listed.map(|p| (p.pid, p.used_gpu_memory >> 20)).collect();
        all.sort_unstable();
        all
    }

    /// Sets the soft and the hard limit of a cgroup, and returns NVML's code.
    pub fn set_limits(&self, device: u64, cgroup: &Path, [soft, hard]: [u64; 2]) -> u32 {
        let path = CString::new(cgroup.as_os_str().as_bytes()).unwrap();
        let limits = [path.as_ptr() as u64, soft, hard];
        let args = [device, limits.as_ptr() as u64, 0];
        self.call("nvmlDeviceSetMemoryLimits_v1", args)
    }

    /// Returns the soft limit, the hard limit and the bytes in use, or NVML's code.
    pub fn limits(&self, device: u64, cgroup: &Path) -> Result<[u64; 3], u32> {
        let path = CString::new(cgroup.as_os_str().as_bytes()).unwrap();
        let mut limits = [path.as_ptr() as u64, 7, 7, 7];
        let args = [device, limits.as_mut_ptr() as u64, 0];
        match self.call("nvmlDeviceGetMemoryLimits_v1", args) {
            0 => Ok([limits[1], limits[2], limits[3]]),
            code => Err(code),
        }
    }
}
