//! The GPUs and their instances, as NVML tells them.

use super::session::failed;
use super::session::{Session, call, check, raw, text};
use crate::gpu::{DriverError, Label, MemoryLimits, NOT_SUPPORTED, Queries, Reason, Result};
use crate::model::{
    ComputeInstance, ComputeMode, GpuLoad, GpuProcess, GpuUuid, ListedInstance, MigMode, Profile,
    Snapshot,
};
use nvml_wrapper::enum_wrappers::device::ComputeMode as NvmlComputeMode;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use std::ffi::{c_char, c_uint};
use std::path::Path;

impl Queries for Session {
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
        let is_off = |e: &DriverError| {
            e.code() == Some(NOT_SUPPORTED) && device.mig_mode().is_ok_and(|mode| mode.current == 0)
        };
        match listed {
            Err(e) if is_off(&e) => Ok(Vec::new()),
            listed => listed,
        }
    }

    fn load(&self, gpu: &GpuUuid) -> Result<GpuLoad> {
        let device = self.device(gpu)?;
        let read = || -> std::result::Result<GpuLoad, NvmlError> {
            let memory = device.memory_info()?;
            let process = |p: &ProcessInfo| GpuProcess {
                pid: p.pid,
                used_bytes: match p.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(bytes),
                    UsedGpuMemory::Unavailable => None,
                },
            };
            let computing = device.running_compute_processes()?;
            let is_computing = |p: &&ProcessInfo| computing.iter().any(|c| c.pid == p.pid);
            let drawing = match device.running_graphics_processes() {
                // A GPU without a graphics engine draws nothing.
                Err(NvmlError::NotSupported) => Vec::new(),
                drawing => drawing?,
            };
            let drawing = drawing.iter().filter(|p| !is_computing(p));
            Ok(GpuLoad {
                compute_mode: match device.compute_mode()? {
                    NvmlComputeMode::Default => ComputeMode::Default,
                    NvmlComputeMode::ExclusiveProcess | NvmlComputeMode::ExclusiveThread => {
                        ComputeMode::ExclusiveProcess
                    }
                    NvmlComputeMode::Prohibited => ComputeMode::Prohibited,
                },
                processes: computing.iter().map(process).collect(),
                graphics: drawing.map(process).collect(),
                memory_mib: memory.total.saturating_sub(memory.reserved) >> 20,
            })
        };
        read().map_err(|e| failed(format!("read the use of GPU {}", self.called(gpu)), e))
    }

    fn outside_mps(&self, gpu: &GpuUuid) -> Result<Vec<u32>> {
        self.computing_outside_mps(&self.device(gpu)?, gpu)
    }

    fn compute_capability(&self, gpu: &GpuUuid) -> Result<(u32, u32)> {
        let device = self.device(gpu)?;
        let what = || format!("read the compute capability of GPU {}", self.called(gpu));
        let found = device.cuda_compute_capability();
        let found = found.map_err(|e| failed(what(), e))?;
        let number = |number: i32| u32::try_from(number).unwrap_or_default();
        Ok((number(found.major), number(found.minor)))
    }

    fn memory_limits(&self, gpu: &GpuUuid, cgroup: &Path) -> Result<MemoryLimits> {
        self.read_memory_limits(gpu, cgroup)
    }

    fn label(&self, gpu: &GpuUuid, profile: u32) -> Result<Label> {
        let device = self.device(gpu)?;
        let failed = |e| failed(format!("read the numbers of GPU {gpu}"), e);
        Ok(Label {
            index: device.index().map_err(failed)?,
            minor: device.minor_number().map_err(failed)?,
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
        let device = self.device(gpu)?;
        let handle = self.existing_gpu_instance(&device, gpu, gpu_instance)?;
        let full = self.filling_profile(gpu, gpu_instance, handle)?;
        Ok(full == Some(ci.profile_id))
    }

    fn used_memory(&self, gpu: &GpuUuid, mig: Option<(u32, u32)>) -> Result<u64> {
        let device = match mig {
            Some((gpu_instance, compute_instance)) => {
                self.mig_device(gpu, gpu_instance, compute_instance)?
            }
            None => self.device(gpu)?,
        };
        let what = || format!("read the memory in use on GPU {}", self.called(gpu));
        let memory = device.memory_info().map_err(|e| failed(what(), e))?;
        Ok(memory.used)
    }

    fn processes(
        &self,
        gpu: &GpuUuid,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<Vec<u32>> {
        let device = self.mig_device(gpu, gpu_instance, compute_instance)?;
        match device.running_compute_processes() {
            Ok(all) => Ok(all.into_iter().map(|p| p.pid).collect()),
            // The driver does not tell, but the holders of the capabilities are still seen.
            Err(NvmlError::NotSupported) => Ok(Vec::new()),
            Err(e) => Err(failed(
                format!(
                    "list the processes on MIG device MIG-{gpu}/{gpu_instance}/{compute_instance}"
                ),
                e,
            )),
        }
    }
}
