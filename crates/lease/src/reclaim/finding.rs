//! The findings of a collection.

use crate::error::Error;
use crate::store::{Damaged, Entry};

/// The judgement of `gc` on one lease, or on an instance without one.
#[derive(Debug)]
pub struct Finding {
    /// The lease or the instance.
    pub entry: Entry,
    /// The judgement.
    pub outcome: Outcome,
}

/// The fate of a lease in a collection.
#[derive(Debug)]
pub enum Outcome {
    /// The collection leaves the lease alone, for this reason.
    Kept(String),
    /// The collection released the lease for this reason, or would in a dry run.
    Released(String),
    /// A step failed. The lease stays on record, and a later collection tries again.
    Failed(Error),
}

/// The findings of `gc` in the whole ledger.
#[derive(Debug, Default)]
pub struct Collection {
    /// The leases, and the instances without one.
    pub leases: Vec<Finding>,
    /// The unreadable records.
    pub damaged: Vec<(Damaged, Outcome)>,
}

impl Collection {
    /// Returns whether the collection made room, so that the create should look again.
    pub(crate) fn gave_room(&self) -> bool {
        let gave = |outcome: &Outcome| matches!(outcome, Outcome::Released(_));
        self.leases.iter().any(Finding::gave_room) || self.damaged.iter().any(|(_, o)| gave(o))
    }
}

impl Finding {
    /// Adds a remark to the reason for which the lease stays. A failure stays as it is.
    pub(super) fn remark(&mut self, text: &str) {
        if let Outcome::Kept(why) = &mut self.outcome {
            why.push_str("; ");
            why.push_str(text);
        }
    }

    /// Turns the finding into a failure, beside one that is there.
    pub(super) fn fail(&mut self, e: Error) {
        let before = std::mem::replace(&mut self.outcome, Outcome::Kept(String::new()));
        self.outcome = Outcome::Failed(match before {
            Outcome::Failed(before) => before.and(Some(e)),
            _ => e,
        });
    }

    fn gave_room(&self) -> bool {
        matches!(self.outcome, Outcome::Released(_))
    }
}
