//! The GPUs and their instances, as NVML tells them.

use super::session::{ANSWERS, Session, call, check, raw, supported, text};
use crate::gpu::{
    DriverError, FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, Label, MemoryLimits, NOT_SUPPORTED,
    Queries, Reason, Result,
};
use crate::model::{
    ComputeInstance, ComputeMode, GpuLoad, GpuProcess, GpuUuid, ListedInstance, MigMode, Nearness,
    Profile, Sign, Snapshot,
};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::ComputeMode as NvmlComputeMode;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper_sys::bindings as sys;
use std::ffi::{CStr, CString, NulError, c_char, c_uint, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
                Err(e) => snapshot.unreadable.push((index, format!("cannot {e}"))),
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
        let what = || {
            format!(
                "read the capacity for profile {profile} on GPU {}",
                self.called(gpu)
            )
        };
        call!(
            self,
            what,
            nvmlDeviceGetGpuInstanceRemainingCapacity(raw(&device), profile, &mut count)
        )?;
        Ok(count)
    }

    fn instances_of(&self, gpu: &GpuUuid, profile: u32) -> Result<Vec<ListedInstance>> {
        let device = self.device(gpu)?;
        let listed = self.list(&device, gpu, profile, |handle| self.describe(gpu, handle));
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
        let process = |p: &ProcessInfo| GpuProcess {
            pid: p.pid,
            used_bytes: match p.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        };
        let computing = self.ask("nvmlDeviceGetComputeRunningProcesses_v3", &what, || {
            device.running_compute_processes()
        })?;
        let is_computing = |p: &&ProcessInfo| computing.iter().any(|c| c.pid == p.pid);
        let drawing = self.ask("nvmlDeviceGetGraphicsRunningProcesses_v3", &what, || {
            match device.running_graphics_processes() {
                // A GPU without a graphics engine draws nothing.
                Err(NvmlError::NotSupported) => Ok(Vec::new()),
                drawing => drawing,
            }
        })?;
        let drawing = drawing.iter().filter(|p| !is_computing(p));
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
        let before = self.pids(device, gpu, List::Clients)?;
        let computing = self.pids(device, gpu, List::Computing)?;
        let after = self.pids(device, gpu, List::Clients)?;
        Ok(outside(computing, [&before, &after]))
    }

    fn signs(&self, gpu: &GpuUuid, fabric: bool) -> Result<Vec<Sign>> {
        self.read_signs(gpu, fabric)
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

    fn memory_limits(&self, gpu: &GpuUuid, cgroup: &Path) -> Result<MemoryLimits> {
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
        self.call("nvmlDeviceGetMemoryLimits_v1", ANSWERS, &what, || {
            // SAFETY: the library and the device belong to the open session; the struct and its path live until the
            // end of the call.
            check(unsafe { get(raw(&device), &raw mut limits) })
        })?;
        Ok(MemoryLimits {
            soft: limits.soft,
            hard: limits.hard,
        })
    }

    fn label(&self, gpu: &GpuUuid, profile: u32) -> Result<Label> {
        let device = self.device(gpu)?;
        let what = || format!("read the numbers of GPU {gpu}");
        Ok(Label {
            index: self.ask("nvmlDeviceGetIndex", &what, || device.index())?,
            minor: self.ask("nvmlDeviceGetMinorNumber", &what, || device.minor_number())?,
            profile: self.profile_name(&device, gpu, profile)?,
        })
    }

    fn mig_uuid(&self, gpu: &GpuUuid, gpu_instance: u32, compute_instance: u32) -> Result<String> {
        let what = || format!("find MIG device MIG-{gpu}/{gpu_instance}/{compute_instance}");
        let device = self.mig_device(gpu, gpu_instance, compute_instance)?;
        let mut uuid = [0 as c_char; 96];
        call!(
            self,
            what,
            nvmlDeviceGetUUID(raw(&device), uuid.as_mut_ptr(), uuid.len() as c_uint)
        )?;
        Ok(text(&uuid))
    }

    fn is_filled_by(&self, gpu: &GpuUuid, gpu_instance: u32, ci: &ComputeInstance) -> Result<bool> {
        let handle = self.existing_gpu_instance(gpu, gpu_instance)?;
        let full = self.filling_profiles(gpu, gpu_instance, handle)?;
        Ok(full.contains(&ci.profile_id))
    }

    fn used_memory(&self, gpu: &GpuUuid, mig: Option<(u32, u32)>) -> Result<u64> {
        let device = match mig {
            Some((gpu_instance, compute_instance)) => {
                self.mig_device(gpu, gpu_instance, compute_instance)?
            }
            None => self.device(gpu)?,
        };
        let what = || format!("read the memory in use on GPU {}", self.called(gpu));
        let memory = self.ask("nvmlDeviceGetMemoryInfo_v2", &what, || device.memory_info())?;
        Ok(memory.used)
    }

    fn processes(
        &self,
        gpu: &GpuUuid,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<Vec<u32>> {
        let device = self.mig_device(gpu, gpu_instance, compute_instance)?;
        let name = format!("MIG-{gpu}/{gpu_instance}/{compute_instance}");
        let what = || format!("list the processes on MIG device {name}");
        self.ask("nvmlDeviceGetComputeRunningProcesses_v3", &what, || {
            match device.running_compute_processes() {
                Ok(all) => Ok(all.into_iter().map(|p| p.pid).collect()),
                // The driver does not tell, but the holders of the capabilities are still seen.
                Err(NvmlError::NotSupported) => Ok(Vec::new()),
                Err(e) => Err(e),
            }
        })
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

/// Which list of the driver.
#[derive(Clone, Copy)]
enum List {
    /// MPS servers, MPS clients and plain CUDA processes.
    Computing,
    /// MPS clients alone.
    Clients,
}

impl Session<'_> {
    fn pids(&self, device: &Device<'_>, gpu: &GpuUuid, list: List) -> Result<Vec<u32>> {
        let what = || match list {
            List::Computing => format!("list the processes on GPU {}", self.called(gpu)),
            List::Clients => format!("list the MPS clients on GPU {}", self.called(gpu)),
        };
        let mut room = ROOM;
        for _ in 0..MAX_LISTINGS {
            // SAFETY: a struct of integers, for which zeros are a value.
            let empty: sys::nvmlProcessInfo_t = unsafe { std::mem::zeroed() };
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
            };
            match listed {
                Ok(()) => {
                    found.truncate(count as usize);
                    return Ok(found.iter().map(|p| p.pid).collect());
                }
                Err(e) if e.code() == Some(INSUFFICIENT_SIZE) && count < MOST => {
                    room = count.max(room).saturating_add(ROOM);
                }
                Err(e) => return Err(e),
            }
        }
        Err(self.wrong(&what, "more of them start all the time"))
    }
}

/// Returns the processes that are no clients in either list.
fn outside(computing: Vec<u32>, clients: [&[u32]; 2]) -> Vec<u32> {
    let is_client = |pid: &u32| clients.iter().any(|all| all.contains(pid));
    computing.into_iter().filter(|p| !is_client(p)).collect()
}

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

impl Session<'_> {
    /// Sets the limits of the cgroup in a directory, as drivers from release 615 on do. They end with the cgroup.
    pub(crate) fn set_memory_limits(
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
        self.call("nvmlDeviceSetMemoryLimits_v1", &[], &what, || {
            // SAFETY: as for the getter.
            check(unsafe { set(raw(&device), &raw mut limits) })
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
        let missing = || DriverError::new(what(), Reason::Code(FUNCTION_NOT_FOUND));
        let symbol = self.symbol(name.0, what)?.ok_or_else(missing)?;
        // SAFETY: F has the size of a pointer, and is the type that NVML's header gives the function of this name.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol.as_ptr()) })
    }
}

fn path(cgroup: &Path, what: &impl Fn() -> String) -> Result<CString> {
    let wrong = |e: NulError| DriverError::new(what(), Reason::Answer(e.to_string()));
    CString::new(cgroup.as_os_str().as_bytes()).map_err(wrong)
}

#[cfg(test)]
mod limits_tests {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_either_moment_are_inside() {
        // 2 ended after the list of all, and 3 started before it.
        assert_eq!(outside(vec![1, 2, 3, 4], [&[1, 2], &[1, 3]]), [4]);
    }
}
