//! `migctl export`: the state of the machine as a configuration file of mig-parted.

use super::layout_options::FileFormat;
use super::output;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::layout;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    format: FileFormat,
    /// The name of the configuration in the file
    #[arg(short = 'l', long, value_name = "LABEL", default_value = layout::DEFAULT_LABEL, env = "MIG_PARTED_CONFIG_LABEL")]
    config_label: String,
}

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    let gpus = runmig_lease::driver(config).detailed_gpus()?;
    let document = layout::export(&gpus, &options.config_label)?;
    output::text(&options.format.text(&document));
    Ok(0)
}
