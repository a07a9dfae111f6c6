//! `migctl apply`: brings the GPUs to the layout of a file, and leaves every lease alone.

use super::json::LayoutPlan;
use super::layout_options::Source;
use super::output::{self, Format};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Result, printable};
use runmig_lease::{Applied, ApplyOptions, Made, PlannedInstance, PlannedMode};
use std::time::Duration;

const COLUMNS: [&str; 5] = ["GPU", "PLACEMENT", "PROFILE", "CHANGE", "HOLDERS"];

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    source: Source,
    /// Reset no GPU; a new MIG mode that needs a reset then waits for one
    #[arg(short, long)]
    skip_reset: bool,
    /// Where the machine cannot reset a GPU, keep its new MIG mode for a reboot instead of setting it back
    #[arg(long, conflicts_with = "skip_reset")]
    pending: bool,
    /// Only print what it would do
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for leases and processes in the way, as 90s or 10m; new containers do not get their GPUs meanwhile
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration, hide_default_value = true)]
    wait: Duration,
}

pub fn run(config: &Config, format: Format, options: &Options) -> Result<i32> {
    let layout = options.source.read(&config.layout)?;
    let dry_run = options.dry_run;
    let leases = match dry_run {
        true => bundles::to_look(config)?,
        false => bundles::existing_or_new(config, Actor::Operator)?.0,
    };
    let how = ApplyOptions {
        skip_reset: options.skip_reset,
        keep_pending: options.pending,
        dry_run,
        wait: options.wait,
    };
    let applied = leases.apply(&layout, how)?;
    let refusal = applied.refusal();
    match format {
        Format::Json => output::json(
            "LayoutPlan",
            &LayoutPlan {
                configuration: &applied.layout,
                dry_run,
                applied: applied.made == Made::All,
                error: refusal.clone(),
                modes: &applied.modes,
                items: &applied.instances,
            },
        ),
        Format::Table if dry_run => table(&applied),
        Format::Table if refusal.is_some() => {}
        Format::Table => output::line(&format!("layout {} is applied", printable(&layout.name))),
    }
    if let Some(line) = &refusal {
        output::eprint(line);
    }
    Ok(i32::from(refusal.is_some()))
}

fn table(applied: &Applied) {
    let holders = |holders: &[String]| match holders {
        [] => "-".to_owned(),
        all => printable(&all.join(", ")),
    };
    let mode = |one: &PlannedMode| {
        let change = if one.mig_enabled { "mig-on" } else { "mig-off" };
        let (gpu, none) = (one.gpu_index.to_string(), || "-".to_owned());
        let change = change.to_owned();
        vec![gpu, none(), none(), change, holders(&one.holders)]
    };
    let row = |one: &PlannedInstance| {
        vec![
            one.gpu_index.to_string(),
            one.mig_placement.to_string(),
            in_parts(one),
            one.change.to_owned(),
            holders(&one.holders),
        ]
    };
    let modes = applied.modes.iter().map(mode);
    let rows: Vec<Vec<String>> = modes.chain(applied.instances.iter().map(row)).collect();
    output::table(&COLUMNS, &rows);
}

/// Returns the profile of an instance, with its compute instances unless one fills it: `3g.40gb (1c + 1c + 1c)`.
fn in_parts(one: &PlannedInstance) -> String {
    match one.compute_slices.as_slice() {
        _ if one.is_whole => one.profile.clone(),
        [] => format!("{} (empty)", one.profile),
        parts => {
            let parts: Vec<String> = parts.iter().map(|slices| format!("{slices}c")).collect();
            format!("{} ({})", one.profile, parts.join(" + "))
        }
    }
}
