//! The GPU instance profiles of a GPU.

use super::session::{Session, bounded, call, check, raw, text};
use crate::gpu::{DriverError, INVALID_ARGUMENT, NOT_SUPPORTED, Reason, Result};
use crate::model::{Placement, Profile};
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings as sys;
use std::ffi::c_uint;

/// Profile enums end where the driver says INVALID_ARGUMENT; no driver has as many as this.
pub(super) const MAX_PROFILES: u32 = 64;
/// GPU instance profile information, version 2: size 152.
const GI_PROFILE_V2: u32 = 0x0200_0098;

type GiProfile = sys::nvmlGpuInstanceProfileInfo_v2_t;

impl Session {
    pub(super) fn profiles(&self, device: &Device<'_>, gpu: &str) -> Result<Vec<Profile>> {
        let mut profiles = Vec::new();
        for info in self.profile_infos(device, gpu) {
            let info = info?;
            profiles.push(Profile {
                name: profile_name(&info),
                id: info.id,
                compute_slices: info.sliceCount,
                memory_mib: info.memorySizeMB,
                multiprocessors: info.multiprocessorCount,
                copy_engines: info.copyEngineCount,
                decoders: info.decoderCount,
                encoders: info.encoderCount,
                jpegs: info.jpegCount,
                ofas: info.ofaCount,
                p2p: info.isP2pSupported != 0,
                max_instances: info.instanceCount,
                placements: self.placements(device, gpu, info.id)?,
            });
        }
        Ok(profiles)
    }

    /// Returns the name of a profile, or its id if the GPU does not have it.
    pub(super) fn profile_name(&self, device: &Device<'_>, gpu: &str, id: u32) -> Result<String> {
        let is_it = |info: &Result<GiProfile>| info.as_ref().map_or(true, |info| info.id == id);
        match self.profile_infos(device, gpu).find(is_it) {
            Some(info) => Ok(profile_name(&info?)),
            None => Ok(id.to_string()),
        }
    }

    /// The GPU instance profiles of a GPU, one call to the driver each.
    fn profile_infos(
        &self,
        device: &Device<'_>,
        gpu: &str,
    ) -> impl Iterator<Item = Result<GiProfile>> {
        let read = move |number: u32| {
            let what = || format!("read GPU instance profile {number} of GPU {gpu}");
            // SAFETY: a struct of integers and characters, for which zeros are a value.
            let mut info: GiProfile = unsafe { std::mem::zeroed() };
            info.version = GI_PROFILE_V2;
            let answer = call!(
                self,
                what,
                nvmlDeviceGetGpuInstanceProfileInfoV(raw(device), number, &mut info)
            );
            answer.map(|()| info)
        };
        let code = |info: &Result<GiProfile>| info.as_ref().err().and_then(DriverError::code);
        (0..MAX_PROFILES)
            .map(read)
            .take_while(move |info| code(info) != Some(INVALID_ARGUMENT))
            .filter(move |info| code(info) != Some(NOT_SUPPORTED))
    }

    fn placements(&self, device: &Device<'_>, gpu: &str, profile: u32) -> Result<Vec<Placement>> {
        let what = || format!("read placements of profile {profile} on GPU {gpu}");
        let mut count: c_uint = 0;
        call!(
            self,
            what,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                raw(device),
                profile,
                std::ptr::null_mut(),
                &mut count
            )
        )?;
        let mut list =
            vec![sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 }; bounded(what, count)?];
        call!(
            self,
            what,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                raw(device),
                profile,
                list.as_mut_ptr(),
                &mut count
            )
        )?;
        list.truncate(count as usize);
        Ok(list
            .iter()
            .map(|p| Placement {
                start: p.start,
                size: p.size,
            })
            .collect())
    }
}

fn profile_name(info: &GiProfile) -> String {
    text(&info.name).trim_start_matches("MIG ").to_owned()
}
