//! The targets of a configuration against the state of the machine.

use super::content::{in_words, instances_of};
use super::resolve::{Target, Targets};
use crate::gpu::DetailedGpu;
use crate::model::MigMode;

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
