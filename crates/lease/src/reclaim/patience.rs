//! Limits the time for which a release retries the destroy of an instance in use.

use crate::idle;
use crate::store::Instance;
use std::time::{Duration, Instant};

/// The time for which a release tries again while a process uses the instance. Zero means one try.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

impl Default for Patience {
    /// Returns the time within which the driver lets go of a process that was just killed.
    fn default() -> Self {
        Patience(Duration::from_secs(3))
    }
}

impl Patience {
    /// Allows one try, for callers that have other things to do.
    pub const NONE: Patience = Patience(Duration::ZERO);

    /// Returns the patience for an instance: one try for one that was in use before.
    pub fn with(instance: &Instance) -> Patience {
        match instance.attempt() {
            Some(_) => Patience::NONE,
            None => Patience::default(),
        }
    }

    /// Returns the rest of the patience of a release that began then.
    pub(super) fn left(self, begun: Instant) -> Patience {
        Patience(self.0.saturating_sub(begun.elapsed()))
    }

    /// Returns the patience for an idle slice. The processes of its last container may have been killed a
    /// moment ago and not yet reaped. Several slices that became idle together share one wait.
    pub(crate) fn with_idle(idle: &Instance) -> Patience {
        let age = idle::age(idle).unwrap_or(Duration::MAX);
        Patience(Patience::default().0.saturating_sub(age))
    }
}
