//! The GPUs and their instances, as NVML tells them.

use super::session::{ANSWERS, Gi, Session, call, check, raw, supported, text};
use super::signs::sign;
use crate::gpu::{
    DriverError, FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, MemoryLimits, NOT_SUPPORTED, Queries,
    Reason, Result,
};
use crate::model::{
    ComputeMode, GpuLoad, GpuProcess, GpuUuid, ListedInstance, MigMode, Nearness, Profile, Sign,
    SignKind, Snapshot,
};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::ComputeMode as NvmlComputeMode;
use nvml_wrapper_sys::bindings as sys;
use std::ffi::{CString, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

impl Queries for Session<'_> {
    fn prepare(&self) -> Result<()> {
        for index in 0..self.count()? {
            // The snapshot says why a GPU cannot be read.
            let _ = self.gpu(index).and_then(|gpu| match self.mig_mode(&gpu)? {
                (MigMode::Enabled, _) => self.geometry(&gpu).map(drop),
                _ => Ok(()),
            });
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let count = self.count()?;
        let mut snapshot = Snapshot {
            driver_version: self.driver_version()?,
            ..Snapshot::default()
        };
        for index in 0..count {
            // A GPU that is lost must not keep the others from being used.
            match self.gpu(index).and_then(|gpu| self.contents(&gpu)) {
                Ok(gpu) => snapshot.gpus.push(gpu),
                Err(e) => snapshot.unreadable.push((index, e.to_string())),
            }
        }
        Ok(snapshot)
    }

    fn offered_profiles(&self, gpu: &GpuUuid) -> Result<Vec<Profile>> {
        let device = self.device(gpu)?;
        Ok(self.read_geometry(&device, gpu)?.profiles())
    }

    fn free_instances(&self, gpu: &GpuUuid, profile: u32) -> Result<u32> {
        let device = self.device(gpu)?;
        let mut count = 0;
        let what = || self.on(gpu, format!("read the capacity for profile {profile}"));
        call!(
            self,
            what,
            nvmlDeviceGetGpuInstanceRemainingCapacity(raw(&device), profile, &mut count)
        )?;
        Ok(count)
    }

    fn instances_of(&self, gpu: &GpuUuid, profile: u32) -> Result<Vec<ListedInstance>> {
        let device = self.device(gpu)?;
        // Earlier answers do not count: a caller that looks twice wants two answers.
        let profiles = |gi: &Gi<'_>| self.compute_profiles(gi).map(Rc::new);
        let describe = |handle| self.describe(gpu, handle, profiles);
        let listed = self.list(&device, gpu, profile, describe);
        // NOT_SUPPORTED says that MIG is off, and then it has to be.
        let what = || format!("read the MIG mode of GPU {gpu}");
        let mode = || self.ask("nvmlDeviceGetMigMode", &what, || device.mig_mode());
        let is_off = |e: &DriverError| {
            e.code() == Some(NOT_SUPPORTED) && mode().is_ok_and(|mode| mode.current == 0)
        };
        match listed {
            Err(e) if is_off(&e) => Ok(Vec::new()),
            listed => listed,
        }
    }

    fn load(&self, gpu: &GpuUuid) -> Result<GpuLoad> {
        let device = self.device(gpu)?;
        let what = || format!("read the use of GPU {}", self.called(gpu));
        let memory = self.ask("nvmlDeviceGetMemoryInfo_v2", &what, || device.memory_info());
        let memory = supported(memory)?;
        let process = |p: &Process| GpuProcess {
            pid: p.pid,
            // The largest number says that the driver does not tell.
            used_bytes: (p.usedGpuMemory != u64::MAX).then_some(p.usedGpuMemory),
        };
        let computing = self.list_processes(&device, List::Computing, &what)?;
        let is_computing = |p: &&Process| computing.iter().any(|c| c.pid == p.pid);
        // A GPU without a graphics engine draws nothing.
        let drawing = supported(self.list_processes(&device, List::Drawing, &what))?;
        let drawing = drawing.iter().flatten().filter(|p| !is_computing(p));
        let mode = self.ask("nvmlDeviceGetComputeMode", &what, || device.compute_mode());
        Ok(GpuLoad {
            compute_mode: match supported(mode)? {
                None | Some(NvmlComputeMode::Default) => ComputeMode::Default,
                Some(NvmlComputeMode::ExclusiveProcess | NvmlComputeMode::ExclusiveThread) => {
                    ComputeMode::ExclusiveProcess
                }
                Some(NvmlComputeMode::Prohibited) => ComputeMode::Prohibited,
            },
            processes: computing.iter().map(process).collect(),
            graphics: drawing.map(process).collect(),
            memory_mib: memory
                .map(|all| all.total.saturating_sub(all.reserved) >> 20)
                .filter(|mib| *mib > 0),
        })
    }

    fn outside_mps(&self, gpu: &GpuUuid) -> Result<Vec<u32>> {
        let device = &self.device(gpu)?;
        // The driver tells the two lists one after the other, and a client may start or end between them, so this asks
        // for the clients before and after.
        let clients = || {
            let what = || self.on(gpu, "list the MPS clients");
            self.list_processes(device, List::Clients, &what).map(pids)
        };
        let before = clients()?;
        let what = || self.on(gpu, "list the processes");
        let computing = self.list_processes(device, List::Computing, &what)?;
        let after = clients()?;
        Ok(outside(pids(computing), [&before, &after]))
    }

    fn signs(&self, gpu: &GpuUuid, fabric: bool) -> Result<Vec<Sign>> {
        let device = self.device(gpu)?;
        let mut signs = self.signs_in_fields(&device, gpu);
        if fabric && self.fabric_is_down(&device, gpu)? {
            signs.push(sign(SignKind::FabricDown, 1));
        }
        Ok(signs)
    }

    fn compute_capability(&self, gpu: &GpuUuid) -> Result<(u32, u32)> {
        let device = self.device(gpu)?;
        let what = || format!("read the compute capability of GPU {}", self.called(gpu));
        let found = self.ask("nvmlDeviceGetCudaComputeCapability", &what, || {
            device.cuda_compute_capability()
        })?;
        let number = |number: i32| u32::try_from(number).unwrap_or_default();
        Ok((number(found.major), number(found.minor)))
    }

    fn nearness(&self, gpu: &GpuUuid, other: GpuUuid) -> Result<Nearness> {
        let (one, two) = (self.device(gpu)?, self.device(&other)?);
        let what = || format!("read how near GPU {other} is to GPU {}", self.called(gpu));
        let (index, mut status, mut level) = (NVLINK, 0, 0);
        let linked = call!(
            self,
            what,
            nvmlDeviceGetP2PStatus(raw(&one), raw(&two), index, &mut status)
        );
        if supported(linked)?.is_some() && status == LINKED {
            return Ok(Nearness::Linked);
        }
        let ancestor = call!(
            self,
            what,
            nvmlDeviceGetTopologyCommonAncestor(raw(&one), raw(&two), &mut level)
        );
        Ok(match supported(ancestor)? {
            Some(()) if level <= NODE => Nearness::SameNode,
            _ => Nearness::Apart,
        })
    }

    fn memory_limits(&self, gpu: &GpuUuid, cgroup: PathBuf) -> Result<MemoryLimits> {
        self.limits(gpu, &cgroup, None)
    }

    fn mig_uuid(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<String> {
        let what = || format!("find MIG device MIG-{gpu}/{gi}/{ci}");
        let device = self.mig_device(gpu, gi, ci)?;
        let mut uuid = [0 as c_char; 96];
        call!(
            self,
            what,
            nvmlDeviceGetUUID(raw(&device), uuid.as_mut_ptr(), uuid.len() as c_uint)
        )?;
        Ok(text(&uuid))
    }

    fn is_filled_by(&self, gpu: &GpuUuid, gi: u32, ci_profile: u32) -> Result<bool> {
        let gi = self.existing_gpu_instance(gpu, gi)?;
        Ok(self.filling_profiles(&gi)?.contains(&ci_profile))
    }

    fn used_memory(&self, gpu: &GpuUuid, mig: Option<(u32, u32)>) -> Result<u64> {
        let device = match mig {
            Some((gi, ci)) => self.mig_device(gpu, gi, ci)?,
            None => self.device(gpu)?,
        };
        let what = || self.on(gpu, "read the memory in use");
        let memory = self.ask("nvmlDeviceGetMemoryInfo_v2", &what, || device.memory_info())?;
        Ok(memory.used)
    }

    fn processes(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<Vec<u32>> {
        let device = self.mig_device(gpu, gi, ci)?;
        let what = || format!("list the processes on MIG device MIG-{gpu}/{gi}/{ci}");
        // Where the driver does not tell, the holders of the capabilities are still seen.
        let listed = supported(self.list_processes(&device, List::Computing, &what))?;
        Ok(listed.map_or(Vec::new(), pids))
    }
}

const NVLINK: sys::nvmlGpuP2PCapsIndex_t = sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK;
const LINKED: sys::nvmlGpuP2PStatus_t = sys::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK;
/// The farthest common ancestor of two GPUs on one NUMA node.
const NODE: sys::nvmlGpuTopologyLevel_t = sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE;

/// The room for the first listing, and for processes that start between two.
const ROOM: c_uint = 256;
/// The most processes of a list that runmig reads.
const MOST: c_uint = 1 << 16;
/// How often a list may outgrow its room.
const MAX_LISTINGS: usize = 4;

type Process = sys::nvmlProcessInfo_t;

/// Which list of the driver.
#[derive(Clone, Copy)]
enum List {
    /// MPS servers, MPS clients and plain CUDA processes.
    Computing,
    /// MPS clients alone.
    Clients,
    /// The processes that draw.
    Drawing,
}

impl Session<'_> {
    fn list_processes(
        &self,
        device: &Device<'_>,
        list: List,
        what: &impl Fn() -> String,
    ) -> Result<Vec<Process>> {
        let mut room = ROOM;
        for _ in 0..MAX_LISTINGS {
            // SAFETY: a struct of integers, for which zeros are a value.
            let empty: Process = unsafe { std::mem::zeroed() };
            let mut found = vec![empty; room as usize];
            let mut count = room;
            let (device, all) = (raw(device), found.as_mut_ptr());
            let listed = match list {
                List::Computing => call!(
                    self,
                    what,
                    nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, all)
                ),
                List::Clients => call!(
                    self,
                    what,
                    nvmlDeviceGetMPSComputeRunningProcesses_v3(device, &mut count, all)
                ),
                List::Drawing => call!(
                    self,
                    what,
                    nvmlDeviceGetGraphicsRunningProcesses_v3(device, &mut count, all)
                ),
            };
            match listed {
                Ok(()) => {
                    found.truncate(count as usize);
                    return Ok(found);
                }
                Err(e) if e.code() == Some(INSUFFICIENT_SIZE) && count < MOST => {
                    room = count.max(room).saturating_add(ROOM);
                }
                Err(e) => return Err(e),
            }
        }
        Err(self.wrong(what, "more of them start all the time"))
    }
}

fn pids(processes: Vec<Process>) -> Vec<u32> {
    processes.iter().map(|process| process.pid).collect()
}

/// Returns the processes that are no clients in either list.
fn outside(computing: Vec<u32>, clients: [&[u32]; 2]) -> Vec<u32> {
    let is_client = |pid: &u32| clients.iter().any(|all| all.contains(pid));
    computing.into_iter().filter(|p| !is_client(p)).collect()
}

const SET: &str = "nvmlDeviceSetMemoryLimits_v1";
const GET: &str = "nvmlDeviceGetMemoryLimits_v1";

/// `nvmlGetMemoryLimits_v1_t`. Without its last field it is `nvmlSetMemoryLimits_v1_t`.
#[repr(C)]
struct CgroupLimits {
    /// The directory of the cgroup.
    name_space: *const c_char,
    soft: u64,
    hard: u64,
    used: u64,
}

type LimitsFunction =
    unsafe extern "C" fn(sys::nvmlDevice_t, *mut CgroupLimits) -> sys::nvmlReturn_t;

impl Session<'_> {
    /// Sets the limits of the cgroup in a directory, as drivers from release 615 on do. They end with the cgroup.
    pub(crate) fn set_memory_limits(
        &self,
        gpu: &GpuUuid,
        cgroup: &Path,
        limits: MemoryLimits,
    ) -> Result<()> {
        self.limits(gpu, cgroup, Some(limits)).map(drop)
    }

    /// Sets these limits of a cgroup, or reads those that it has. A missing function is `FUNCTION_NOT_FOUND`, as NVML says
    /// it of functions that its kernel module lacks.
    fn limits(
        &self,
        gpu: &GpuUuid,
        cgroup: &Path,
        set: Option<MemoryLimits>,
    ) -> Result<MemoryLimits> {
        let (verb, name, answers) = match set {
            Some(_) => ("set", SET, &[][..]),
            None => ("read", GET, ANSWERS),
        };
        let what = || {
            let shown = cgroup.display();
            self.on(gpu, format!("{verb} the memory limit of cgroup {shown}"))
        };
        let path = CString::new(cgroup.as_os_str().as_bytes());
        let path = path.map_err(|e| DriverError::new(what(), Reason::Answer(e.to_string())))?;
        let device = self.device(gpu)?;
        let MemoryLimits { soft, hard } = set.unwrap_or_default();
        let mut limits = CgroupLimits {
            name_space: path.as_ptr(),
            soft,
            hard,
            used: 0,
        };
        let missing = || DriverError::new(what(), Reason::Code(FUNCTION_NOT_FOUND));
        let symbol = self.symbol(name, &what)?.ok_or_else(missing)?;
        // SAFETY: NVML's header gives both functions this type, except for the last field of the struct.
        let function =
            unsafe { std::mem::transmute::<*mut c_void, LimitsFunction>(symbol.as_ptr()) };
        if set.is_some() {
            crate::effect::driver(name);
        }
        self.call(name, answers, &what, || {
            // SAFETY: the library and the device belong to the open session; the struct and its path live until the
            // end of the call.
            check(unsafe { function(raw(&device), &raw mut limits) })
        })?;
        Ok(MemoryLimits {
            soft: limits.soft,
            hard: limits.hard,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn struct_has_layout_of_header() {
        let ends = [
            offset_of!(CgroupLimits, soft),
            offset_of!(CgroupLimits, hard),
            offset_of!(CgroupLimits, used),
            size_of::<CgroupLimits>(),
        ];
        assert_eq!(ends, [8, 16, 24, 32]);
    }

    #[test]
    fn clients_of_either_moment_are_inside() {
        // 2 ended after the list of all, and 3 started before it.
        assert_eq!(outside(vec![1, 2, 3, 4], [&[1, 2], &[1, 3]]), [4]);
    }
}
