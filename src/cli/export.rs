//! `migctl export`: the state of the machine as a configuration file of mig-parted.

use super::driver;
use super::output::{self, Format};
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::layout;

#[derive(clap::Args)]
pub struct Options {
    /// The name of the configuration in the file
    #[arg(short = 'l', long, value_name = "LABEL", default_value = layout::DEFAULT_LABEL)]
    config_label: String,
}

/// Prints YAML, or with `-o json` the same file in JSON.
pub fn run(config: &Config, format: Format, options: &Options) -> Result<i32> {
    let gpus = driver::ask(config).detailed_gpus()?;
    let document = layout::export(&gpus, &options.config_label);
    output::text(&match format {
        Format::Table => document.yaml(),
        Format::Json => serde_json::to_string_pretty(&document).expect("all keys are texts") + "\n",
    });
    Ok(0)
}
