//! The GPUs of a session: which there are, what they offer, and what lies on them.

use super::session::{ComputeProfile, Gi, Session, raw, supported};
use crate::gpu::geometry::{Geometries, Geometry};
use crate::gpu::{DetailedGpu, NOT_SUPPORTED, Result};
use crate::model::{Gpu, GpuInstance, GpuUuid, MigMode};
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings as sys;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Answers that hold for a whole session, each asked for once.
#[derive(Default)]
pub(super) struct Known {
    /// The compute instance profiles by GPU and profile of the GPU instance.
    compute_profiles: BTreeMap<(GpuUuid, u32), Rc<Vec<ComputeProfile>>>,
    count: Option<u32>,
    driver_version: Option<String>,
    pub(super) gpus: BTreeMap<u32, Rc<Identity>>,
    geometry: BTreeMap<GpuUuid, Rc<Geometry>>,
    /// The cache as the session found it; none before the first look.
    cached: Option<Geometries>,
    /// GPUs whose geometry the cache did not have.
    read: Vec<Rc<Identity>>,
}

/// A GPU, and its handle in this session.
pub(super) struct Identity {
    handle: sys::nvmlDevice_t,
    pub(super) index: u32,
    minor: u32,
    pub(super) uuid: GpuUuid,
    name: String,
    pci_bus_id: String,
}

impl Session<'_> {
    pub(super) fn count(&self) -> Result<u32> {
        if let Some(count) = self.known.borrow().count {
            return Ok(count);
        }
        let nvml = self.nvml()?;
        let what = || "count GPUs".to_owned();
        let count = self.ask("nvmlDeviceGetCount_v2", &what, || nvml.device_count())?;
        self.known.borrow_mut().count = Some(count);
        Ok(count)
    }

    pub(super) fn driver_version(&self) -> Result<String> {
        if let Some(version) = &self.known.borrow().driver_version {
            return Ok(version.clone());
        }
        let nvml = self.nvml()?;
        let what = || "read the driver's version".to_owned();
        let version = self.ask("nvmlSystemGetDriverVersion", &what, || {
            nvml.sys_driver_version()
        })?;
        self.known.borrow_mut().driver_version = Some(version.clone());
        Ok(version)
    }

    pub(super) fn gpu(&self, index: u32) -> Result<Rc<Identity>> {
        if let Some(gpu) = self.known.borrow().gpus.get(&index) {
            return Ok(gpu.clone());
        }
        let nvml = self.nvml()?;
        let what = || format!("read GPU {index}");
        let device = self.ask("nvmlDeviceGetHandleByIndex_v2", &what, || {
            nvml.device_by_index(index)
        })?;
        let minor = self.ask("nvmlDeviceGetMinorNumber", &what, || device.minor_number())?;
        let uuid = self.ask("nvmlDeviceGetUUID", &what, || device.uuid())?;
        let name = supported(self.ask("nvmlDeviceGetName", &what, || device.name()))?;
        let pci = supported(self.ask("nvmlDeviceGetPciInfo_v3", &what, || device.pci_info()))?;
        let gpu = Rc::new(Identity {
            handle: raw(&device),
            index,
            minor,
            uuid: GpuUuid::new(uuid),
            name: name.unwrap_or_else(|| "-".to_owned()),
            pci_bus_id: pci.map(|pci| pci.bus_id).unwrap_or_default(),
        });
        self.known.borrow_mut().gpus.insert(index, gpu.clone());
        Ok(gpu)
    }

    pub(super) fn device_of(&self, gpu: &Identity) -> Result<Device<'_>> {
        // SAFETY: this session gave the handle out; closing it forgets every `Identity`.
        Ok(unsafe { Device::new(gpu.handle, self.nvml()?) })
    }

    /// Returns the mode, and the one after the next reset where that differs.
    pub(super) fn mig_mode(&self, gpu: &Identity) -> Result<(MigMode, Option<MigMode>)> {
        let word = |mode| match mode {
            1 => MigMode::Enabled,
            _ => MigMode::Disabled,
        };
        let device = self.device_of(gpu)?;
        let what = || format!("read GPU {}", gpu.index);
        match self.ask("nvmlDeviceGetMigMode", &what, || device.mig_mode()) {
            Ok(mode) => {
                let (now, next) = (word(mode.current), word(mode.pending));
                Ok((now, (next != now).then_some(next)))
            }
            Err(e) if e.code() == Some(NOT_SUPPORTED) => Ok((MigMode::Unsupported, None)),
            Err(e) => Err(e),
        }
    }

    /// Returns a GPU with all that lies on it now.
    pub(super) fn contents(&self, gpu: &Rc<Identity>) -> Result<Gpu> {
        let (mig, mig_pending) = self.mig_mode(gpu)?;
        let (mut profiles, mut instances): (_, Vec<GpuInstance>) = Default::default();
        if mig == MigMode::Enabled {
            let (device, uuid) = (self.device_of(gpu)?, &gpu.uuid);
            profiles = self.geometry(gpu)?.profiles();
            for profile in &profiles {
                instances.extend(self.list(&device, uuid, profile.id, |h| self.place(uuid, h))?);
            }
            instances.sort_by_key(|instance| instance.placement);
        }
        Ok(Gpu {
            index: gpu.index,
            minor: gpu.minor,
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            pci_bus_id: gpu.pci_bus_id.clone(),
            mig,
            mig_pending,
            profiles,
            instances,
            closed: None,
        })
    }

    /// Returns the geometry of a GPU in MIG mode, from the cache where that has it.
    pub(super) fn geometry(&self, gpu: &Rc<Identity>) -> Result<Rc<Geometry>> {
        if let Some(known) = self.known.borrow().geometry.get(&gpu.uuid) {
            return Ok(known.clone());
        }
        let device = self.device_of(gpu)?;
        let geometry = match self.cached(gpu, &device)? {
            Some(cached) => cached,
            None => {
                let read = self.read_geometry(&device, &gpu.uuid)?;
                self.known.borrow_mut().read.push(gpu.clone());
                read
            }
        };
        let (uuid, geometry) = (gpu.uuid.clone(), Rc::new(geometry));
        let mut known = self.known.borrow_mut();
        known.geometry.insert(uuid, geometry.clone());
        Ok(geometry)
    }

    /// Returns the cached geometry of a GPU if one answer of the driver agrees with it.
    fn cached(&self, gpu: &Identity, device: &Device<'_>) -> Result<Option<Geometry>> {
        let Some(cache) = &self.cache else {
            return Ok(None);
        };
        let version = self.driver_version()?;
        let mut known = self.known.borrow_mut();
        let cached = known.cached.get_or_insert_with(|| cache.read(&version));
        let geometry = cached.get(&gpu.uuid).cloned();
        drop(known);
        let is_valid = |geometry: &Geometry| {
            let mut largest = geometry.largest().into_iter();
            largest.any(|offer| self.still_has(device, &gpu.uuid, offer))
        };
        Ok(geometry.filter(is_valid))
    }

    /// Keeps the geometry that this session read for the next one. Called without any lock, once all
    /// that matters is written: a failure is only logged.
    pub(crate) fn keep_geometry(&self) {
        if let Err(e) = self.write_geometry() {
            tracing::debug!("{}", e.line());
        }
    }

    /// Writes the geometry that the cache did not have, where the driver says the same a second time: an
    /// answer that was wrong once must not stay.
    fn write_geometry(&self) -> crate::error::Result<()> {
        let read = std::mem::take(&mut self.known.borrow_mut().read);
        let Some(cache) = self.cache.as_ref().filter(|_| !read.is_empty()) else {
            return Ok(());
        };
        let mut gpus = self.known.borrow().cached.clone().unwrap_or_default();
        // Entries of other GPUs would never go.
        let here = |uuid: &GpuUuid| self.known.borrow().gpus.values().any(|g| g.uuid == *uuid);
        gpus.retain(|uuid, _| here(uuid));
        for gpu in read {
            let again = self.read_geometry(&self.device_of(&gpu)?, &gpu.uuid)?;
            let first = self.known.borrow().geometry.get(&gpu.uuid).cloned();
            match again.is_whole() && first.is_some_and(|first| *first == again) {
                true => gpus.insert(gpu.uuid.clone(), again),
                false => gpus.remove(&gpu.uuid),
            };
        }
        cache.write(&self.driver_version()?, gpus)
    }
}

impl Session<'_> {
    /// Returns all GPUs in the order of their indexes, with every compute instance.
    ///
    /// # Errors
    /// A GPU that does not answer: a layout without it would be wrong.
    pub fn detailed_gpus(&self) -> Result<Vec<DetailedGpu>> {
        let read = |index| self.gpu(index).and_then(|gpu| self.detailed(&gpu));
        (0..self.count()?).map(read).collect()
    }

    fn detailed(&self, identity: &Rc<Identity>) -> Result<DetailedGpu> {
        let gpu = self.contents(identity)?;
        let device = self.device_of(identity)?;
        let what = || format!("read GPU {}", identity.index);
        let pci = self.ask("nvmlDeviceGetPciInfo_v3", &what, || device.pci_info())?;
        let offers = match gpu.mig {
            MigMode::Unsupported => Vec::new(),
            MigMode::Disabled => self.read_geometry(&device, &identity.uuid)?.0,
            MigMode::Enabled => self.geometry(identity)?.0.clone(),
        };
        let mut instances = Vec::new();
        if gpu.mig == MigMode::Enabled {
            for offer in &offers {
                let (uuid, profile) = (&identity.uuid, offer.profile.id);
                instances.extend(self.list(&device, uuid, profile, |handle| {
                    self.describe(uuid, handle, |gi| self.compute_profiles_of(gi, profile))
                })?);
            }
        }
        Ok(DetailedGpu {
            gpu,
            device_id: pci.pci_device_id,
            subsystem_id: pci.pci_sub_system_id.unwrap_or_default(),
            offers,
            instances,
        })
    }

    /// Returns the compute instance profiles of a GPU instance, which all instances of its profile have. They are read
    /// once in a session.
    fn compute_profiles_of(&self, gi: &Gi<'_>, profile: u32) -> Result<Rc<Vec<ComputeProfile>>> {
        let key = (gi.gpu.clone(), profile);
        if let Some(known) = self.known.borrow().compute_profiles.get(&key) {
            return Ok(known.clone());
        }
        let read = Rc::new(self.compute_profiles(gi)?);
        // An instance that has gone tells none.
        if !read.is_empty() {
            let known = &mut self.known.borrow_mut().compute_profiles;
            known.insert(key, read.clone());
        }
        Ok(read)
    }
}
