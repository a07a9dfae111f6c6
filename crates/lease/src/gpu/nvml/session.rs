//! A session with the library, and what is read and checked through it.

use super::gpus::Known;
use super::profiles::MAX_PROFILES;
use crate::gpu::geometry::Cache;
use crate::gpu::{
    DetailedCompute, DriverError, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, Reason, Result,
};
use crate::model::{ComputeInstance, GpuInstance, GpuUuid, ListedInstance, Placement, Profile};
use crate::trust;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;
use std::cell::{OnceCell, RefCell};
use std::ffi::{CStr, CString, c_char, c_uint};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A compute instance profile with its number in NVML's enumeration.
pub(super) type ComputeProfile = (u32, sys::nvmlComputeInstanceProfileInfo_t);

/// More than any GPU holds (14 units of the smallest size); a count beyond is a broken driver.
pub(super) const MAX_INSTANCES: u32 = 256;

/// How often instances of one profile may go while they are listed.
const MAX_LISTINGS: usize = 8;

/// A session with the driver. The first call opens it, so an unused session costs nothing. Keep it short: a
/// long session sees stale handles and can itself hold an instance.
pub struct Session {
    pub(super) library: PathBuf,
    opened: OnceCell<Nvml>,
    pub(super) cache: Option<Cache>,
    pub(super) known: RefCell<Known>,
}

impl Session {
    /// `library` is a soname or an absolute path.
    pub fn new(library: &Path, cache: Option<Cache>) -> Session {
        Session {
            library: library.to_owned(),
            opened: OnceCell::new(),
            cache,
            known: RefCell::default(),
        }
    }

    /// Ends the session with the driver and forgets what it said; the next call opens another. For those
    /// who are about to wait.
    pub fn close(&mut self) {
        self.known.take();
        self.opened.take();
    }

    pub(super) fn nvml(&self) -> Result<&Nvml> {
        if let Some(nvml) = self.opened.get() {
            return Ok(nvml);
        }
        note("nvmlInit_v2");
        let library = &self.library;
        let what = || format!("open the NVIDIA driver library {}", library.display());
        // The loader finds a soname in root's folders. A missing file is told in its words.
        if library.is_absolute() && library.symlink_metadata().is_ok() {
            trust::library(library).map_err(|e| DriverError {
                what: what(),
                reason: Reason::Answer(e.line()),
            })?;
        }
        let nvml = Nvml::builder()
            .lib_path(library.as_os_str())
            .init()
            .map_err(|e| failed(what(), e))?;
        Ok(self.opened.get_or_init(|| nvml))
    }
}

/// Hears the name of a function of the library before it is called.
static HEARD: OnceLock<fn(&'static str)> = OnceLock::new();

/// Has each call of a function of NVML told before it begins, to the first listener alone.
pub fn hear_calls(listener: fn(&'static str)) {
    let _ = HEARD.set(listener);
}

/// Says that a call of this function comes next.
pub(super) fn note(function: &'static str) {
    if let Some(heard) = HEARD.get() {
        heard(function);
    }
}

/// Calls a symbol that an older library may lack. Its arguments are evaluated in the unsafe block.
macro_rules! call {
    ($self:expr, $what:expr, $name:ident ( $($arg:expr),* )) => {{
        let symbol = $self.nvml()?.lib().$name.as_ref().map_err(|_| DriverError {
            what: $what(),
            reason: Reason::Library(concat!("the driver lacks ", stringify!($name)).to_owned()),
        })?;
        $crate::gpu::nvml::session::note(stringify!($name));
        // SAFETY: the symbol comes from the library that the session keeps open, its signature is
        // NVML's; handles were given out by this session; pointers are to live locals of the sizes
        // that NVML's header names.
        check(&$what, unsafe { symbol($($arg),*) })
    }};
}

/// The same, of a symbol that changes what the driver has.
macro_rules! change {
    ($self:expr, $what:expr, $name:ident ( $($arg:expr),* )) => {{
        crate::effect::driver(stringify!($name));
        $crate::gpu::nvml::session::call!($self, $what, $name($($arg),*))
    }};
}

pub(super) use {call, change};

impl Session {
    /// A GPU as operators know it: `2 (GPU-5c89…)`. For what fails seldom: it asks the driver, which
    /// may fail as well.
    pub(super) fn called(&self, uuid: &GpuUuid) -> String {
        let index = self.device(uuid).ok().and_then(|d| d.index().ok());
        index.map_or_else(|| uuid.to_string(), |index| format!("{index} ({uuid})"))
    }

    pub(super) fn device(&self, uuid: &GpuUuid) -> Result<Device<'_>> {
        let nvml = self.nvml()?;
        note("nvmlDeviceGetHandleByUUID");
        nvml.device_by_uuid(uuid.as_str())
            .map_err(|e| failed(format!("find GPU {uuid}"), e))
    }

    /// Asked for by name. The device that a compute instance's information holds is the parent, and
    /// a walk over all MIG devices was seen to take seconds.
    pub(super) fn mig_device(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<Device<'_>> {
        let name = format!("MIG-{gpu}/{gi}/{ci}");
        let nvml = self.nvml()?;
        note("nvmlDeviceGetHandleByUUID");
        nvml.device_by_uuid(name.as_str())
            .map_err(|e| failed(format!("find MIG device {name}"), e))
    }

    pub(super) fn gpu_instance(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
        id: u32,
    ) -> Result<Option<sys::nvmlGpuInstance_t>> {
        let what = || format!("find GPU instance {id} on GPU {gpu}");
        let mut handle = std::ptr::null_mut();
        let found = call!(
            self,
            what,
            nvmlDeviceGetGpuInstanceById(raw(device), id, &mut handle)
        );
        match gone(found)? {
            Some(()) => Ok(Some(handle)),
            None => Ok(None),
        }
    }

    /// A GPU instance that must be there.
    pub(super) fn existing_gpu_instance(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
        id: u32,
    ) -> Result<sys::nvmlGpuInstance_t> {
        self.gpu_instance(device, gpu, id)?
            .ok_or_else(|| DriverError {
                what: format!("find GPU instance {id} on GPU {gpu}"),
                reason: Reason::Code(NOT_FOUND),
            })
    }

    /// Returns the places of all instances of these profiles.
    pub(super) fn places(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
        profiles: &[Profile],
    ) -> Result<Vec<GpuInstance>> {
        let mut found = Vec::new();
        for profile in profiles {
            found.extend(self.list(device, gpu, profile.id, |h| self.place(gpu, h))?);
        }
        found.sort_by_key(|i: &GpuInstance| i.placement);
        Ok(found)
    }

    /// Lists the instances of one profile, each as `read` sees it. Callers take an instance that is not
    /// listed for gone, so this lists again when one goes meanwhile, and any doubt is an error.
    pub(super) fn list<T>(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
        profile: u32,
        read: impl Fn(sys::nvmlGpuInstance_t) -> Result<Option<T>>,
    ) -> Result<Vec<T>> {
        let what = || {
            format!(
                "list GPU instances of profile {profile} on GPU {}",
                self.called(gpu)
            )
        };
        for _ in 0..MAX_LISTINGS {
            // The driver writes as many as the profile allows, whatever count comes in.
            let mut handles = vec![std::ptr::null_mut(); MAX_INSTANCES as usize];
            let mut count = MAX_INSTANCES;
            call!(
                self,
                what,
                nvmlDeviceGetGpuInstances(raw(device), profile, handles.as_mut_ptr(), &mut count)
            )?;
            handles.truncate(bounded(what, count)?);
            let found: Vec<Option<T>> = handles.into_iter().map(&read).collect::<Result<_>>()?;
            if let Some(found) = found.into_iter().collect() {
                return Ok(found);
            }
        }
        Err(DriverError {
            what: what(),
            reason: Reason::Answer(format!("they keep going away (NVML {NOT_FOUND})")),
        })
    }

    /// Returns an instance with its contents; none when it went meanwhile.
    pub(super) fn describe(
        &self,
        gpu: &GpuUuid,
        handle: sys::nvmlGpuInstance_t,
    ) -> Result<Option<ListedInstance>> {
        let Some(place) = self.place(gpu, handle)? else {
            return Ok(None);
        };
        Ok(Some(ListedInstance {
            id: place.id,
            profile_id: place.profile_id,
            placement: place.placement,
            compute_instances: self.compute_instances(gpu, place.id, handle)?,
        }))
    }

    /// Returns an instance by its place; none when it went meanwhile.
    pub(super) fn place(
        &self,
        gpu: &GpuUuid,
        handle: sys::nvmlGpuInstance_t,
    ) -> Result<Option<GpuInstance>> {
        let what = || format!("read a GPU instance of GPU {gpu}");
        // SAFETY: a struct of integers and pointers, for which zeros are a value.
        let mut info: sys::nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
        if gone(call!(self, what, nvmlGpuInstanceGetInfo(handle, &mut info)))?.is_none() {
            return Ok(None);
        }
        Ok(Some(GpuInstance {
            id: info.id,
            profile_id: info.profileId,
            placement: Placement {
                start: info.placement.start,
                size: info.placement.size,
            },
        }))
    }

    fn compute_instances(
        &self,
        gpu: &GpuUuid,
        id: u32,
        handle: sys::nvmlGpuInstance_t,
    ) -> Result<Vec<ComputeInstance>> {
        let profiles = self.numbered_compute_profiles(gpu, id, handle)?;
        let listed = self.numbered_compute_instances(gpu, id, handle, &profiles)?;
        let mut found: Vec<ComputeInstance> =
            listed.into_iter().map(|found| found.instance).collect();
        found.sort_by_key(|c| c.id);
        Ok(found)
    }

    /// Returns the compute instances in the driver's order, profile after profile.
    pub(super) fn numbered_compute_instances(
        &self,
        gpu: &GpuUuid,
        id: u32,
        handle: sys::nvmlGpuInstance_t,
        profiles: &[ComputeProfile],
    ) -> Result<Vec<DetailedCompute>> {
        let mut found = Vec::new();
        for (_, profile) in profiles {
            let what = || format!("list compute instances of GPU instance {id} on GPU {gpu}");
            let mut count = profile.instanceCount;
            let mut handles = vec![std::ptr::null_mut(); bounded(what, count)?];
            let listed = call!(
                self,
                what,
                nvmlGpuInstanceGetComputeInstances(
                    handle,
                    profile.id,
                    handles.as_mut_ptr(),
                    &mut count
                )
            );
            if gone(listed)?.is_none() {
                continue;
            }
            for ci in handles.into_iter().take(count as usize) {
                // SAFETY: a struct of integers and pointers, for which zeros are a value.
                let mut info: sys::nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
                let read = call!(self, what, nvmlComputeInstanceGetInfo_v2(ci, &mut info));
                let is_listed = |c: &DetailedCompute| c.instance.id == info.id;
                if gone(read)?.is_some() && !found.iter().any(is_listed) {
                    found.push(DetailedCompute {
                        slices: profile.sliceCount,
                        instance: ComputeInstance {
                            id: info.id,
                            profile_id: info.profileId,
                        },
                    });
                }
            }
        }
        Ok(found)
    }

    /// The compute instance profiles of a GPU instance.
    pub(super) fn compute_profiles(
        &self,
        gpu: &GpuUuid,
        id: u32,
        handle: sys::nvmlGpuInstance_t,
    ) -> Result<Vec<sys::nvmlComputeInstanceProfileInfo_t>> {
        let numbered = self.numbered_compute_profiles(gpu, id, handle)?;
        Ok(numbered.into_iter().map(|(_, info)| info).collect())
    }

    /// The same, each with its number in NVML's enumeration.
    pub(super) fn numbered_compute_profiles(
        &self,
        gpu: &GpuUuid,
        id: u32,
        handle: sys::nvmlGpuInstance_t,
    ) -> Result<Vec<ComputeProfile>> {
        let mut profiles = Vec::new();
        for number in 0..MAX_PROFILES {
            let what = || {
                format!("read compute instance profile {number} of GPU instance {id} on GPU {gpu}")
            };
            // SAFETY: a struct of integers, for which zeros are a value.
            let mut info: sys::nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
            let answer = call!(
                self,
                what,
                nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, number, 0, &mut info)
            );
            match answer {
                Ok(()) => profiles.push((number, info)),
                Err(e) if e.code() == Some(NOT_SUPPORTED) => {}
                Err(e) if e.code() == Some(INVALID_ARGUMENT) => break,
                // The instance has gone.
                Err(e) if e.code() == Some(NOT_FOUND) => return Ok(Vec::new()),
                Err(e) => return Err(e),
            }
        }
        Ok(profiles)
    }

    /// The profile of the compute instance that leaves room for no second: of those, two may have the
    /// same slices and differ in multiprocessors (1g.20gb on H100).
    pub(super) fn filling_profile(
        &self,
        gpu: &GpuUuid,
        id: u32,
        handle: sys::nvmlGpuInstance_t,
    ) -> Result<Option<u32>> {
        let profiles = self.compute_profiles(gpu, id, handle)?;
        let alone = profiles.iter().filter(|p| p.instanceCount == 1);
        let full = alone.max_by_key(|p| (p.sliceCount, p.multiprocessorCount));
        Ok(full.map(|p| p.id))
    }
}

pub(super) fn raw(device: &Device<'_>) -> sys::nvmlDevice_t {
    // SAFETY: the handle stays within this module, in the session that gave it out.
    unsafe { device.handle() }
}

/// Gone, or MIG off: both mean deleted.
pub(super) fn gone<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.code(), Some(NOT_FOUND | NOT_SUPPORTED)) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(super) fn check(what: &impl Fn() -> String, code: sys::nvmlReturn_t) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(DriverError {
        what: what(),
        reason: Reason::Code(code),
    })
}

pub(super) fn bounded(what: impl Fn() -> String, count: c_uint) -> Result<usize> {
    if count <= MAX_INSTANCES {
        return Ok(count as usize);
    }
    Err(DriverError {
        what: what(),
        reason: Reason::Answer(format!("the driver speaks of {count} of them")),
    })
}

pub(super) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(CString::from)
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// nvml-wrapper's errors back into NVML's codes: its enum lacks some (23 arrives as an unexpected
/// variant).
#[allow(deprecated)] // a code that NVML may still give
pub(super) fn failed(what: String, e: NvmlError) -> DriverError {
    use NvmlError as E;
    let code = match &e {
        E::Uninitialized => 1,
        E::InvalidArg => 2,
        E::NotSupported => 3,
        E::NoPermission => 4,
        E::AlreadyInitialized => 5,
        E::NotFound => 6,
        E::InsufficientSize(_) => 7,
        E::InsufficientPower => 8,
        E::DriverNotLoaded => 9,
        E::Timeout => 10,
        E::IrqIssue => 11,
        E::LibraryNotFound => 12,
        E::FunctionNotFound => 13,
        E::CorruptedInfoROM => 14,
        E::GpuLost => 15,
        E::ResetRequired => 16,
        E::OperatingSystem => 17,
        E::LibRmVersionMismatch => 18,
        E::InUse => 19,
        E::InsufficientMemory => 20,
        E::NoData => 21,
        E::VgpuEccNotSupported => 22,
        E::UnexpectedVariant(code) => *code,
        E::Unknown => 999,
        other => {
            // The loader's own words say it all.
            let why = match other {
                E::LibloadingError(e) => e.to_string(),
                other => other.to_string(),
            };
            return DriverError {
                what,
                reason: Reason::Library(why),
            };
        }
    };
    DriverError {
        what,
        reason: Reason::Code(code),
    }
}
