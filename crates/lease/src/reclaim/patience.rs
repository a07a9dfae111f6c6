//! How long the destruction of an instance that is in use is retried.

use crate::idle;
use crate::store::Lease;
use std::time::Duration;

/// The time for which a release tries again while a process uses the instance. Zero means one try.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

impl Default for Patience {
    /// Within this time the driver lets go of a process that was just killed.
    fn default() -> Self {
        Patience(Duration::from_secs(3))
    }
}

impl Patience {
    /// One try, for callers that have other things to do.
    pub const NONE: Patience = Patience(Duration::ZERO);

    /// Does not wait again for an instance that was in use before.
    pub fn with(lease: &Lease) -> Patience {
        match lease.attempt {
            Some(_) => Patience::NONE,
            None => Patience::default(),
        }
    }

    /// The processes of an idle slice's last container may have been killed a moment ago, and nobody has
    /// reaped them yet. Several slices that became idle together are waited for at the same time.
    pub(crate) fn with_idle(lease: &Lease) -> Patience {
        let age = idle::age(lease).unwrap_or(Duration::MAX);
        Patience(Patience::default().0.saturating_sub(age))
    }
}
