//! The work on one device of a claim: the device, and what was tried for it.

use super::news::{ClaimNews, Hear};
use super::place::{ClaimPlace, End, Taken};
use crate::context::LeaseContext;
use crate::counters::Outcome;
use crate::error::Error;
use crate::model::Placement;
use crate::placement::Slot;
use crate::store::{Claim, Instance};

/// The work on one device of a claim.
pub(super) struct Work<'a, 'c> {
    pub context: &'a LeaseContext<'c>,
    pub claim: Claim,
    pub at: &'a ClaimPlace,
    /// Places that the driver refused.
    pub refused: Vec<Slot>,
    /// The end of the create, if this work made or reused the slice.
    pub end: Option<Outcome>,
    /// Idle slices that were to go, by instance.
    pub discarded: Vec<Instance>,
    /// The listener for what people should know.
    hear: Hear<'a>,
    /// The obstacle that was told last.
    told: Option<String>,
}

impl<'a, 'c> Work<'a, 'c> {
    pub(super) fn new(
        context: &'a LeaseContext<'c>,
        claim: Claim,
        at: &'a ClaimPlace,
        hear: Hear<'a>,
    ) -> Self {
        Work {
            context,
            claim,
            at,
            refused: Vec::new(),
            end: None,
            discarded: Vec::new(),
            hear,
            told: None,
        }
    }

    /// Tells that the promise moved to another place.
    pub(super) fn tell_move(&self, to: Placement, by: String) {
        (self.hear)(ClaimNews::Moved { to, by });
    }

    /// Tells an obstacle that the work waits for, each once.
    pub(super) fn tell_wait(&mut self, taken: &Taken) {
        if self.told.as_ref() == Some(&taken.by) {
            return;
        }
        let Taken { by, .. } = taken;
        tracing::info!("{} waits: {by}", self.claim);
        self.told = Some(by.clone());
        (self.hear)(ClaimNews::Waits { by: by.clone() });
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
