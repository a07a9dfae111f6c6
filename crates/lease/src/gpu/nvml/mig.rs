//! Instances, created and destroyed, and the MIG mode.

use super::session::{Gi, Session, call, change, check, gone, raw};
use crate::gpu::{
    INSUFFICIENT_RESOURCES, INVALID_ARGUMENT, Mig, ModeChange, NOT_SUPPORTED, RESET_REQUIRED,
    Reason, Result,
};
use crate::model::{GpuUuid, Placement, Profile};
use nvml_wrapper_sys::bindings as sys;

impl Mig for Session<'_> {
    fn set_mig_mode(&self, gpu: &GpuUuid, on: bool) -> Result<ModeChange> {
        let word = if on { "enable" } else { "disable" };
        let what = || self.on(gpu, format!("{word} MIG"));
        let device = self.device(gpu)?;
        let (wanted, mut status) = (u32::from(on), 0);
        change!(
            self,
            what,
            nvmlDeviceSetMigMode(raw(&device), wanted, &mut status)
        )?;
        // Some drivers say so of what is busy, and others by the code of the call.
        if status != RESET_REQUIRED {
            check(status).map_err(|reason| self.failure(&what, reason))?;
        }
        // The driver may also leave the mode as it was.
        let mode = self.ask("nvmlDeviceGetMigMode", &what, || device.mig_mode())?;
        match (mode.current == wanted, mode.pending == wanted) {
            (true, _) => Ok(ModeChange::Done),
            (_, true) => Ok(ModeChange::AfterReset),
            _ => Err(self.wrong(&what, "the driver says success, and keeps the mode")),
        }
    }

    fn create_gpu_instance(&self, gpu: &GpuUuid, profile: &Profile, at: Placement) -> Result<u32> {
        let device = self.device(gpu)?;
        let what = || self.on(gpu, format!("create GPU instance {} at {at}", profile.name));
        let place = sys::nvmlGpuInstancePlacement_t {
            start: at.start,
            size: at.size,
        };
        let mut handle = std::ptr::null_mut();
        change!(
            self,
            what,
            nvmlDeviceCreateGpuInstanceWithPlacement(raw(&device), profile.id, &place, &mut handle)
        )?;
        // SAFETY: a struct of integers and pointers, for which zeros are a value.
        let mut info: sys::nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
        if let Err(e) = call!(self, &[], what, nvmlGpuInstanceGetInfo(handle, &mut info)) {
            // It is there, and its id is not known: the release of its lease finds it by its place.
            return Err(e.about_what_was_made());
        }
        Ok(info.id)
    }

    fn create_compute_instance(&self, gpu: &GpuUuid, gpu_instance: u32) -> Result<u32> {
        let operation = || format!("create the compute instance of GPU instance {gpu_instance}");
        let what = || self.on(gpu, operation());
        let gi = self.existing_gpu_instance(gpu, gpu_instance)?;
        let full = self.filling_profiles(&gi)?;
        let none = format!(
            "no compute instance profile fills it: the driver does not support one \
             (NVML {NOT_SUPPORTED}), or ended their list (NVML {INVALID_ARGUMENT})"
        );
        self.create_in(&gi, &full, &what, &none)
    }

    fn create_part(&self, gpu: &GpuUuid, gpu_instance: u32, slices: u32) -> Result<u32> {
        let part = format!("a compute instance of {slices} slices in GPU instance {gpu_instance}");
        let what = || self.on(gpu, format!("create {part}"));
        let gi = self.existing_gpu_instance(gpu, gpu_instance)?;
        let profiles = self.compute_profiles(&gi)?;
        let found = { profiles.iter() }.filter(|profile| profile.sliceCount == slices);
        let found: Vec<u32> = found.map(|profile| profile.id).collect();
        self.create_in(&gi, &found, &what, "it has no profile of that size")
    }

    fn destroy_compute_instance(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<()> {
        let instance = format!("compute instance {ci} of GPU instance {gi}");
        let what = || self.on(gpu, format!("destroy {instance}"));
        let Some(gi) = self.gpu_instance(gpu, gi)? else {
            return Ok(());
        };
        let mut handle = std::ptr::null_mut();
        let found = call!(
            self,
            what,
            nvmlGpuInstanceGetComputeInstanceById(gi.handle, ci, &mut handle)
        );
        if gone(found)?.is_none() {
            return Ok(());
        }
        gone(change!(self, what, nvmlComputeInstanceDestroy(handle))).map(drop)
    }

    fn destroy_gpu_instance(&self, gpu: &GpuUuid, gi: u32) -> Result<()> {
        let what = || self.on(gpu, format!("destroy GPU instance {gi}"));
        let Some(gi) = self.gpu_instance(gpu, gi)? else {
            return Ok(());
        };
        gone(change!(self, what, nvmlGpuInstanceDestroy(gi.handle))).map(drop)
    }
}

/// The codes by which a driver refuses a profile, and has made nothing.
const REFUSALS: [u32; 3] = [INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_RESOURCES];

impl Session<'_> {
    /// Creates a compute instance of the first of these profiles of one size that the driver does not refuse: a newer
    /// driver lists some that an older GPU cannot have. `none` says why without a profile.
    fn create_in(
        &self,
        gi: &Gi<'_>,
        profiles: &[u32],
        what: &impl Fn() -> String,
        none: &str,
    ) -> Result<u32> {
        let mut ci = std::ptr::null_mut();
        let mut refused = None;
        for profile in profiles {
            let made = change!(
                self,
                what,
                nvmlGpuInstanceCreateComputeInstance(gi.handle, *profile, &mut ci)
            );
            match made {
                Ok(()) => return self.id_of(ci, what),
                Err(e) if REFUSALS.map(Some).contains(&e.code()) => refused = refused.or(Some(e)),
                Err(e) => return Err(e),
            }
        }
        Err(refused.unwrap_or_else(|| self.wrong(what, none)))
    }

    fn id_of(&self, ci: sys::nvmlComputeInstance_t, what: &impl Fn() -> String) -> Result<u32> {
        // SAFETY: a struct of integers and pointers, for which zeros are a value.
        let mut info: sys::nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
        call!(
            self,
            &[],
            what,
            nvmlComputeInstanceGetInfo_v2(ci, &mut info)
        )?;
        Ok(info.id)
    }
}
