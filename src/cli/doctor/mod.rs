//! `migctl doctor`: checks all that an allocation needs, and changes nothing.
//!
//! Each group of checks is a file. A check returns findings with its id; a finding that is not well has a repair. A check
//! that cannot be made is `skip` or `warn`, never `ok`.

mod check;
mod choice;
mod clock;
mod command;
mod configuration;
mod conflicts;
mod driver;
mod engines;
mod files;
mod finding;
mod group;
mod hooks;
mod host;
mod kubernetes;
mod machine;
mod mig;
mod nodes;
#[cfg(test)]
mod page;
mod programs;
mod sharing;
mod state;
mod timers;
mod trial;

use super::json::{DiagnosisItem, Items};
use super::output::{self, Format};
use choice::Choice;
use finding::{Finding, Weight};
use group::{GROUPS, Group};
use host::Host;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use std::time::{Duration, Instant};
use trial::Trial;

/// The time between two rounds of `--wait`.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Check again until nothing fails, for this long: 60s, 2m
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    trial: Trial,
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

fn round(host: &Host, options: &Options) -> Vec<(&'static Group, Finding)> {
    let wanted = GROUPS.iter().filter(|group| options.choice.has_any(group));
    let findings = wanted.flat_map(|group| {
        let findings = group.findings(host, &options.trial).into_iter();
        findings.map(move |finding| (group, with_remedy(group, finding)))
    });
    findings
        .filter(|(group, finding)| options.choice.has(group, finding.id))
        .collect()
}

/// Gives a finding without a repair the general one of its check.
fn with_remedy(group: &Group, mut finding: Finding) -> Finding {
    let check = group.checks.iter().find(|check| check.id == finding.id);
    if let (Some(check), Weight::Warn | Weight::Fail, None) =
        (check, finding.weight, &finding.repair)
    {
        finding.repair = Some(check.remedy.to_owned());
    }
    finding
}

fn table(findings: &[(&Group, Finding)]) {
    for (_, finding) in findings {
        let id = finding.id;
        output::line(&format!(
            "{:<5} {id:<26} {}",
            finding.weight.name(),
            printable(&finding.text)
        ));
        if let Some(repair) = &finding.repair {
            output::line(&format!("      repair: {}", printable(repair)));
        }
    }
}

fn json(findings: &[(&Group, Finding)]) {
    let items: Vec<DiagnosisItem<'_>> = { findings.iter() }
        .map(|(group, finding)| DiagnosisItem {
            id: finding.id,
            group: group.name,
            status: finding.weight.name(),
            text: &finding.text,
            repair: finding.repair.as_deref(),
        })
        .collect();
    output::json(&Items { items: &items });
}
