//! A configuration for each profile of the machine, at its maximum count.

use super::file::{Devices, Entry};
use super::write::Document;
use crate::gpu::DetailedGpu;
use crate::model::MigMode;
use std::collections::{BTreeMap, BTreeSet};

/// Returns a file with `all-disabled`, `all-enabled`, and `all-PROFILE` for each profile of the GPUs. A `+` in
/// the name of a profile becomes a point, because no label of Kubernetes has one.
pub fn generate(gpus: &[DetailedGpu]) -> Document {
    let all = |mig_enabled| Entry {
        filters: Vec::new(),
        devices: Devices::All,
        mig_enabled,
        instances: BTreeMap::new(),
    };
    let models: BTreeSet<u32> = gpus.iter().map(|gpu| gpu.device_id).collect();
    let filter = |of: &BTreeSet<u32>| match *of == models {
        true => Vec::new(),
        false => of.iter().map(|model| format!("0x{model:X}")).collect(),
    };
    let mut configurations = BTreeMap::from([("all-disabled".to_owned(), vec![all(false)])]);
    let with_mig = gpus
        .iter()
        .filter(|gpu| gpu.gpu.mig != MigMode::Unsupported);
    let with_mig: BTreeSet<u32> = with_mig.map(|gpu| gpu.device_id).collect();
    if !with_mig.is_empty() {
        let enabled = Entry {
            filters: filter(&with_mig),
            ..all(true)
        };
        configurations.insert("all-enabled".to_owned(), vec![enabled]);
    }
    // The models of each count of each profile.
    let mut profiles: BTreeMap<&str, BTreeMap<u32, BTreeSet<u32>>> = BTreeMap::new();
    for gpu in gpus {
        for offer in &gpu.offers {
            let counts = profiles.entry(&offer.profile.name).or_default();
            let models = counts.entry(offer.profile.max_instances).or_default();
            models.insert(gpu.device_id);
        }
    }
    for (profile, counts) in profiles {
        let entry = |(count, models): (u32, BTreeSet<u32>)| Entry {
            filters: filter(&models),
            instances: BTreeMap::from([(profile.to_owned(), i64::from(count))]),
            ..all(true)
        };
        let name = format!("all-{}", profile.replace('+', "."));
        configurations.insert(name, counts.into_iter().map(entry).collect());
    }
    Document(configurations)
}
