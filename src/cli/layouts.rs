//! The verbs of layouts: `migctl apply`, `assert` and `export`.

use super::driver;
use super::json::{AssertedGpu, LayoutAssertion, LayoutPlan};
use super::output::{self, Format};
use crate::bundles;
use clap::ValueHint;
use runmig_lease::config::{Config, Layout};
use runmig_lease::counters::Actor;
use runmig_lease::error::{Context, Error, Result, printable};
use runmig_lease::layout::{Configuration, LayoutFile};
use runmig_lease::{Applied, ApplyOptions, Made, PlannedInstance, PlannedMode, layout};
use std::path::{Path, PathBuf};
use std::time::Duration;

const COLUMNS: [&str; 5] = ["GPU", "PLACEMENT", "PROFILE", "CHANGE", "HOLDERS"];

#[derive(clap::Args)]
pub struct ApplyArguments {
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

/// Brings the GPUs to the layout of a file, and leaves every lease alone.
pub fn apply(config: &Config, format: Format, options: &ApplyArguments) -> Result<i32> {
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

/// A configuration of a file.
#[derive(clap::Args)]
pub struct Source {
    /// The file with layouts; - reads standard input [default: layout.file in runmig's configuration]
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config_file: Option<PathBuf>,
    /// The name of the layout, which may be left out for a file with one [default: layout.config for layout.file]
    #[arg(short = 'c', long, value_name = "NAME")]
    selected_config: Option<String>,
}

impl Source {
    /// Reads the configuration that the options choose, and without a file the one of this machine.
    pub fn read(&self, machines: &Layout) -> Result<Configuration> {
        let name = self.selected_config.as_deref();
        if let Some(file) = &self.config_file {
            return read(file, name);
        }
        let file = machines.file.as_ref().ok_or_else(|| {
            Error::new("no file is named")
                .hint("name one with --config-file, or set layout.file in runmig's configuration")
        })?;
        read(file, name.or(machines.config.as_deref()))
    }
}

/// Reads a file, and returns the configuration with this name, or the only one.
fn read(file: &Path, name: Option<&str>) -> Result<Configuration> {
    let read = match file == Path::new("-") {
        true => LayoutFile::read_from(std::io::stdin().lock()),
        false => LayoutFile::read(file),
    };
    let read =
        read.map_err(|e| e.hint("name a file as migctl export writes it, of at most 1 MiB"))?;
    let what = || format!("select a configuration of {}", file.display());
    read.select(name).context(what)
}

/// Says whether the machine has a layout.
pub fn assert(config: &Config, format: Format, source: &Source) -> Result<i32> {
    let configuration = source.read(&config.layout)?;
    let gpus = driver::ask(config).detailed_gpus()?;
    let targets = layout::resolve(&configuration, &gpus)?;
    layout::validate(&targets, &gpus)?;
    let item = |(target, gpu): (&Option<_>, _)| {
        let difference = layout::difference(*target, gpu);
        AssertedGpu {
            gpu_index: gpu.gpu.index,
            gpu_uuid: gpu.gpu.uuid.to_string(),
            applied: difference.is_none(),
            difference,
        }
    };
    let gpus: Vec<AssertedGpu> = targets.iter().zip(&gpus).map(item).collect();
    let assertion = LayoutAssertion {
        applied: gpus.iter().all(|gpu| gpu.applied),
        configuration: configuration.name,
        gpus,
    };
    match format {
        Format::Json => output::json("LayoutAssertion", &assertion),
        Format::Table if assertion.applied => {
            let name = printable(&assertion.configuration);
            output::line(&format!("the machine has layout {name}"));
        }
        Format::Table => {
            for gpu in &assertion.gpus {
                if let Some(difference) = &gpu.difference {
                    output::eprint(&format!("GPU {}: {difference}", gpu.gpu_index));
                }
            }
        }
    }
    Ok(i32::from(!assertion.applied))
}

#[derive(clap::Args)]
pub struct ExportArguments {
    /// The name of the configuration in the file
    #[arg(short = 'l', long, value_name = "LABEL", default_value = layout::DEFAULT_LABEL)]
    config_label: String,
}

/// Prints YAML, or with `-o json` the same file in JSON.
/// Prints the layout of the machine.
pub fn export(config: &Config, format: Format, options: &ExportArguments) -> Result<i32> {
    let gpus = driver::ask(config).detailed_gpus()?;
    let document = layout::export(&gpus, &options.config_label);
    output::text(&match format {
        Format::Table => document.yaml(),
        Format::Json => serde_json::to_string_pretty(&document).expect("all keys are texts") + "\n",
    });
    Ok(0)
}
