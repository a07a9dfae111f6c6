//! The findings of a collection, and its patience with instances in use.

use crate::error::{Error, Result};
use crate::idle;
use crate::store::{Attempt, Entry, Instance};
use std::time::Duration;

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

impl Finding {
    /// Notes what a further look at a kept lease told, if anything.
    pub(super) fn note(&mut self, told: Result<Option<String>>) {
        match (told, &mut self.outcome) {
            (Ok(Some(told)), Outcome::Kept(why)) => {
                why.push_str("; ");
                why.push_str(&told);
            }
            // A failure stays as it is.
            (Ok(_), _) => {}
            (Err(e), outcome) => {
                let before = std::mem::replace(outcome, Outcome::Kept(String::new()));
                *outcome = Outcome::Failed(match before {
                    Outcome::Failed(before) => before.and(Some(e)),
                    _ => e,
                });
            }
        }
    }

    /// Returns whether the collection made room here, so that a create should look again.
    pub(crate) fn gave_room(&self) -> bool {
        matches!(self.outcome, Outcome::Released(_))
    }
}

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

    /// Returns the patience after earlier attempts: one try for what did not end before.
    pub fn with(attempt: Option<&Attempt>) -> Patience {
        match attempt {
            Some(_) => Patience::NONE,
            None => Patience::default(),
        }
    }

    /// Returns the patience for an idle slice. The processes of its last container may have been killed a
    /// moment ago and not yet reaped. Several slices that became idle together share one wait.
    pub(crate) fn with_idle(idle: &Instance) -> Patience {
        let age = idle::age(idle).unwrap_or(Duration::MAX);
        Patience(Patience::default().0.saturating_sub(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::instance;

    #[test]
    fn later_look_adds_to_what_is_kept_and_to_a_failure() {
        let told = |outcome, note| {
            let entry = Entry::Unleased(instance("one").into());
            let mut finding = Finding { entry, outcome };
            finding.note(note);
            match finding.outcome {
                Outcome::Kept(why) | Outcome::Released(why) => why,
                Outcome::Failed(e) => e.line(),
            }
        };
        let kept = || Outcome::Kept("it lives".to_owned());
        let failed = || Outcome::Failed(Error::new("first"));
        let (more, second) = (Some("more".to_owned()), || Err(Error::new("second")));
        assert_eq!(told(kept(), Ok(more.clone())), "it lives; more");
        assert_eq!(told(kept(), second()), "second");
        assert_eq!(told(failed(), Ok(more)), "first");
        let both = told(failed(), second());
        assert!(
            both.starts_with("first") && both.contains("second"),
            "{both}"
        );
    }
}
