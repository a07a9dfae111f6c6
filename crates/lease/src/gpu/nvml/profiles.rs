//! The GPU instance profiles of a GPU.

use super::session::{Session, call, raw, text};
use crate::gpu::geometry::{Geometry, Offer};
use crate::gpu::{DriverError, INVALID_ARGUMENT, NOT_SUPPORTED, Reason, Result};
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
        for info in self.profile_infos(device, gpu) {
            let (number, info) = info?;
            offers.push(Offer {
                number,
                profile: Profile {
                    placements: self.placements(device, gpu, info.id)?,
                    ..profile(&info)
                },
            });
        }
        Ok(Geometry(offers))
    }

    /// Tells whether the GPU has the same profile as when it was read, by one call.
    pub(super) fn still_has(&self, device: &Device<'_>, gpu: &GpuUuid, offer: &Offer) -> bool {
        let now = self.profile_info(device, gpu, offer.number);
        now.is_ok_and(|info| {
            let now = Profile {
                placements: offer.profile.placements.clone(),
                ..profile(&info)
            };
            now == offer.profile
        })
    }

    /// Returns the name of a profile, or its id if the GPU does not have it.
    pub(super) fn profile_name(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
        id: u32,
    ) -> Result<String> {
        let is_it = |info: &Result<(u32, GiProfile)>| {
            let info = info.as_ref();
            info.map_or(true, |(_, info)| info.id == id)
        };
        match self.profile_infos(device, gpu).find(is_it) {
            Some(info) => Ok(profile_name(&info?.1)),
            None => Ok(id.to_string()),
        }
    }

    /// The GPU instance profiles of a GPU with their numbers, one call to the driver each.
    fn profile_infos(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
    ) -> impl Iterator<Item = Result<(u32, GiProfile)>> {
        let read = move |number| {
            let info = self.profile_info(device, gpu, number)?;
            Ok((number, info))
        };
        let code = |info: &Result<_>| info.as_ref().err().and_then(DriverError::code);
        (0..MAX_PROFILES)
            .map(read)
            .take_while(move |info| code(info) != Some(INVALID_ARGUMENT))
            .filter(move |info| code(info) != Some(NOT_SUPPORTED))
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

/// Returns a profile as the driver describes it, without its placements.
fn profile(info: &GiProfile) -> Profile {
    Profile {
        name: profile_name(info),
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
        placements: Vec::new(),
    }
}

fn profile_name(info: &GiProfile) -> String {
    text(&info.name).trim_start_matches("MIG ").to_owned()
}
