//! `migctl doctor`: checks whether a create can work on this machine, and changes nothing.
//!
//! A check is a function that returns the problems it found, and a line in the table below. Where a create would fail
//! with an error, the check calls the same code and has its words. A check that cannot be made is skipped, never well.

mod engines;
mod gpus;
mod host;
mod kubernetes;
mod machine;
mod programs;
mod trial;

use super::json::{DiagnosisItem, Items};
use super::output::{self, Format};
use clap::builder::{PossibleValue, PossibleValuesParser};
use host::Host;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::finding::{self, Finding, Found, Status};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The time between two rounds of `--wait`.
const PAUSE: Duration = Duration::from_secs(1);

struct Check {
    /// `GROUP.NAME`, for `--only` and `--skip`.
    id: &'static str,
    /// What holds where all is well.
    what: &'static str,
    run: fn(&Host) -> Found,
}

/// Writes the table: the id of each check, its function, and what holds where all is well.
macro_rules! checks {
    ($($id:literal $module:ident::$run:ident $what:literal)*) => {
        &[$(Check { id: $id, what: $what, run: $module::$run },)*]
    };
}

/// All checks, in the order in which a create needs them.
const CHECKS: &[Check] = checks! {
    "programs.files" programs::programs
        "runmig, runmig-slice, runmig-hook and migctl are root's alone, in one folder, of one version, and run"
    "programs.runtime" programs::runtimes
        "each configuration has a low-level runtime that answers and takes the specifications of current engines"
    "configuration.files" programs::configurations
        "runmig reads its configuration, and the files of other handlers"
    "configuration.rules" programs::rules
        "the rules fit the GPUs of this machine, and leave some room for slices"
    "host.rights" machine::rights
        "migctl runs as root on the host"
    "host.boot" machine::boot
        "the boot id is readable"
    "host.cgroups" machine::cgroups
        "cgroups can hold device rules"
    "host.confinement" machine::confinement
        "neither SELinux nor AppArmor keeps engines from runmig, or containers from devices"
    "host.gc" machine::gc
        "runmig-gc.timer is active, and its last run succeeded"
    "state.folder" machine::folder
        "the state directory and the folders above it belong to root alone"
    "state.space" machine::space
        "the file system of the state directory has 16 MiB and 1000 inodes left"
    "state.records" machine::records
        "the ledger is whole"
    "driver.library" gpus::library
        "the NVIDIA driver's library answers, and has every function that runmig calls"
    "driver.gpus" gpus::gpus
        "each GPU answers, and none is sick or cordoned"
    "driver.missing" gpus::missing
        "every GPU of the last boot is there"
    "nodes.devices" gpus::devices
        "nvidiactl, nvidia-uvm and the node of each GPU exist, have their numbers and open"
    "nodes.mig" gpus::capabilities
        "the capability nodes by which root makes and watches instances exist and open"
    "mig.mode" gpus::mode
        "no MIG mode waits for a reset"
    "mig.foreign" gpus::foreign
        "runmig made every GPU instance"
    "mig.records" gpus::records
        "the driver has every slice on record, and has destroyed every released one"
    "sharing.levels" gpus::levels
        "shares may hold at a level"
    "engines.registered" engines::registered
        "each engine that calls runmig calls this one, and has started since its configuration changed"
    "engines.programs" engines::programs
        "each runmig that a file of an engine names is there, with its configuration"
    "engines.default" engines::default
        "no engine gives the request of a configuration to all containers that name no runtime"
    "engines.hook" engines::hook
        "each engine that calls runmig finds runmig-hook among its mounts"
    "engines.podman" engines::podman
        "podman does not restore a checkpoint image with the image's own settings (CVE-2026-94603)"
    "engines.files" engines::driver_files
        "containers get libcuda, and every file of the CDI specification exists"
    "conflicts.programs" engines::conflicts
        "no other program makes, holds or gives out MIG instances, now or at the boot"
};

#[derive(clap::Args)]
pub struct Options {
    /// Make only these checks: a group, or a check such as state.space
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = names(), hide_possible_values = true)]
    only: Vec<String>,
    /// Leave out these checks
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = names(), hide_possible_values = true)]
    skip: Vec<String>,
    /// Print problems alone
    #[arg(long, short)]
    quiet: bool,
    /// Make the checks of runmig-dra too: the cluster, the kubelet and the engine's CDI
    #[arg(long)]
    kubernetes: bool,
    /// Check again until nothing fails, for this long: 60s, 2m
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    trial: trial::Trial,
}

/// Returns the names of all groups and checks.
fn names() -> PossibleValuesParser {
    let groups: BTreeSet<&str> = CHECKS.iter().map(|check| group(check.id)).collect();
    let groups = groups.into_iter().map(PossibleValue::new);
    let value = |check: &Check| PossibleValue::new(check.id).help(check.what);
    let checks = CHECKS.iter().map(value);
    PossibleValuesParser::new(groups.chain(checks))
}

fn group(id: &str) -> &str {
    id.split_once('.').map_or(id, |(group, _)| group)
}

impl Options {
    fn wants(&self, id: &str) -> bool {
        let has = |list: &[String]| list.iter().any(|name| name == id || name == group(id));
        (self.only.is_empty() || has(&self.only)) && !has(&self.skip)
    }
}

/// Prints the findings. `config`: the configuration, or why there is none.
pub fn run(config: &dyn Fn() -> Result<Config>, format: Format, options: &Options) -> Result<i32> {
    let end = Instant::now() + options.wait.unwrap_or_default();
    let findings = loop {
        let findings = round(&Host::look(config()), options);
        let left = end.saturating_duration_since(Instant::now());
        if finding::count(&findings, Status::Fail) == 0 || left.is_zero() {
            break findings;
        }
        std::thread::sleep(PAUSE.min(left));
    };
    match format {
        Format::Json => json(&findings, options.quiet),
        Format::Table => output::text(&finding::table(&findings, options.quiet)),
    }
    match finding::count(&findings, Status::Fail) {
        0 => Ok(0),
        n => {
            let fail = if n == 1 { "check fails" } else { "checks fail" };
            let e = Error::new(format!("{n} {fail}"));
            Err(e.hint("run the repair below the first line with fail"))
        }
    }
}

fn round(host: &Host, options: &Options) -> Vec<Finding> {
    let wanted = CHECKS.iter().filter(|check| options.wants(check.id));
    let one = |check: &Check| finding::named(check.id, check.what, (check.run)(host));
    let mut findings: Vec<Finding> = wanted.flat_map(one).collect();
    if options.kubernetes {
        findings.extend(kubernetes::findings(host));
    }
    findings.extend(options.trial.findings(host));
    findings
}

fn json(findings: &[Finding], quiet: bool) {
    let item = |finding| DiagnosisItem {
        finding,
        group: group(&finding.id),
    };
    let shown = finding::shown(findings, quiet).into_iter();
    let items: Vec<DiagnosisItem<'_>> = shown.map(item).collect();
    output::json("Diagnosis", &Items { items: &items });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the table with UPDATE=1.
    #[test]
    fn document_lists_every_check() {
        const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migctl-explain.md");
        const HEAD: &str = "| check | holds where all is well |\n| --- | --- |\n";
        let text = std::fs::read_to_string(FILE).unwrap();
        let (before, rest) = text
            .split_once(HEAD)
            .expect("docs/migctl-explain.md has the table");
        let rows = { rest.split_inclusive('\n') }.take_while(|line| line.starts_with("| `"));
        let end: usize = rows.map(str::len).sum();
        let rows = CHECKS
            .iter()
            .map(|check| format!("| `{}` | {} |\n", check.id, check.what));
        let fresh = format!("{before}{HEAD}{}{}", rows.collect::<String>(), &rest[end..]);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(FILE, &fresh).unwrap();
        } else {
            assert!(
                text == fresh,
                "docs/migctl-explain.md is stale: UPDATE=1 cargo test -p runmig --lib cli::doctor"
            );
        }
    }
}
