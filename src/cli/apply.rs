//! `migctl apply` and `migctl restore`: bring the GPUs to the instances of a file, and leave every lease alone.

use super::apply_hooks::Hooks;
use super::json::{LayoutPlan, PlannedItem, PlannedModeItem};
use super::layout_options::{self, Switch, required};
use super::output::{self, Format};
use crate::bundles;
use clap::ValueHint;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Result, printable};
use runmig_lease::layout::{self, Moment};
use runmig_lease::{
    Applied, ApplyOptions, Change, Goal, LeaseManager, Made, PlannedInstance, PlannedMode,
};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const COLUMNS: [&str; 5] = ["GPU", "PLACEMENT", "PROFILE", "CHANGE", "HOLDERS"];

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    source: layout_options::Source,
    #[command(flatten)]
    how: How,
}

/// The options of both verbs.
#[derive(clap::Args)]
struct How {
    /// A file with commands to run before, at and after the changes
    #[arg(short = 'k', long, value_name = "FILE", env = "MIG_PARTED_HOOKS_FILE", value_hint = ValueHint::FilePath)]
    hooks_file: Option<PathBuf>,
    #[command(flatten)]
    modes: layout_options::Modes,
    /// Reset no GPU; a new MIG mode that needs a reset then waits for one
    #[arg(short, long, env = "MIG_PARTED_SKIP_RESET", value_parser = Switch)]
    skip_reset: bool,
    /// Only print what it would do
    #[arg(long)]
    dry_run: bool,
    /// Change the GPUs that allow it, name the others, and exit with 1
    #[arg(long)]
    partial: bool,
    /// How long to wait for leases and processes in the way, as 90s or 10m; new containers do not get their GPUs meanwhile
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration, hide_default_value = true)]
    wait: Duration,
}

#[derive(clap::Args)]
pub struct Restore {
    /// The checkpoint to restore
    #[arg(short = 'f', long, value_name = "FILE", env = "MIG_PARTED_CHECKPOINT_FILE", value_hint = ValueHint::FilePath)]
    checkpoint_file: Option<PathBuf>,
    #[command(flatten)]
    how: How,
}

pub fn run(config: &Config, format: Format, options: &Options) -> Result<i32> {
    let choice = options.source.choice(|| Ok(config.layout.clone()))?;
    let hooks = hooks(&options.how, choice.variables())?;
    let configuration = choice.read()?;
    let goal = Goal::Layout(&configuration);
    let success = "MIG configuration applied successfully";
    let how = (goal, &options.how, hooks.as_ref());
    reach(config, format, how, success)
}

pub fn restore(config: &Config, format: Format, options: &Restore) -> Result<i32> {
    let path = required(options.checkpoint_file.as_deref(), "checkpoint-file")?;
    let hooks = hooks(&options.how, vec![("CHECKPOINT_FILE", path.into())])?;
    let checkpoint = layout::read_checkpoint(path)?;
    let goal = Goal::Checkpoint(&checkpoint);
    let success = "MIG configuration restored successfully";
    let how = (goal, &options.how, hooks.as_ref());
    reach(config, format, how, success)
}

/// Returns the hooks of a verb, with the variables of its own options. An empty variable names no file.
fn hooks(how: &How, mut variables: Vec<(&'static str, OsString)>) -> Result<Option<Hooks>> {
    let file = how.hooks_file.as_deref();
    let Some(file) = file.filter(|file| !file.as_os_str().is_empty()) else {
        return Ok(None);
    };
    let word = |is: bool| OsString::from(if is { "true" } else { "false" });
    variables.extend([
        ("MODE_CHANGE_ONLY", word(how.modes.mode_only)),
        ("SKIP_RESET", word(how.skip_reset)),
        ("HOOKS_FILE", file.into()),
    ]);
    Hooks::read(file, variables).map(Some)
}

fn reach(
    config: &Config,
    format: Format,
    (goal, how, hooks): (Goal<'_>, &How, Option<&Hooks>),
    success: &str,
) -> Result<i32> {
    let leases = match how.dry_run {
        true => bundles::to_look(config)?,
        false => bundles::existing_or_new(config, Actor::Operator)?.0,
    };
    let options = ApplyOptions {
        modes_only: how.modes.mode_only,
        skip_reset: how.skip_reset,
        dry_run: how.dry_run,
        partial: how.partial,
        wait: how.wait,
    };
    let applied = match hooks.filter(|_| !how.dry_run) {
        Some(hooks) => between(hooks, &leases, (goal, options))?,
        None => leases.apply(goal, options)?,
    };
    let refusal = applied.refusal();
    match format {
        Format::Json => output::json(&json(&applied, how.dry_run)),
        Format::Table if how.dry_run => table(&applied),
        Format::Table if refusal.is_some() => {}
        Format::Table => output::line(success),
    }
    if let Some(line) = &refusal {
        output::eprint(line);
    }
    Ok(i32::from(refusal.is_some()))
}

/// Applies between hooks. They may end what is in the way, so those before a change run in either case.
fn between(
    hooks: &Hooks,
    leases: &LeaseManager<'_>,
    (goal, options): (Goal<'_>, ApplyOptions),
) -> Result<Applied> {
    let apply = || {
        hooks.run(Moment::ApplyStart)?;
        let dry_run = true;
        let planned = leases.apply(goal, ApplyOptions { dry_run, ..options })?;
        if !planned.modes.is_empty() {
            hooks.run(Moment::PreApplyMode)?;
        }
        let changes = |one: &PlannedInstance| one.grows || one.change != Change::Keep;
        if planned.instances.iter().any(changes) {
            hooks.run(Moment::PreApplyConfig)?;
        }
        leases.apply(goal, options)
    };
    let applied = apply();
    let end = hooks.run(Moment::ApplyExit);
    match applied {
        Ok(applied) => end.map(|()| applied),
        Err(e) => Err(e.and(end.err())),
    }
}

fn table(applied: &Applied) {
    let mode = |one: &PlannedMode| {
        let change = if one.enabled { "mig-on" } else { "mig-off" };
        let none = || "-".to_owned();
        vec![
            one.gpu_index.to_string(),
            none(),
            none(),
            change.to_owned(),
            in_words(&one.holders),
        ]
    };
    let row = |one: &PlannedInstance| {
        vec![
            one.gpu_index.to_string(),
            one.placement.to_string(),
            in_parts(one),
            one.change.word().to_owned(),
            in_words(&one.holders),
        ]
    };
    let modes = applied.modes.iter().map(mode);
    let rows: Vec<Vec<String>> = modes.chain(applied.instances.iter().map(row)).collect();
    output::table(&COLUMNS, &rows);
}

fn in_words(holders: &[String]) -> String {
    match holders {
        [] => "-".to_owned(),
        all => printable(&all.join(", ")),
    }
}

/// Returns the profile of an instance, with its compute instances unless one fills it: `3g.40gb (1c + 1c + 1c)`.
fn in_parts(one: &PlannedInstance) -> String {
    match one.compute.as_slice() {
        _ if one.is_whole => one.profile.clone(),
        [] => format!("{} (empty)", one.profile),
        parts => {
            let parts: Vec<String> = parts.iter().map(|slices| format!("{slices}c")).collect();
            format!("{} ({})", one.profile, parts.join(" + "))
        }
    }
}

fn json(applied: &Applied, dry_run: bool) -> LayoutPlan<'_> {
    let item = |one| PlannedItem::from(one);
    LayoutPlan {
        configuration: &applied.layout,
        dry_run,
        applied: applied.made == Made::All,
        error: applied.refusal(),
        modes: applied.modes.iter().map(PlannedModeItem::from).collect(),
        items: applied.instances.iter().map(item).collect(),
    }
}

impl<'a> From<&'a PlannedMode> for PlannedModeItem<'a> {
    fn from(one: &'a PlannedMode) -> Self {
        PlannedModeItem {
            gpu_index: one.gpu_index,
            gpu_uuid: one.gpu_uuid.as_str(),
            mig_enabled: one.enabled,
            holders: &one.holders,
        }
    }
}

impl<'a> From<&'a PlannedInstance> for PlannedItem<'a> {
    fn from(one: &'a PlannedInstance) -> Self {
        PlannedItem {
            gpu_index: one.gpu_index,
            gpu_uuid: one.gpu_uuid.as_str(),
            mig_placement: one.placement.into(),
            profile: &one.profile,
            compute_slices: &one.compute,
            change: one.change.word(),
            holders: &one.holders,
        }
    }
}
