//! The targets of a configuration against the state of the machine.

use super::resolve::{Target, Targets, instance_name};
use crate::gpu::{DetailedGpu, DetailedInstance};
use crate::model::MigMode;
use std::collections::BTreeMap;

/// A GPU against its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The index of the GPU.
    pub gpu: u32,
    /// Whether the MIG mode is as wanted. A GPU that no entry names has it.
    pub mode: bool,
    /// Whether mode and instances are as wanted. A GPU that no entry names is not.
    pub applied: bool,
    /// The difference in words.
    pub difference: Option<String>,
}

/// Compares each GPU with its target.
pub fn compare(targets: &Targets, gpus: &[DetailedGpu]) -> Vec<Comparison> {
    let both = targets.iter().zip(gpus);
    both.map(|(target, gpu)| one(target.as_ref(), gpu))
        .collect()
}

fn one(target: Option<&Target>, gpu: &DetailedGpu) -> Comparison {
    let is_on = gpu.gpu.mig == MigMode::Enabled;
    let there = instances_of(gpu);
    let (mode, difference) = match target {
        None => (true, Some("no entry names it".to_owned())),
        Some(target) if target.mig_enabled != is_on => {
            let word = |on| if on { "on" } else { "off" };
            let (is, wanted) = (word(is_on), word(target.mig_enabled));
            (false, Some(format!("MIG is {is}, not {wanted}")))
        }
        Some(target) if is_on && target.instances != there => {
            let (is, wanted) = (in_words(&there), in_words(&target.instances));
            (
                true,
                Some(format!("it has {is}, and the layout has {wanted}")),
            )
        }
        Some(_) => (true, None),
    };
    Comparison {
        gpu: gpu.gpu.index,
        mode,
        applied: difference.is_none(),
        difference,
    }
}

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

fn in_words(instances: &BTreeMap<String, i64>) -> String {
    let each: Vec<String> = { instances.iter() }
        .map(|(name, count)| format!("{count} × {name}"))
        .collect();
    match each.is_empty() {
        true => "nothing".to_owned(),
        false => each.join(", "),
    }
}
