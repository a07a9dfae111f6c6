//! A create, from its begin to the count at its end.

use crate::counters::{HolderKind, LeaseKind, Outcome};
use crate::error::Error;
use std::time::{Duration, Instant};

/// A create under way. It is counted once, at its end.
#[derive(Debug)]
pub struct Create {
    pub(super) kind: LeaseKind,
    pub(super) holder: HolderKind,
    pub(super) begun: Instant,
    /// The driver's time before the create.
    pub(super) driver_before: Duration,
    /// The time in the queue.
    pub(super) wait: Duration,
    /// The end as far as it is known.
    outcome: Option<Outcome>,
}

impl Create {
    pub(super) fn new(kind: LeaseKind, holder: HolderKind, driver_before: Duration) -> Create {
        Create {
            kind,
            holder,
            begun: Instant::now(),
            driver_before,
            wait: Duration::ZERO,
            outcome: None,
        }
    }

    /// Sets the end, unless a failure comes later.
    pub(crate) fn ends(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Adds a time in the queue.
    pub(crate) fn waited(&mut self, since: Instant) {
        self.wait += since.elapsed();
    }

    /// Returns the end of a create that succeeds.
    pub(super) fn made(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::Created)
    }

    /// Returns the end of a create that fails with this error: what the create said, or else the origin of the error.
    pub(super) fn failed(&self, e: &Error) -> Outcome {
        self.outcome.unwrap_or(match e.is_of_driver() {
            true => Outcome::Driver,
            false => Outcome::Refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{DriverError, GPU_IS_LOST, Reason};

    #[test]
    fn failure_has_its_origin() {
        let mut create = Create::new(LeaseKind::Slice, HolderKind::Container, Duration::ZERO);
        let lost = Error::from(DriverError {
            what: "create".to_owned(),
            reason: Reason::Code(GPU_IS_LOST),
        });
        assert_eq!(
            create.failed(&Error::new("it is refused")),
            Outcome::Refused
        );
        assert_eq!(create.failed(&lost), Outcome::Driver);
        let above = Error::new("no slice").caused_by(lost);
        assert_eq!(create.failed(&above), Outcome::Driver);
        create.ends(Outcome::Limited);
        assert_eq!(create.failed(&above), Outcome::Limited);
    }
}
