//! The instances on a GPU by the names that layouts have for them.

use crate::gpu::{DetailedGpu, DetailedInstance};
use crate::model::Profile;
use std::collections::BTreeMap;

/// Returns the number of instances on a GPU by their names. An instance without a compute instance has no name.
pub(super) fn instances_of(gpu: &DetailedGpu) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for name in gpu.instances.iter().flat_map(|one| names(gpu, one)) {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn names(gpu: &DetailedGpu, instance: &DetailedInstance) -> Vec<String> {
    let Some(profile) = gpu.profile(instance) else {
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
