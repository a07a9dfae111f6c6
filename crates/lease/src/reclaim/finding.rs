//! The findings of a collection.

use crate::error::Error;
use crate::store::{Damaged, Lease};

/// The judgement of `gc` on one lease.
#[derive(Debug)]
pub struct Finding {
    pub lease: Lease,
    pub outcome: Outcome,
}

#[derive(Debug)]
pub enum Outcome {
    /// Left alone, and why.
    Kept(String),
    /// Given back, or in a dry run to be given back, and why.
    Released(String),
    /// Stays on record, and is tried again.
    Failed(Error),
}

/// The findings of `gc` in the whole ledger.
#[derive(Debug, Default)]
pub struct Collection {
    pub leases: Vec<Finding>,
    pub damaged: Vec<(Damaged, Outcome)>,
}

impl Collection {
    /// Whether another look for room is worth it.
    pub(crate) fn gave_room(&self) -> bool {
        let gave = |outcome: &Outcome| matches!(outcome, Outcome::Released(_));
        self.leases.iter().any(Finding::gave_room) || self.damaged.iter().any(|(_, o)| gave(o))
    }
}

impl Finding {
    fn gave_room(&self) -> bool {
        matches!(self.outcome, Outcome::Released(_))
    }
}
