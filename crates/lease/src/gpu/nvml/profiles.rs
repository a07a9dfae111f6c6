//! The GPU instance profiles of a GPU.

use super::session::{Session, call, raw, text};
use crate::gpu::geometry::{Geometry, Offer};
use crate::gpu::{INVALID_ARGUMENT, NOT_SUPPORTED, Reason, Result};
use crate::model::{GpuUuid, Placement, Profile};
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings as sys;
use std::ffi::c_uint;

/// Profile enums end where the driver says INVALID_ARGUMENT; no driver has as many as this.
pub(super) const MAX_PROFILES: u32 = 64;
/// GPU instance profile information, version 2: size 152.
const GI_PROFILE_V2: u32 = 0x0200_0098;

type GiProfile = sys::nvmlGpuInstanceProfileInfo_v2_t;

impl Session<'_> {
    pub(super) fn read_geometry(&self, device: &Device<'_>, gpu: &GpuUuid) -> Result<Geometry> {
        let mut offers = Vec::new();
        for number in 0..MAX_PROFILES {
            match self.profile_info(device, gpu, number) {
                Ok(info) => {
                    let placements = self.placements(device, gpu, info.id)?;
                    let profile = profile(&info, placements);
                    offers.push(Offer { number, profile });
                }
                Err(e) if e.code() == Some(NOT_SUPPORTED) => {}
                Err(e) if e.code() == Some(INVALID_ARGUMENT) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(Geometry(offers))
    }

    /// Tells whether the GPU has the same profile as when it was read, by one call.
    pub(super) fn still_has(&self, device: &Device<'_>, gpu: &GpuUuid, offer: &Offer) -> bool {
        let now = self.profile_info(device, gpu, offer.number);
        let known = &offer.profile;
        now.is_ok_and(|info| profile(&info, known.placements.clone()) == *known)
    }

    fn profile_info(&self, device: &Device<'_>, gpu: &GpuUuid, number: u32) -> Result<GiProfile> {
        let what = || format!("read GPU instance profile {number} of GPU {gpu}");
        // SAFETY: a struct of integers and characters, for which zeros are a value.
        let mut info: GiProfile = unsafe { std::mem::zeroed() };
        info.version = GI_PROFILE_V2;
        call!(
            self,
            what,
            nvmlDeviceGetGpuInstanceProfileInfoV(raw(device), number, &mut info)
        )?;
        Ok(info)
    }

    fn placements(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
        profile: u32,
    ) -> Result<Vec<Placement>> {
        let what = || format!("read placements of profile {profile} on GPU {gpu}");
        let ask = |list: *mut sys::nvmlGpuInstancePlacement_t, count: &mut c_uint| {
            call!(
                self,
                what,
                nvmlDeviceGetGpuInstancePossiblePlacements_v2(raw(device), profile, list, count)
            )
        };
        let mut count: c_uint = 0;
        ask(std::ptr::null_mut(), &mut count)?;
        let none = sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 };
        let mut list = vec![none; self.bounded(&what, count)?];
        ask(list.as_mut_ptr(), &mut count)?;
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

/// Returns a profile as the driver describes it, with these placements.
fn profile(info: &GiProfile, placements: Vec<Placement>) -> Profile {
    Profile {
        name: text(&info.name).trim_start_matches("MIG ").to_owned(),
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
        placements,
    }
}
