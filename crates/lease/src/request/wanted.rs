//! The wanted part of a request: slices, or whole GPUs.

use super::slice::{self, Alternative};

/// The wanted part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// MIG slices.
    Slices(Slices),
    /// So many whole GPUs, at least 1.
    Gpus(u32),
}

/// The wanted slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slices {
    /// The alternatives in order of preference, at least one. The first that fits is chosen.
    pub alternatives: Vec<Alternative>,
    /// The least number of compute slices of each slice, or 0.
    pub min_compute: u32,
}

impl Wanted {
    /// Returns the request for people: `1g.10gb,20Gi` or `2 GPUs`.
    pub fn written(&self) -> String {
        match self {
            Wanted::Slices(slices) => slice::written(&slices.alternatives),
            Wanted::Gpus(1) => "1 GPU".to_owned(),
            Wanted::Gpus(n) => format!("{n} GPUs"),
        }
    }

    /// Returns the part that asks for more than one slice or GPU.
    pub(super) fn several(&self) -> Option<String> {
        match self {
            Wanted::Slices(slices) => {
                let mut all = slices.alternatives.iter();
                all.find(|a| a.count > 1).map(Alternative::to_string)
            }
            Wanted::Gpus(1) => None,
            Wanted::Gpus(n) => Some(n.to_string()),
        }
    }

    pub(super) fn noun(&self) -> &'static str {
        match self {
            Wanted::Slices(_) => "slice",
            Wanted::Gpus(_) => "GPU",
        }
    }
}
