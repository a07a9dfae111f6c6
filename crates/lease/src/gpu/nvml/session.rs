//! A session with the library, and what is read and checked through it.

use super::gpus::{Identity, Known};
use super::profiles::MAX_PROFILES;
use crate::gpu::geometry::Cache;
use crate::gpu::{
    DriverError, FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED,
    Reason, Result,
};
use crate::model::{ComputeInstance, GpuInstance, GpuUuid, ListedInstance, Placement};
use crate::trust;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;
use std::cell::{OnceCell, RefCell};
use std::ffi::{CStr, c_char, c_uint};
use std::fmt::Display;
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(super) type ComputeProfile = sys::nvmlComputeInstanceProfileInfo_t;

/// More than any GPU holds (14 units of the smallest size); a count beyond is a broken driver.
pub(super) const MAX_INSTANCES: u32 = 256;

/// How often instances of one profile may go while they are listed.
const MAX_LISTINGS: usize = 8;

/// The codes that answer a question: as failures, each look at a GPU would count them.
pub(super) const ANSWERS: &[u32] = &[
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    NOT_FOUND,
    INSUFFICIENT_SIZE,
    FUNCTION_NOT_FOUND,
];

/// Hears each call of a function of NVML.
pub trait Listener {
    /// Hears the name of a function before it is called.
    fn calls(&self, _function: &'static str) {}

    /// Hears that the call has returned after this time.
    fn returned(&self, _time: Duration) {}

    /// Hears of a failure. A code that only answers a question is not one.
    fn failed(&self, _reason: &Reason) {}
}

/// A GPU instance by its handle.
pub(super) struct Gi<'g> {
    pub(super) gpu: &'g GpuUuid,
    pub(super) id: u32,
    pub(super) handle: sys::nvmlGpuInstance_t,
}

/// A session with the driver. The first call opens it, so an unused session costs nothing. Keep it short: a
/// long session sees stale handles and can itself hold an instance.
pub struct Session<'a> {
    pub(super) library: PathBuf,
    listener: Option<&'a dyn Listener>,
    opened: OnceCell<Nvml>,
    pub(super) cache: Option<Cache>,
    pub(super) known: RefCell<Known>,
}

impl<'a> Session<'a> {
    /// `library` is a soname or an absolute path.
    pub fn new(library: &Path, cache: Option<Cache>) -> Self {
        Session {
            library: library.to_owned(),
            listener: None,
            opened: OnceCell::new(),
            cache,
            known: RefCell::default(),
        }
    }

    /// Sets the listener.
    pub fn heard_by(self, listener: &'a dyn Listener) -> Self {
        Session {
            listener: Some(listener),
            ..self
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
        let library = &self.library;
        let what = || format!("open the NVIDIA driver library {}", library.display());
        // The loader finds a soname in root's folders. A missing file is told in its words.
        if library.is_absolute() && library.symlink_metadata().is_ok() {
            trust::library(library).map_err(|e| self.wrong(&what, e.line()))?;
        }
        let open = || Nvml::builder().lib_path(library.as_os_str()).init();
        let nvml = self.call("nvmlInit_v2", &[], &what, open)?;
        Ok(self.opened.get_or_init(|| nvml))
    }
}

/// Calls a symbol that an older library may lack. Its arguments are evaluated in the unsafe block.
macro_rules! call {
    ($self:expr, $what:expr, $name:ident ( $($arg:expr),* )) => {
        $crate::gpu::nvml::session::call!(
            $self, $crate::gpu::nvml::session::ANSWERS, $what, $name($($arg),*)
        )
    };
    ($self:expr, $answers:expr, $what:expr, $name:ident ( $($arg:expr),* )) => {{
        let lacks = concat!("the driver lacks ", stringify!($name));
        let symbol = $self.nvml()?.lib().$name.as_ref();
        let symbol = symbol.map_err(|_| $self.failure(&$what, Reason::Library(lacks.to_owned())))?;
        $self.call(stringify!($name), $answers, &$what, || {
            // SAFETY: the symbol comes from the library that the session keeps open, its signature is
            // NVML's; handles were given out by this session; pointers are to live locals of the sizes
            // that NVML's header names.
            $crate::gpu::nvml::session::check(unsafe { symbol($($arg),*) })
        })
    }};
}

/// The same for a function that changes something. Every code other than success is a failure of it.
macro_rules! change {
    ($self:expr, $what:expr, $name:ident ( $($arg:expr),* )) => {{
        crate::effect::driver(stringify!($name));
        $crate::gpu::nvml::session::call!($self, &[], $what, $name($($arg),*))
    }};
}

pub(super) use {call, change};

impl Session<'_> {
    /// Calls a function of the driver, and tells the listener.
    pub(super) fn call<T, E: Into<Reason>>(
        &self,
        function: &'static str,
        answers: &[u32],
        what: &impl Fn() -> String,
        call: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<T> {
        self.hear(|listener| listener.calls(function));
        let begun = Instant::now();
        let answer = call();
        self.hear(|listener| listener.returned(begun.elapsed()));
        answer.map_err(|e| match e.into() {
            Reason::Code(code) if answers.contains(&code) => {
                DriverError::new(what(), Reason::Code(code))
            }
            reason => self.failure(what, reason),
        })
    }

    /// Asks nvml-wrapper.
    pub(super) fn ask<T>(
        &self,
        function: &'static str,
        what: &impl Fn() -> String,
        call: impl FnOnce() -> std::result::Result<T, NvmlError>,
    ) -> Result<T> {
        self.call(function, ANSWERS, what, call)
    }

    /// Returns a failure of the driver, of which the listener hears.
    pub(super) fn failure(&self, what: &impl Fn() -> String, reason: Reason) -> DriverError {
        self.hear(|listener| listener.failed(&reason));
        DriverError::new(what(), reason)
    }

    /// The same, of an unusable answer.
    pub(super) fn wrong(
        &self,
        what: &impl Fn() -> String,
        answer: impl Into<String>,
    ) -> DriverError {
        self.failure(what, Reason::Answer(answer.into()))
    }

    fn hear(&self, tell: impl FnOnce(&dyn Listener)) {
        if let Some(listener) = self.listener {
            tell(listener);
        }
    }

    /// A GPU as operators know it: `2 (GPU-5c89…)`. For the words of a failure, so a failure of its own is not told.
    pub(super) fn called(&self, uuid: &GpuUuid) -> String {
        let device = self.opened.get().and_then(|nvml| {
            self.hear(|listener| listener.calls("nvmlDeviceGetHandleByUUID"));
            nvml.device_by_uuid(uuid.as_str()).ok()
        });
        let index = device.and_then(|device| device.index().ok());
        index.map_or_else(|| uuid.to_string(), |index| format!("{index} ({uuid})"))
    }

    /// Names an operation on a GPU, for the words of a failure.
    pub(super) fn on(&self, uuid: &GpuUuid, operation: impl Display) -> String {
        format!("{operation} on GPU {}", self.called(uuid))
    }

    /// Returns the device of a GPU. The driver is asked only for one that no snapshot has shown.
    pub(super) fn device(&self, uuid: &GpuUuid) -> Result<Device<'_>> {
        let is_it = |gpu: &&Rc<Identity>| gpu.uuid == *uuid;
        let known = self.known.borrow().gpus.values().find(is_it).cloned();
        if let Some(identity) = known {
            return self.device_of(&identity);
        }
        let (nvml, what) = (self.nvml()?, || format!("find GPU {uuid}"));
        self.call("nvmlDeviceGetHandleByUUID", &[], &what, || {
            nvml.device_by_uuid(uuid.as_str())
        })
    }

    /// Asked for by name. The device that a compute instance's information holds is the parent, and
    /// a walk over all MIG devices was seen to take seconds.
    pub(super) fn mig_device(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<Device<'_>> {
        let name = format!("MIG-{gpu}/{gi}/{ci}");
        let (nvml, what) = (self.nvml()?, || format!("find MIG device {name}"));
        self.ask("nvmlDeviceGetHandleByUUID", &what, || {
            nvml.device_by_uuid(name.as_str())
        })
    }

    pub(super) fn gpu_instance<'g>(&self, gpu: &'g GpuUuid, id: u32) -> Result<Option<Gi<'g>>> {
        let device = self.device(gpu)?;
        let what = || format!("find GPU instance {id} on GPU {gpu}");
        let mut handle = std::ptr::null_mut();
        let found = call!(
            self,
            what,
            nvmlDeviceGetGpuInstanceById(raw(&device), id, &mut handle)
        );
        Ok(gone(found)?.map(|()| Gi { gpu, id, handle }))
    }

    /// A GPU instance that must be there.
    pub(super) fn existing_gpu_instance<'g>(&self, gpu: &'g GpuUuid, id: u32) -> Result<Gi<'g>> {
        self.gpu_instance(gpu, id)?.ok_or_else(|| {
            let what = || format!("find GPU instance {id} on GPU {gpu}");
            self.failure(&what, Reason::Code(NOT_FOUND))
        })
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
        let what = || self.on(gpu, format!("list GPU instances of profile {profile}"));
        for _ in 0..MAX_LISTINGS {
            // The driver writes as many as the profile allows, whatever count comes in.
            let mut handles = vec![std::ptr::null_mut(); MAX_INSTANCES as usize];
            let mut count = MAX_INSTANCES;
            call!(
                self,
                what,
                nvmlDeviceGetGpuInstances(raw(device), profile, handles.as_mut_ptr(), &mut count)
            )?;
            handles.truncate(self.bounded(&what, count)?);
            let found: Vec<Option<T>> = handles.into_iter().map(&read).collect::<Result<_>>()?;
            if let Some(found) = found.into_iter().collect() {
                return Ok(found);
            }
        }
        Err(self.wrong(&what, format!("they keep going away (NVML {NOT_FOUND})")))
    }

    pub(super) fn bounded(&self, what: &impl Fn() -> String, count: c_uint) -> Result<usize> {
        match count <= MAX_INSTANCES {
            true => Ok(count as usize),
            false => Err(self.wrong(what, format!("the driver speaks of {count} of them"))),
        }
    }

    /// Returns an instance with its contents; none when it went meanwhile. `profiles` tells its compute instance profiles.
    pub(super) fn describe(
        &self,
        gpu: &GpuUuid,
        handle: sys::nvmlGpuInstance_t,
        profiles: impl Fn(&Gi<'_>) -> Result<Rc<Vec<ComputeProfile>>>,
    ) -> Result<Option<ListedInstance>> {
        let Some(place) = self.place(gpu, handle)? else {
            return Ok(None);
        };
        let id = place.id;
        let gi = Gi { gpu, id, handle };
        let profiles = profiles(&gi)?;
        Ok(Some(ListedInstance {
            id,
            profile_id: place.profile_id,
            placement: place.placement,
            compute_instances: self.compute_instances(&gi, &profiles)?,
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

    /// Returns the compute instances in the driver's order, profile after profile.
    fn compute_instances(
        &self,
        gi: &Gi<'_>,
        profiles: &[ComputeProfile],
    ) -> Result<Vec<ComputeInstance>> {
        let Gi { gpu, id, handle } = *gi;
        let what = || format!("list compute instances of GPU instance {id} on GPU {gpu}");
        let mut found = Vec::<ComputeInstance>::new();
        for profile in profiles {
            let mut count = profile.instanceCount;
            let mut handles = vec![std::ptr::null_mut(); self.bounded(&what, count)?];
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
                if gone(read)?.is_some() && found.iter().all(|known| known.id != info.id) {
                    found.push(ComputeInstance {
                        id: info.id,
                        profile_id: info.profileId,
                        slices: profile.sliceCount,
                    });
                }
            }
        }
        Ok(found)
    }

    /// The compute instance profiles of a GPU instance.
    pub(super) fn compute_profiles(&self, gi: &Gi<'_>) -> Result<Vec<ComputeProfile>> {
        let Gi { gpu, id, handle } = *gi;
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
                // A profile that fits no time is none.
                Ok(()) if info.instanceCount == 0 => {}
                Ok(()) => profiles.push(info),
                Err(e) if e.code() == Some(NOT_SUPPORTED) => {}
                Err(e) if e.code() == Some(INVALID_ARGUMENT) => break,
                // The instance has gone.
                Err(e) if e.code() == Some(NOT_FOUND) => return Ok(Vec::new()),
                Err(e) => return Err(e),
            }
        }
        Ok(profiles)
    }

    /// The profiles of the compute instance that leaves room for no second. Two may have the same slices and differ in
    /// multiprocessors (1g.20gb on H100), and two may be equal (7 and 7 for NVLink): then the plain one, with the lower
    /// number, comes first.
    pub(super) fn filling_profiles(&self, gi: &Gi<'_>) -> Result<Vec<u32>> {
        let size = |p: &ComputeProfile| (p.sliceCount, p.multiprocessorCount);
        let mut alone = self.compute_profiles(gi)?;
        alone.retain(|p| p.instanceCount == 1);
        let largest = alone.iter().map(size).max();
        let full = alone.iter().filter(|p| Some(size(p)) == largest);
        Ok(full.map(|p| p.id).collect())
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

/// None where the GPU does not support the call.
pub(super) fn supported<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(e) if e.code() == Some(NOT_SUPPORTED) => Ok(None),
        answer => answer.map(Some),
    }
}

pub(super) fn check(code: sys::nvmlReturn_t) -> std::result::Result<(), Reason> {
    match code {
        0 => Ok(()),
        code => Err(Reason::Code(code)),
    }
}

pub(super) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

/// nvml-wrapper's errors back into NVML's codes: its enum lacks some (23 arrives as an unexpected
/// variant).
impl From<NvmlError> for Reason {
    fn from(e: NvmlError) -> Reason {
        let is_its = |code: &u32| discriminant(&NvmlError::from(*code)) == discriminant(&e);
        match &e {
            NvmlError::UnexpectedVariant(code) => Reason::Code(*code),
            // The loader's own words say it all.
            NvmlError::LibloadingError(e) => Reason::Library(e.to_string()),
            other => match (1..=22).chain([999]).find(is_its) {
                Some(code) => Reason::Code(code),
                None => Reason::Library(other.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_wrapper_have_their_codes() {
        for code in (1..=30).chain([999, 4711]) {
            assert_eq!(Reason::from(NvmlError::from(code)), Reason::Code(code));
        }
        let odd = NvmlError::StringTooLong {
            max_len: 1,
            actual_len: 2,
        };
        assert!(matches!(Reason::from(odd), Reason::Library(_)));
    }
}
