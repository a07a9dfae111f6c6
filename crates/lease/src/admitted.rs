//! The part of a request that the policy admits.

use crate::model::GpuUuid;
use crate::placement::Constraints;
use crate::request::{self, Alternative};

#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub alternatives: Vec<Alternative>,
    /// The slices of all alternatives.
    pub slices: Vec<request::Slice>,
    pub min_compute: u32,
    /// GPUs that a rule keeps from the requester, by UUID, with the rule in words.
    pub excluded: Vec<(GpuUuid, String)>,
    pub denied_profiles: Vec<String>,
}

impl Admitted {
    pub(crate) fn wanted(&self) -> Constraints<'_> {
        Constraints {
            alternatives: &self.slices,
            min_compute: self.min_compute,
            excluded: &self.excluded,
            denied_profiles: &self.denied_profiles,
            ..Constraints::default()
        }
    }
}
