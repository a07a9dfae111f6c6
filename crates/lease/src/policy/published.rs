//! The GPUs that a node publishes to Kubernetes.

use super::GpuName;
use crate::error::{Error, Result};
use crate::model::{Gpu, MigMode};
use serde::Deserialize;

/// A choice of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "the GPUs are \"all\" or a list of indexes and UUIDs"
)]
pub enum Gpus {
    /// All of them.
    All(All),
    /// Those with these names.
    Named(Vec<GpuName>),
}

/// The word for all GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum All {
    /// `all`
    #[serde(rename = "all")]
    All,
}

impl Default for Gpus {
    fn default() -> Self {
        Gpus::All(All::All)
    }
}

impl Gpus {
    /// Returns the names.
    pub(crate) fn names(&self) -> &[GpuName] {
        match self {
            Gpus::All(_) => &[],
            Gpus::Named(names) => names,
        }
    }

    /// Returns whether the choice has a GPU.
    pub fn has(&self, gpu: &Gpu) -> bool {
        match self {
            Gpus::All(_) => true,
            Gpus::Named(names) => names.iter().any(|name| name.is(gpu)),
        }
    }

    /// Returns the rule by which a GPU is for claims alone. A GPU without MIG is never published.
    pub(super) fn rule(&self, gpu: &Gpu) -> Option<String> {
        let is_published = gpu.mig == MigMode::Enabled && self.has(gpu);
        is_published.then(|| {
            "published for claims of Kubernetes alone by kubernetes.local = \"apart\"".to_owned()
        })
    }

    /// Checks the choice beyond its syntax.
    pub(crate) fn check(&self, rule: &str) -> Result<()> {
        match self {
            Gpus::All(_) => Ok(()),
            Gpus::Named(names) if names.is_empty() => {
                Err(Error::new(format!("{rule} names no GPU"))
                    .hint("name a GPU, or remove the key to publish all"))
            }
            Gpus::Named(names) => names.iter().try_for_each(|name| name.check(rule)),
        }
    }
}
