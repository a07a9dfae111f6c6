//! The geometry of GPUs: their profiles and where instances of those can lie. It stays the same as long
//! as a driver runs, so a create reads it from a file of the state directory instead of asking for it.
//!
//! Nothing rests on the file alone. A GPU's entry counts only for the boot and the driver version it was
//! read under, and only while the driver gives the same answer for the GPU's largest profile: a change of
//! ECC mode or firmware, which a reset puts in force, changes that one too. MIG modes, instances and
//! capacities are never in it. A wrong entry could make a create choose a place that does not exist or
//! miss one that does. It cannot give a place twice: the driver refuses what overlaps an instance, and
//! the ledger's leases are compared by place, not by profile.
//!
//! The file is a cache: one that is missing, damaged, foreign or too large is no error.

use crate::error::{Context, Error, Result};
use crate::framed::Form;
use crate::model::{BootId, Gpu, GpuUuid, ListedInstance, Profile};
use crate::{files, trust};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const FILE: &str = "geometry";
const FORM: Form = Form {
    version: "runmig.dev/v1",
    kind: "Geometry",
};
/// A GPU takes some 4 KiB.
const MAX_SIZE: u64 = 1024 * 1024;

/// The profiles of a GPU in MIG mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry(pub Vec<Offer>);

/// A profile with the number by which runmig asks the driver for it. The number is not the profile's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The index of the profile in NVML's enumeration.
    pub number: u32,
    /// The profile.
    pub profile: Profile,
}

impl Geometry {
    /// Returns the profiles without their numbers.
    pub fn profiles(&self) -> Vec<Profile> {
        self.0.iter().map(|offer| offer.profile.clone()).collect()
    }

    /// Tells whether it is all that a GPU in MIG mode tells: every profile has a place.
    pub(crate) fn is_whole(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|o| !o.profile.placements.is_empty())
    }

    /// Returns the profile that shows best whether the GPU is still the same.
    pub fn largest(&self) -> Option<&Offer> {
        let size = |o: &&Offer| (o.profile.memory_mib, o.profile.multiprocessors);
        self.0.iter().max_by_key(size)
    }
}

/// Geometry by the UUID of its GPU.
pub(crate) type Geometries = BTreeMap<GpuUuid, Geometry>;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    boot_id: BootId,
    driver_version: String,
    gpus: Geometries,
}

/// The file of one state directory, in one boot.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    boot_id: BootId,
}

impl Cache {
    /// Names the cache of a state directory for one boot. Touches no file.
    pub fn new(state_dir: &Path, boot_id: &BootId) -> Cache {
        Cache {
            dir: state_dir.to_owned(),
            boot_id: boot_id.clone(),
        }
    }

    /// Returns what the file tells of GPUs under this driver version; nothing where it cannot be used.
    pub fn read(&self, driver_version: &str) -> Geometries {
        let file = self.dir.join(FILE);
        if !file.exists() {
            return Geometries::new();
        }
        let read = trust::read_to_string(&file, MAX_SIZE).and_then(|text| decode(&text));
        let body = match read {
            Ok(body) => body,
            Err(e) => {
                tracing::debug!("cannot use {}: {}", file.display(), e.line());
                return Geometries::new();
            }
        };
        match body.boot_id == self.boot_id && body.driver_version == driver_version {
            true => body.gpus,
            false => Geometries::new(),
        }
    }

    /// Returns the names of the profiles in the file of a state directory, whatever driver told them. They suit a
    /// suggestion, never a decision.
    pub fn last_names(state_dir: &Path) -> BTreeSet<String> {
        let text = trust::read_to_string(&state_dir.join(FILE), MAX_SIZE);
        let gpus = text.and_then(|text| decode(&text)).map(|body| body.gpus);
        let offers = { gpus.unwrap_or_default().into_values() }.flat_map(|geometry| geometry.0);
        offers.map(|offer| offer.profile.name).collect()
    }

    /// Replaces the file. Two writers at the same moment may spoil it for each other: then the next session reads the
    /// driver again.
    pub fn write(&self, driver_version: &str, gpus: Geometries) -> Result<()> {
        let text = encode(&Body {
            boot_id: self.boot_id.clone(),
            driver_version: driver_version.to_owned(),
            gpus,
        });
        let what = || format!("write {}", self.dir.join(FILE).display());
        if text.len() as u64 > MAX_SIZE {
            let why = Error::new(format!("it would be larger than {} KiB", MAX_SIZE / 1024));
            return Err(why).context(what);
        }
        trust::folder(&self.dir).context(what)?;
        files::replace(&self.dir.join(FILE), &text).context(what)
    }
}

fn encode(body: &Body) -> Vec<u8> {
    let body = serde_json::to_vec(body).expect("it has only strings as keys");
    FORM.frame(&body)
}

fn decode(text: &str) -> Result<Body> {
    let body = FORM.body(text.as_bytes())?;
    serde_json::from_str(body).context(|| "read it as a geometry")
}

/// A GPU with its model's number, every profile that it offers, and every compute instance on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetailedGpu {
    /// The GPU.
    pub gpu: Gpu,
    /// The PCI device number in the upper half, the vendor's in the lower.
    pub device_id: u32,
    /// The PCI numbers of the subsystem, in the same order.
    pub subsystem_id: u32,
    /// The profiles with NVML's numbers, also where MIG is off; none where the GPU has no MIG.
    pub offers: Vec<Offer>,
    /// The GPU instances in the driver's order, profile after profile.
    pub instances: Vec<ListedInstance>,
}

impl DetailedGpu {
    /// Returns the profile with this id, also where MIG is off.
    pub fn offered(&self, id: u32) -> Option<&Profile> {
        let mut profiles = self.offers.iter().map(|offer| &offer.profile);
        profiles.find(|profile| profile.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_driver_suit_a_suggestion() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Cache::last_names(dir.path()), BTreeSet::new());
        let named = |name: &str| Offer {
            number: 0,
            profile: Profile {
                name: name.to_owned(),
                ..Profile::default()
            },
        };
        let gpu = |uuid, names: [&str; 2]| (GpuUuid::from(uuid), Geometry(names.map(named).into()));
        let gpus = [
            gpu("GPU-1", ["1g.5gb", "7g.40gb"]),
            gpu("GPU-2", ["1g.5gb", "2g.10gb"]),
        ];
        let cache = Cache::new(dir.path(), &BootId::new("another"));
        cache.write("1.2", gpus.into()).unwrap();
        let names = ["1g.5gb", "2g.10gb", "7g.40gb"].map(str::to_owned);
        assert_eq!(Cache::last_names(dir.path()), names.into());
    }
}
