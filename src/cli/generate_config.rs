//! `migctl generate-config`: a configuration file with each profile of the machine at its maximum count.

use super::layout_file;
use super::layout_options::FileFormat;
use super::output;
use clap::ValueHint;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::layout;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// The file to write; without it migctl prints the text
    #[arg(short = 'f', long, value_name = "FILE", env = "MIG_PARTED_OUTPUT_FILE", value_hint = ValueHint::FilePath)]
    output_file: Option<PathBuf>,
    #[command(flatten)]
    format: FileFormat,
}

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    let gpus = runmig_lease::driver(config).detailed_gpus()?;
    let text = options.format.text(&layout::generate(&gpus));
    // An empty variable names no file.
    let path = options.output_file.as_ref();
    match path.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => layout_file::replace(path, &text)?,
        None => output::text(&text),
    }
    Ok(0)
}
