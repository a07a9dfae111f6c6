//! The GPUs with the details that files of MIG layouts name.

use super::codes::failed;
use super::gpus::Identity;
use super::session::Session;
use crate::gpu::{DetailedGpu, DetailedInstance, Result};
use crate::model::MigMode;
use std::rc::Rc;

impl Session {
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
        let pci = device.pci_info();
        let pci = pci.map_err(|e| failed(format!("read GPU {}", identity.index), e))?;
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
                    Ok(Some(DetailedInstance {
                        id: place.id,
                        number: offer.number,
                        placement: place.placement,
                        compute_instances: self
                            .numbered_compute_instances(uuid, place.id, handle)?,
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
}
