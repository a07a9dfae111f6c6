//! The work on one device of a claim: the device, and what was tried for it.

use super::place::{ClaimPlace, End, Taken};
use crate::context::LeaseContext;
use crate::error::Error;
use crate::placement::Slot;
use crate::store::{Claim, Instance};

/// The work on one device of a claim.
pub(super) struct Work<'a, 'c> {
    pub context: &'a LeaseContext<'c>,
    pub claim: Claim,
    pub at: &'a ClaimPlace,
    /// Places that the driver refused.
    pub refused: Vec<Slot>,
    /// Idle slices that were to go, by instance.
    pub discarded: Vec<Instance>,
}

impl<'a, 'c> Work<'a, 'c> {
    pub(super) fn new(context: &'a LeaseContext<'c>, claim: Claim, at: &'a ClaimPlace) -> Self {
        Work {
            context,
            claim,
            at,
            refused: Vec::new(),
            discarded: Vec::new(),
        }
    }

    pub(super) fn purpose(&self) -> String {
        format!("prepare of {}", self.claim)
    }

    pub(super) fn refusal(&self, taken: &Taken) -> Error {
        let hint = match taken.end {
            End::Open => {
                "delete that holder, or the pod, so that the scheduler chooses another device"
            }
            End::Near | End::Due(_) => "wait until it has ended; the kubelet tries again",
        };
        Error::new(format!(
            "cannot make {} at {} on GPU {} for {}: {}",
            self.at.profile, self.at.placement, self.at.gpu, self.claim, taken.by
        ))
        .hint(hint)
    }
}
