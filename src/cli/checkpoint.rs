//! `migctl checkpoint`: the exact state of the machine in a file, for a restore.

use super::layout_file;
use super::layout_options::required;
use super::output;
use clap::ValueHint;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::layout;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// The file to write
    #[arg(short = 'f', long, value_name = "FILE", env = "MIG_PARTED_CHECKPOINT_FILE", value_hint = ValueHint::FilePath)]
    checkpoint_file: Option<PathBuf>,
}

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    let path = required(options.checkpoint_file.as_deref(), "checkpoint-file")?;
    let gpus = runmig_lease::driver(config).detailed_gpus()?;
    layout_file::replace(path, &layout::checkpoint(&gpus))?;
    output::line("MIG configuration checkpointed successfully");
    Ok(0)
}
