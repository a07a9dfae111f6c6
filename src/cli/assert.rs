//! `migctl assert`: whether a configuration of a file is the state of the machine.

use super::json::{AssertedGpu, LayoutAssertion};
use super::layout_options::{self, Switch};
use super::output::{self, Format};
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::layout::{self, Comparison};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    source: layout_options::Source,
    #[command(flatten)]
    modes: layout_options::Modes,
    /// Only check that the file is valid and has the configuration
    #[arg(short = 'a', long, env = "MIG_PARTED_VALID_CONFIG", value_parser = Switch)]
    valid_config: bool,
}

pub fn run(config: &dyn Fn() -> Result<Config>, format: Format, options: &Options) -> Result<i32> {
    let configuration = options.source.choice(|| Ok(config()?.layout))?.read()?;
    let mut assertion = LayoutAssertion {
        configuration: configuration.name.clone(),
        checked: "file",
        applied: None,
        gpus: Vec::new(),
    };
    if options.valid_config {
        return tell(format, &assertion, "Selected MIG configuration is valid");
    }
    let gpus = runmig_lease::driver(&config()?)
        .detailed_gpus()
        .map_err(Error::from)?;
    let targets = layout::resolve(&configuration, &gpus)?;
    if !options.modes.mode_only {
        layout::validate(&targets, &gpus)?;
    }
    let compared = layout::compare(&targets, &gpus);
    let is_met = |one: &Comparison| match options.modes.mode_only {
        true => one.mode,
        false => one.applied,
    };
    assertion.checked = if options.modes.mode_only {
        "modes"
    } else {
        "devices"
    };
    assertion.applied = Some(compared.iter().all(is_met));
    let items = compared.iter().zip(&gpus).map(|(one, gpu)| AssertedGpu {
        gpu_index: one.gpu,
        gpu_uuid: gpu.gpu.uuid.to_string(),
        applied: is_met(one),
        difference: one.difference.clone().filter(|_| !is_met(one)),
    });
    assertion.gpus = items.collect();
    let success = match options.modes.mode_only {
        true => "Selected MIG mode settings from configuration currently applied",
        false => "Selected MIG configuration currently applied",
    };
    tell(format, &assertion, success)
}

fn tell(format: Format, assertion: &LayoutAssertion, success: &str) -> Result<i32> {
    let is_met = assertion.applied != Some(false);
    match format {
        Format::Json => output::json(assertion),
        Format::Table if is_met => output::line(success),
        Format::Table => {
            output::eprint("Assertion failure: selected configuration not currently applied");
            for gpu in assertion.gpus.iter() {
                if let Some(difference) = &gpu.difference {
                    output::eprint(&format!("GPU {}: {difference}", gpu.gpu_index));
                }
            }
        }
    }
    Ok(i32::from(!is_met))
}
