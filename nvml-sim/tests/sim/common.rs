//! A simulated machine for a test, and a client of its library.

use std::ffi::{CStr, CString, c_void};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nvml_sim::abi::types::{ComputeInstanceInfo, GpuInstanceInfo, Memory_v2, Plain, Span, version};
use tempfile::TempDir;

pub struct Sim {
    dir: TempDir,
}

/// A process that holds a GPU or an instance, until this value is dropped.
pub struct Holder(Child);

impl Holder {
    /// `nvml-sim hold DIR ARGS`. Returns once it holds.
    pub fn new(sim: &Sim, args: &str) -> Holder {
        let mut hold = sim.command("hold", args);
        let mut child = hold.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.starts_with("holding GPU"), "{line:?}");
        Holder(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Sim {
    /// `nvml-sim new` with these arguments.
    pub fn new(args: &str) -> Sim {
        let dir = TempDir::new().unwrap();
        // Other users are to find the machine as well.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let sim = Sim { dir };
        sim.run("new", args);
        sim
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `nvml-sim VERB DIR ARGS`
    fn command(&self, verb: &str, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvml-sim"));
        let args = args.split_whitespace();
        command.arg(verb).arg(self.dir()).args(args);
        command
    }

    /// Runs it, whatever comes of it.
    pub fn try_run(&self, verb: &str, args: &str) -> Output {
        self.command(verb, args).output().unwrap()
    }

    /// Runs it, which must succeed, and returns its output.
    pub fn run(&self, verb: &str, args: &str) -> String {
        let output = self.try_run(verb, args);
        assert!(output.status.success(), "{verb} {args}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn show(&self) -> serde_json::Value {
        serde_json::from_str(&self.run("show", "--json")).unwrap()
    }

    /// The ids of a GPU's instances.
    pub fn gpu_instances(&self, gpu: usize) -> Vec<u64> {
        let instances = self.show()["gpus"][gpu]["gpuInstances"].clone();
        let ids = instances.as_array().unwrap().iter().map(|gi| &gi["id"]);
        ids.map(|id| id.as_u64().unwrap()).collect()
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    pub fn load(&self) -> Nvml {
        Nvml::load(&self.dir().join("lib/libnvidia-ml.so.1"))
    }

    pub fn init(&self) -> Nvml {
        let nvml = self.load();
        assert_eq!(nvml.call("nvmlInit_v2", &[]), 0);
        nvml
    }
}

pub fn zeroed<T: Plain>() -> T {
    // SAFETY: any bytes are a value of it.
    unsafe { std::mem::zeroed() }
}

/// A client that calls functions by name. Each copy of the library has a session of its own.
pub struct Nvml {
    library: *mut c_void,
}

impl Nvml {
    /// The memory of a GPU or MIG device, by the second version of the call.
    pub fn memory(&self, device: u64) -> Memory_v2 {
        let mut asked: Memory_v2 = zeroed();
        asked.version = version::<Memory_v2>(2);
        let memory = self.ask("nvmlDeviceGetMemoryInfo_v2", &[device], asked);
        memory.unwrap()
    }

    pub fn load(path: &Path) -> Nvml {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: loading the simulated library runs no code of its own.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{}", path.display());
        Nvml { library }
    }

    pub fn has(&self, name: &str) -> bool {
        !self.address(name).is_null()
    }

    fn address(&self, name: &str) -> *mut c_void {
        let symbol = CString::new(name).unwrap();
        // SAFETY: the library stays loaded for as long as the process lives.
        unsafe { libc::dlsym(self.library, symbol.as_ptr()) }
    }

    /// Calls a function with its arguments as the registers have them.
    pub fn call(&self, name: &str, args: &[u64]) -> u32 {
        type Function = extern "C" fn(u64, u64, u64, u64, u64) -> u32;
        let address = self.address(name);
        assert!(!address.is_null(), "{name}");
        // SAFETY: every function takes integers and pointers in registers and ignores the rest.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
        let mut all = [0; 5];
        all[..args.len()].copy_from_slice(args);
        function(all[0], all[1], all[2], all[3], all[4])
    }

    /// Calls a function whose last argument takes the answer.
    pub fn ask<T: Copy>(&self, name: &str, args: &[u64], mut answer: T) -> Result<T, u32> {
        match self.call(name, &[args, &[&raw mut answer as u64]].concat()) {
            0 => Ok(answer),
            code => Err(code),
        }
    }

    pub fn ask_text(&self, name: &str, args: &[u64]) -> Result<String, u32> {
        let mut buffer = [0_u8; 128];
        let into = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
        match self.call(name, &[args, &into].concat()) {
            0 => Ok(CStr::from_bytes_until_nul(&buffer)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()),
            code => Err(code),
        }
    }

    pub fn gpu(&self, index: u64) -> u64 {
        let gpu = self.ask("nvmlDeviceGetHandleByIndex_v2", &[index], 0);
        gpu.unwrap()
    }

    pub fn by_uuid(&self, uuid: &str) -> Result<u64, u32> {
        let uuid = CString::new(uuid).unwrap();
        self.ask("nvmlDeviceGetHandleByUUID", &[uuid.as_ptr() as u64], 0)
    }

    pub fn create_gi(&self, gpu: u64, profile: u64) -> Result<u64, u32> {
        self.ask("nvmlDeviceCreateGpuInstance", &[gpu, profile], 0)
    }

    pub fn create_gi_at(&self, gpu: u64, profile: u64, at: Span) -> Result<u64, u32> {
        let args = [gpu, profile, &raw const at as u64];
        self.ask("nvmlDeviceCreateGpuInstanceWithPlacement", &args, 0)
    }

    pub fn create_ci(&self, gi: u64, profile: u64) -> Result<u64, u32> {
        self.ask("nvmlGpuInstanceCreateComputeInstance", &[gi, profile], 0)
    }

    pub fn gi_info(&self, gi: u64) -> Result<GpuInstanceInfo, u32> {
        self.ask("nvmlGpuInstanceGetInfo", &[gi], zeroed())
    }

    pub fn ci_info(&self, ci: u64) -> Result<ComputeInstanceInfo, u32> {
        self.ask("nvmlComputeInstanceGetInfo_v2", &[ci], zeroed())
    }

    pub fn mig_device(&self, gpu: u64, index: u64) -> Result<u64, u32> {
        self.ask("nvmlDeviceGetMigDeviceHandleByIndex", &[gpu, index], 0)
    }
}
