//! Planned faults: rules in `DIR/faults.json`, each with the number of calls that it has seen.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use fs2::FileExt;
use serde::{Deserialize, Serialize};

use crate::state::{self, replace};

pub const FILE: &str = "faults.json";
const LOCK: &str = "faults.lock";

/// A rule for calls of one function, or of all (`*`), counted over all processes from when the
/// rule was set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Rule {
    pub call: String,
    /// The first and the last call it is for; no last one: all that follow.
    pub from: u64,
    pub to: Option<u64>,
    /// How long such a call takes, in milliseconds.
    #[serde(default)]
    pub takes_ms: u64,
    pub outcome: Option<Outcome>,
    #[serde(default)]
    pub seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The call does nothing and returns the code.
    Return(u32),
    /// The call does what it does and returns the code all the same.
    ReturnAfter(u32),
    Kill(Moment),
    /// `nvmlDeviceSetMigMode` does nothing, returns success, and gives out this status.
    ActivationStatus(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// Before the call did anything.
    Before,
    /// After the machine changed and before its capability files did.
    During,
    /// After the call's whole effect, before it returns.
    After,
}

/// The outcome of the rules for one call.
#[derive(Default)]
pub struct Plan {
    pub takes: Duration,
    pub outcome: Option<Outcome>,
}

impl Rule {
    /// For every call of a function, and without effect.
    pub fn every(call: &str) -> Rule {
        Rule {
            call: call.to_owned(),
            from: 1,
            to: None,
            takes_ms: 0,
            outcome: None,
            seen: 0,
        }
    }

    /// For the n-th call of a function alone.
    pub fn nth(call: &str, n: u64, outcome: Outcome) -> Rule {
        Rule {
            from: n,
            to: Some(n),
            outcome: Some(outcome),
            ..Rule::every(call)
        }
    }

    fn covers(&self, number: u64) -> bool {
        number >= self.from && self.to.is_none_or(|to| number <= to)
    }
}

pub fn list(dir: &Path) -> io::Result<Vec<Rule>> {
    match fs::read(dir.join(FILE)) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn lock(dir: &Path) -> io::Result<File> {
    let lock = File::create(dir.join(LOCK))?;
    FileExt::lock_exclusive(&lock)?;
    Ok(lock)
}

pub fn add(dir: &Path, rule: Rule) -> io::Result<()> {
    let _lock = lock(dir)?;
    let mut rules = list(dir)?;
    rules.push(rule);
    replace(&dir.join(FILE), &serde_json::to_vec_pretty(&rules)?)?;
    state::renew(dir)
}

pub fn clear(dir: &Path) -> io::Result<()> {
    let _lock = lock(dir)?;
    state::remove(&dir.join(FILE))
}

/// Counts a call and says what shall become of it. The times of all rules that cover it add up;
/// of their outcomes the first counts.
pub fn plan(dir: &Path, call: &str) -> io::Result<Plan> {
    if !dir.join(FILE).exists() {
        return Ok(Plan::default());
    }
    let _lock = lock(dir)?;
    let mut rules = list(dir)?;
    let mut plan = Plan::default();
    for rule in rules.iter_mut().filter(|r| r.call == "*" || r.call == call) {
        rule.seen += 1;
        if rule.covers(rule.seen) {
            plan.takes += Duration::from_millis(rule.takes_ms);
            plan.outcome = plan.outcome.or(rule.outcome);
        }
    }
    if !rules.is_empty() {
        replace(&dir.join(FILE), &serde_json::to_vec_pretty(&rules)?)?;
    }
    Ok(plan)
}
