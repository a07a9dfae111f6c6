//! The GPUs with the details that files of MIG layouts name.

use super::gpus::Identity;
use super::session::{ComputeProfile, Session};
use crate::gpu::{DetailedGpu, DetailedInstance, Result};
use crate::model::{GpuInstance, GpuUuid, MigMode};
use nvml_wrapper_sys::bindings as sys;
use std::rc::Rc;

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
                let uuid = &identity.uuid;
                instances.extend(self.list(&device, uuid, offer.profile.id, |handle| {
                    let Some(place) = self.place(uuid, handle)? else {
                        return Ok(None);
                    };
                    let profiles = self.compute_profiles_of(uuid, &place, handle)?;
                    let compute_instances =
                        self.detailed_compute_instances(uuid, place.id, handle, &profiles)?;
                    Ok(Some(DetailedInstance {
                        id: place.id,
                        number: offer.number,
                        placement: place.placement,
                        compute_instances,
                    }))
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
    fn compute_profiles_of(
        &self,
        gpu: &GpuUuid,
        instance: &GpuInstance,
        handle: sys::nvmlGpuInstance_t,
    ) -> Result<Rc<Vec<ComputeProfile>>> {
        let key = (gpu.clone(), instance.profile_id);
        if let Some(known) = self.known.borrow().compute_profiles.get(&key) {
            return Ok(known.clone());
        }
        let read = Rc::new(self.compute_profiles(gpu, instance.id, handle)?);
        // An instance that has gone tells none.
        if !read.is_empty() {
            let known = &mut self.known.borrow_mut().compute_profiles;
            known.insert(key, read.clone());
        }
        Ok(read)
    }
}
