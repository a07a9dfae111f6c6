//! The section `kubernetes` of the configuration: which GPUs claims get, and who else.

use super::Config;
use crate::error::Result;
use crate::model::{Gpu, GpuUuid};
use crate::policy::{GpuName, Policy, Subject};
use serde::Deserialize;

/// The right of local creates (annotations, podman, docker) to published GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Local {
    /// They may use them.
    #[default]
    Share,
    /// They may not.
    Apart,
}

impl Config {
    /// Checks the choice of published GPUs, and makes it a rule for local creates.
    pub(super) fn set_apart(&mut self) -> Result<()> {
        self.kubernetes.gpus.check("kubernetes.gpus")?;
        let is_apart = self.kubernetes.local == Local::Apart;
        self.policy.apart = is_apart.then(|| self.kubernetes.gpus.clone());
        Ok(())
    }

    /// Returns the names of GPUs in rules.
    pub fn named_gpus(&self) -> impl Iterator<Item = &GpuName> {
        let reserved = self.policy.reserve.iter().flat_map(|rule| &rule.gpus);
        { self.policy.exclude_gpus.iter() }
            .chain(reserved)
            .chain(self.kubernetes.gpus.names())
    }

    /// Returns the names of GPUs in rules that fit none of these GPUs.
    pub fn absent_gpus(&self, gpus: &[Gpu]) -> Vec<String> {
        let absent = self
            .named_gpus()
            .filter(|name| !gpus.iter().any(|gpu| name.is(gpu)));
        absent.map(ToString::to_string).collect()
    }

    /// Returns the UUIDs of the GPUs that are not published to Kubernetes, each with the rule in words. A claim has no
    /// pod yet, so a GPU that is reserved for some containers is for no claim.
    pub fn unpublished(&self, gpus: &[Gpu]) -> Vec<(GpuUuid, String)> {
        let policy = Policy {
            apart: None,
            ..self.policy.clone()
        };
        let mut rules = policy.excluded(gpus, &Subject::default());
        for gpu in gpus.iter().filter(|gpu| !self.kubernetes.gpus.has(gpu)) {
            if rules.iter().all(|(uuid, _)| *uuid != gpu.uuid) {
                rules.push((
                    gpu.uuid.clone(),
                    "kubernetes.gpus does not name it".to_owned(),
                ));
            }
        }
        rules
    }
}
