//! `migctl doctor`: checks all that an allocation needs, and changes nothing.
//!
//! Each group of checks is a file. A check returns findings with a stable id; a finding that is not well has a repair.

mod clock;
mod command;
mod configuration;
mod conflicts;
mod driver;
mod engines;
mod files;
mod finding;
mod hooks;
mod host;
mod kubernetes;
mod machine;
mod mig;
mod nodes;
mod processes;
mod programs;
mod sharing;
mod state;
mod timers;
mod trial;

use super::json::{DiagnosisItem, Items};
use super::output::{self, Format};
use clap::ValueEnum;
use finding::{Finding, Weight};
use host::Host;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use std::time::{Duration, Instant};
use trial::Trial;

/// The time between two rounds of `--wait`.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Options {
    /// Make only the checks of these groups
    #[arg(long, value_enum, value_name = "GROUP", value_delimiter = ',')]
    only: Vec<Group>,
    /// Leave out the checks of these groups
    #[arg(long, value_enum, value_name = "GROUP", value_delimiter = ',')]
    skip: Vec<Group>,
    /// Check again until nothing fails, for this long: 60s, 2m
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    trial: Trial,
}

/// The groups, in the order in which an allocation needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    Programs,
    Configuration,
    State,
    Driver,
    Nodes,
    Mig,
    Sharing,
    Conflicts,
    Kubernetes,
    Files,
    Engines,
    Hooks,
    Timers,
    Clock,
    Machine,
    /// The options --slice, --share and --gpu make it.
    Trial,
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Group::Programs => "programs",
            Group::Configuration => "configuration",
            Group::State => "state",
            Group::Driver => "driver",
            Group::Nodes => "nodes",
            Group::Mig => "mig",
            Group::Sharing => "sharing",
            Group::Conflicts => "conflicts",
            Group::Kubernetes => "kubernetes",
            Group::Files => "files",
            Group::Engines => "engines",
            Group::Hooks => "hooks",
            Group::Timers => "timers",
            Group::Clock => "clock",
            Group::Machine => "machine",
            Group::Trial => "trial",
        }
    }

    fn findings(self, host: &Host, trial: &Trial) -> Vec<Finding> {
        match self {
            Group::Programs => programs::findings(host),
            Group::Configuration => configuration::findings(host),
            Group::State => state::findings(host),
            Group::Driver => driver::findings(host),
            Group::Nodes => nodes::findings(host),
            Group::Mig => mig::findings(host),
            Group::Sharing => sharing::findings(host),
            Group::Conflicts => conflicts::findings(),
            Group::Kubernetes => kubernetes::findings(host),
            Group::Files => files::findings(host),
            Group::Engines => engines::findings(host),
            Group::Hooks => hooks::findings(host),
            Group::Timers => timers::findings(),
            Group::Clock => clock::findings(host),
            Group::Machine => machine::findings(),
            Group::Trial if trial.is_asked() => trial.findings(host),
            Group::Trial => Vec::new(),
        }
    }
}

/// Prints the findings. `config`: the configuration, or the reason for which there is none.
pub fn run(config: &dyn Fn() -> Result<Config>, format: Format, options: &Options) -> Result<i32> {
    let end = Instant::now() + options.wait.unwrap_or_default();
    let findings = loop {
        let findings = round(&Host::look(config()), options);
        let fails = findings.iter().any(|(_, f)| f.weight == Weight::Fail);
        let left = end.saturating_duration_since(Instant::now());
        if !fails || left.is_zero() {
            break findings;
        }
        std::thread::sleep(PAUSE.min(left));
    };
    match format {
        Format::Json => json(&findings),
        Format::Table => table(&findings),
    }
    match findings
        .iter()
        .filter(|(_, f)| f.weight == Weight::Fail)
        .count()
    {
        0 => Ok(0),
        1 => Err(Error::new("cannot allocate on this machine: 1 check fails")
            .hint("run the repair below the line with fail")),
        n => Err(
            Error::new(format!("cannot allocate on this machine: {n} checks fail"))
                .hint("run the repairs below the lines with fail, the first one first"),
        ),
    }
}

fn round(host: &Host, options: &Options) -> Vec<(Group, Finding)> {
    let is_wanted = |group: &Group| {
        (options.only.is_empty() || options.only.contains(group)) && !options.skip.contains(group)
    };
    let groups = Group::value_variants().iter().copied().filter(is_wanted);
    groups
        .flat_map(|group| {
            group
                .findings(host, &options.trial)
                .into_iter()
                .map(move |f| (group, f))
        })
        .collect()
}

fn table(findings: &[(Group, Finding)]) {
    for (group, finding) in findings {
        let id = format!("{}.{}", group.name(), finding.id);
        output::line(&format!(
            "{:<5} {id:<24} {}",
            finding.weight.name(),
            printable(&finding.text)
        ));
        if let Some(repair) = &finding.repair {
            output::line(&format!("      repair: {}", printable(repair)));
        }
    }
}

fn json(findings: &[(Group, Finding)]) {
    let items: Vec<DiagnosisItem<'_>> = { findings.iter() }
        .map(|(group, finding)| DiagnosisItem {
            id: format!("{}.{}", group.name(), finding.id),
            group: group.name(),
            status: finding.weight.name(),
            text: &finding.text,
            repair: finding.repair.as_deref(),
        })
        .collect();
    output::json(&Items { items: &items });
}
