//! A create, from its begin to the count at its end.

use crate::counters::{HolderKind, LeaseKind, Outcome};
use crate::error::Error;
use crate::request::Wanted;
use crate::store::Holder;
use std::time::{Duration, Instant};

/// A create under way. It is counted once, at its end.
#[derive(Debug)]
pub(super) struct Create {
    pub(super) kind: LeaseKind,
    /// None where the request was refused before its container was known.
    pub(super) holder: Option<Holder>,
    /// The request, as the user wrote it.
    pub(super) request: String,
    pub(super) begun: Instant,
    /// The driver's time before the create.
    pub(super) driver_before: Duration,
    /// The time in the queue.
    pub(super) wait: Duration,
    /// Whether the begin of a wait is told.
    pub(super) waits: bool,
    /// The end as far as it is known.
    pub(super) outcome: Option<Outcome>,
}

impl Create {
    pub(super) fn new(
        kind: LeaseKind,
        holder: Option<Holder>,
        request: &str,
        driver_before: Duration,
    ) -> Create {
        Create {
            kind,
            holder,
            request: request.to_owned(),
            begun: Instant::now(),
            driver_before,
            wait: Duration::ZERO,
            waits: false,
            outcome: None,
        }
    }

    /// Returns the kind of the holder.
    pub(super) fn holder_kind(&self) -> HolderKind {
        match &self.holder {
            Some(Holder::Claim(_)) => HolderKind::Claim,
            Some(Holder::Container(_)) | None => HolderKind::Container,
        }
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

/// Returns the kind of what a request wants.
pub(crate) fn kind_of_wanted(wanted: &Wanted) -> LeaseKind {
    match wanted {
        Wanted::Slices(_) => LeaseKind::Slice,
        Wanted::Share(_) => LeaseKind::Share,
        Wanted::Seat(_) => LeaseKind::Seat,
        Wanted::Gpus(_) => LeaseKind::Gpu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{DriverError, GPU_IS_LOST, Reason};

    #[test]
    fn failure_has_its_origin() {
        let mut create = Create::new(LeaseKind::Slice, None, "1g.10gb", Duration::ZERO);
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
        create.outcome = Some(Outcome::Limited);
        assert_eq!(create.failed(&above), Outcome::Limited);
    }
}
