//! Findings of checks, as `migctl doctor` and `runmig-dra check` print them.

use crate::error::{Error, printable};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// How a check ended. The order is that of the output: problems first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Creates fail, or some of them.
    Fail,
    /// Something needs a look, and creates work without it.
    Warn,
    /// All is well.
    Ok,
    /// The check does not apply, or needs something that another finding names.
    Skip,
}

impl Status {
    /// Returns the word of the output.
    pub fn name(self) -> &'static str {
        match self {
            Status::Fail => "fail",
            Status::Warn => "warn",
            Status::Ok => "ok",
            Status::Skip => "skip",
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check, as `GROUP.NAME`. The frame fills it in.
    #[serde(default)]
    pub id: String,
    /// How bad it is.
    pub status: Status,
    /// The finding in words.
    pub text: String,
    /// The repair, a command where one exists.
    pub repair: Option<String>,
}

/// The problems that a check found; none where all is well. An error ends the check as its only finding.
pub type Found = Result<Vec<Finding>, Finding>;

impl Finding {
    /// Returns a failure with its repair.
    pub fn fail(text: impl Into<String>, repair: impl Into<String>) -> Finding {
        Finding::new(Status::Fail, text, Some(repair.into()))
    }

    /// Returns a warning with its repair.
    pub fn warn(text: impl Into<String>, repair: impl Into<String>) -> Finding {
        Finding::new(Status::Warn, text, Some(repair.into()))
    }

    /// Returns a finding that all is well.
    pub fn ok(text: impl Into<String>) -> Finding {
        Finding::new(Status::Ok, text, None)
    }

    /// Returns a check that was not made, and why.
    pub fn skip(why: impl Into<String>) -> Finding {
        Finding::new(Status::Skip, why, None)
    }

    /// Returns a warning in an error's words, whose hint is the repair.
    pub fn warned(e: Error) -> Finding {
        Finding::in_words(Status::Warn, &e.line())
    }

    /// Returns a problem in the words of an error's line: the text, and the repair behind `; hint: `.
    pub fn in_words(status: Status, line: &str) -> Finding {
        match line.split_once("; hint: ") {
            Some((text, repair)) => Finding::new(status, text, Some(repair.to_owned())),
            None => Finding::new(status, line, None),
        }
    }

    fn new(status: Status, text: impl Into<String>, repair: Option<String>) -> Finding {
        Finding {
            id: String::new(),
            status,
            text: text.into(),
            repair,
        }
    }
}

/// A failure in the words that the create would have.
impl From<Error> for Finding {
    fn from(e: Error) -> Finding {
        Finding::in_words(Status::Fail, &e.line())
    }
}

/// Returns the findings of one check. `what` holds where nothing is found.
pub fn named(id: &str, what: &str, found: Found) -> Vec<Finding> {
    let mut found = found.unwrap_or_else(|why| vec![why]);
    if found.is_empty() {
        found.push(Finding::ok(what));
    }
    for finding in &mut found {
        id.clone_into(&mut finding.id);
    }
    found
}

/// Returns the number of findings with a status.
pub fn count(findings: &[Finding], status: Status) -> usize {
    findings.iter().filter(|f| f.status == status).count()
}

/// Returns the findings, problems first. `quiet` leaves out all that is well.
pub fn shown(findings: &[Finding], quiet: bool) -> Vec<&Finding> {
    let mut shown: Vec<&Finding> = findings.iter().collect();
    shown.retain(|finding| !quiet || finding.status <= Status::Warn);
    shown.sort_by_key(|finding| finding.status);
    shown
}

/// Returns the findings that are shown in lines, with a summary of all.
pub fn table(findings: &[Finding], quiet: bool) -> String {
    let mut lines = String::new();
    for finding in shown(findings, quiet) {
        let (status, id) = (finding.status.name(), &finding.id);
        let _ = writeln!(lines, "{status:<5} {id:<24} {}", printable(&finding.text));
        if let Some(repair) = &finding.repair {
            let _ = writeln!(lines, "      repair: {}", printable(repair));
        }
    }
    let of = |status| count(findings, status);
    let (fail, warn) = (of(Status::Fail), of(Status::Warn));
    if !quiet || fail + warn > 0 {
        let (ok, skip) = (of(Status::Ok), of(Status::Skip));
        let _ = writeln!(
            lines,
            "{fail} failed, {warn} to look at, {ok} well, {skip} skipped"
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_first_and_quiet_shows_them_alone() {
        let mut findings = named("a.well", "all is well", Ok(Vec::new()));
        findings.extend(named("b.skip", "", Err(Finding::skip("no GPU"))));
        let e = || Error::new("cannot open x").hint("chown it to root");
        findings.extend(named("c.warn", "", Ok(vec![Finding::warned(e())])));
        findings.extend(named("d.fail", "", Err(e().into())));
        let problems = "fail  d.fail                   cannot open x\n      repair: chown it to root\n\
                        warn  c.warn                   cannot open x\n      repair: chown it to root\n";
        let rest =
            "ok    a.well                   all is well\nskip  b.skip                   no GPU\n";
        let summary = "1 failed, 1 to look at, 1 well, 1 skipped\n";
        assert_eq!(
            table(&findings, false),
            format!("{problems}{rest}{summary}")
        );
        assert_eq!(table(&findings, true), format!("{problems}{summary}"));
        assert_eq!(table(&findings[..2], true), "");
    }
}
