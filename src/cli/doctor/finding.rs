//! The outcome of a check.

use super::check::Check;
use runmig_lease::error::Error;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// All is well.
    Ok,
    /// Something needs a look, and allocations work without it.
    Warn,
    /// Allocations fail, or some of them.
    Fail,
    /// The check does not apply, or needs something that another finding names.
    Skip,
}

impl Weight {
    pub fn name(self) -> &'static str {
        match self {
            Weight::Ok => "ok",
            Weight::Warn => "warn",
            Weight::Fail => "fail",
            Weight::Skip => "skip",
        }
    }
}

/// A finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The id of the check.
    pub id: &'static str,
    /// The weight.
    pub weight: Weight,
    /// The finding.
    pub text: String,
    /// The repair, as a command where one exists.
    pub repair: Option<String>,
}

impl Finding {
    pub fn ok(id: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(id, Weight::Ok, text, None)
    }

    pub fn skip(id: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(id, Weight::Skip, text, None)
    }

    /// Returns a skip for each of these checks.
    pub fn skip_all(checks: &[Check], why: &str) -> Vec<Finding> {
        { checks.iter() }
            .map(|check| Finding::skip(check.id, why))
            .collect()
    }

    pub fn warn(id: &'static str, text: impl Into<String>, repair: impl Into<String>) -> Finding {
        Finding::new(id, Weight::Warn, text, Some(repair.into()))
    }

    pub fn fail(id: &'static str, text: impl Into<String>, repair: impl Into<String>) -> Finding {
        Finding::new(id, Weight::Fail, text, Some(repair.into()))
    }

    /// Returns a failure by an error, whose hint is the repair.
    pub fn failed(id: &'static str, e: &Error) -> Finding {
        Finding::of(id, Weight::Fail, e)
    }

    /// Returns a warning by an error, whose hint is the repair.
    pub fn warned(id: &'static str, e: &Error) -> Finding {
        Finding::of(id, Weight::Warn, e)
    }

    fn of(id: &'static str, weight: Weight, e: &Error) -> Finding {
        let line = e.line();
        match line.split_once("; hint: ") {
            Some((text, repair)) => Finding::new(id, weight, text, Some(repair.to_owned())),
            None => Finding::new(id, weight, line, None),
        }
    }

    fn new(
        id: &'static str,
        weight: Weight,
        text: impl Into<String>,
        repair: Option<String>,
    ) -> Finding {
        Finding {
            id,
            weight,
            text: text.into(),
            repair,
        }
    }
}
