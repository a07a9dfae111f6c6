//! The instances of the machine by the names that layouts have for them: compared with a target, or as a file.

use super::file::{Devices, Entry, VERSION};
use crate::gpu::DetailedGpu;
use crate::model::{ListedInstance, MigMode, Profile};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The name of the exported configuration, unless the caller chooses another.
pub const DEFAULT_LABEL: &str = "current";

/// Returns the number of instances on a GPU by their names. An instance without a compute instance has no name.
pub(super) fn instances_of(gpu: &DetailedGpu) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for name in gpu.instances.iter().flat_map(|one| names(gpu, one)) {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn names(gpu: &DetailedGpu, instance: &ListedInstance) -> Vec<String> {
    let Some(profile) = gpu.offered(instance.profile_id) else {
        return Vec::new();
    };
    let compute = instance.compute_instances.iter();
    compute
        .map(|ci| instance_name(profile, ci.slices))
        .collect()
}

/// Returns the name of a compute instance in an instance of a profile.
pub(super) fn instance_name(profile: &Profile, slices: u32) -> String {
    match slices == profile.compute_slices {
        true => profile.name.clone(),
        false => format!("{slices}c.{}", profile.name),
    }
}

/// Returns instances in words: `7 × 1g.10gb`.
pub(super) fn in_words(instances: &BTreeMap<String, i64>) -> String {
    let each: Vec<String> = { instances.iter() }
        .map(|(name, count)| format!("{count} × {name}"))
        .collect();
    match each.is_empty() {
        true => "nothing".to_owned(),
        false => each.join(", "),
    }
}

/// Returns the difference of a GPU from its target in words, if it differs. A GPU that no entry names differs.
pub fn difference(target: Option<&Entry>, gpu: &DetailedGpu) -> Option<String> {
    let Some(target) = target else {
        return Some("no entry names it".to_owned());
    };
    let is_on = gpu.gpu.mig == MigMode::Enabled;
    let there = instances_of(gpu);
    if target.mig_enabled != is_on {
        let word = |on| if on { "on" } else { "off" };
        let (is, wanted) = (word(is_on), word(target.mig_enabled));
        return Some(format!("MIG is {is}, not {wanted}"));
    }
    if is_on && gpu.gpu.mig_pending == Some(MigMode::Disabled) {
        return Some("its next reset switches MIG off".to_owned());
    }
    (is_on && target.instances != there).then(|| {
        let (is, wanted) = (in_words(&there), in_words(&target.instances));
        format!("it has {is}, and the layout has {wanted}")
    })
}

/// A file with configurations, to be written as YAML or JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Document {
    version: &'static str,
    mig_configs: BTreeMap<String, Vec<Entry>>,
}

impl Document {
    /// Returns the file in YAML.
    pub fn yaml(&self) -> String {
        serde_yaml_ng::to_string(self).expect("all keys are texts")
    }
}

/// Returns a file with one configuration, which describes the machine.
pub fn export(gpus: &[DetailedGpu], label: &str) -> Document {
    Document {
        version: VERSION,
        mig_configs: BTreeMap::from([(label.to_owned(), entries(gpus))]),
    }
}

/// Returns an entry for each mode and content, with the models of its GPUs where the machine has several.
fn entries(gpus: &[DetailedGpu]) -> Vec<Entry> {
    let mut groups: BTreeMap<(bool, BTreeMap<String, i64>), Vec<usize>> = BTreeMap::new();
    for (index, gpu) in gpus.iter().enumerate() {
        let content = (gpu.gpu.mig == MigMode::Enabled, instances_of(gpu));
        groups.entry(content).or_default().push(index);
    }
    let model = |index: &usize| format!("0x{:X}", gpus[*index].device_id);
    let models: BTreeSet<String> = (0..gpus.len()).map(|index| model(&index)).collect();
    let is_one = groups.len() == 1;
    let entry = |((mig_enabled, instances), here): (_, Vec<usize>)| Entry {
        filters: match is_one || models.len() == 1 {
            true => Vec::new(),
            false => BTreeSet::from_iter(here.iter().map(model))
                .into_iter()
                .collect(),
        },
        devices: match is_one {
            true => Devices::All,
            false => Devices::Listed(here.iter().map(|index| *index as i64).collect()),
        },
        mig_enabled,
        instances,
    };
    groups.into_iter().map(entry).collect()
}
