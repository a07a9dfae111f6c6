//! `runmig-dra check`: each problem of this node, with its remedy.

mod cluster;
mod engine;
mod machine;

use crate::options::Options;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use std::fmt;
use std::io::Write;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// All is well.
    Ok,
    /// Something is missing that claims can do without, or cannot be found out.
    Warn,
    /// Claims do not work on this node.
    Fail,
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The weight.
    pub(crate) weight: Weight,
    /// The finding, with its remedy.
    pub(crate) line: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = match self.weight {
            Weight::Ok => "ok",
            Weight::Warn => "warn",
            Weight::Fail => "fail",
        };
        write!(f, "{weight:<6}{}", self.line)
    }
}

fn ok(line: impl Into<String>) -> Finding {
    let line = line.into();
    Finding {
        weight: Weight::Ok,
        line,
    }
}

fn warn(e: &Error) -> Finding {
    Finding {
        weight: Weight::Warn,
        line: e.line(),
    }
}

fn fail(e: &Error) -> Finding {
    Finding {
        weight: Weight::Fail,
        line: e.line(),
    }
}

/// Makes all checks.
pub(crate) async fn check(options: &Options, config: &Config) -> Vec<Finding> {
    let mut findings = machine::findings(options, config);
    findings.extend(engine::findings(options, config));
    findings.extend(cluster::findings(options).await);
    findings
}

/// Prints the findings.
///
/// # Errors
/// One of them is a failure.
pub(crate) fn print(findings: &[Finding]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for finding in findings {
        // A reader such as head may have ended.
        writeln!(out, "{finding}").context(|| "write the findings")?;
    }
    let failures = findings.iter().filter(|f| f.weight == Weight::Fail).count();
    match failures {
        0 => Ok(()),
        1 => Err(Error::new(
            "cannot serve claims on this node: 1 check fails",
        )),
        n => Err(Error::new(format!(
            "cannot serve claims on this node: {n} checks fail"
        ))),
    }
    .map_err(|e| e.hint("follow the hints of the lines with fail"))
}
