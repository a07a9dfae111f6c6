//! The groups of checks, in the order in which an allocation needs them.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use super::trial::{self, Trial};
use super::{
    clock, configuration, conflicts, driver, engines, files, hooks, kubernetes, machine, mig,
    nodes, programs, sharing, state, timers,
};

/// A group: its checks, and the function that makes them.
pub struct Group {
    pub name: &'static str,
    pub checks: &'static [Check],
    findings: fn(&Host, &Trial) -> Vec<Finding>,
}

pub const GROUPS: [Group; 16] = [
    Group {
        name: "programs",
        checks: programs::CHECKS,
        findings: |host, _| programs::findings(host),
    },
    Group {
        name: "configuration",
        checks: configuration::CHECKS,
        findings: |host, _| configuration::findings(host),
    },
    Group {
        name: "state",
        checks: state::CHECKS,
        findings: |host, _| state::findings(host),
    },
    Group {
        name: "driver",
        checks: driver::CHECKS,
        findings: |host, _| driver::findings(host),
    },
    Group {
        name: "nodes",
        checks: nodes::CHECKS,
        findings: |host, _| nodes::findings(host),
    },
    Group {
        name: "mig",
        checks: mig::CHECKS,
        findings: |host, _| mig::findings(host),
    },
    Group {
        name: "sharing",
        checks: sharing::CHECKS,
        findings: |host, _| sharing::findings(host),
    },
    Group {
        name: "conflicts",
        checks: conflicts::CHECKS,
        findings: |_, _| conflicts::findings(),
    },
    Group {
        name: "kubernetes",
        checks: kubernetes::CHECKS,
        findings: |host, _| kubernetes::findings(host),
    },
    Group {
        name: "files",
        checks: files::CHECKS,
        findings: |host, _| files::findings(host),
    },
    Group {
        name: "engines",
        checks: engines::CHECKS,
        findings: |host, _| engines::findings(host),
    },
    Group {
        name: "hooks",
        checks: hooks::CHECKS,
        findings: |host, _| hooks::findings(host),
    },
    Group {
        name: "timers",
        checks: timers::CHECKS,
        findings: |_, _| timers::findings(),
    },
    Group {
        name: "clock",
        checks: clock::CHECKS,
        findings: |host, _| clock::findings(host),
    },
    Group {
        name: "machine",
        checks: machine::CHECKS,
        findings: |host, _| machine::findings(host),
    },
    Group {
        name: "trial",
        checks: trial::CHECKS,
        findings: |host, trial| match trial.is_asked() {
            true => trial.findings(host),
            false => Vec::new(),
        },
    },
];

impl Group {
    /// Makes the checks of the group.
    pub fn findings(&self, host: &Host, trial: &Trial) -> Vec<Finding> {
        (self.findings)(host, trial)
    }
}
