//! The options that the verbs of layouts share.

use clap::ValueHint;
use runmig_lease::config::Layout;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::layout::{Configuration, LayoutFile};
use std::path::{Path, PathBuf};

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
        true => LayoutFile::read_from(std::io::stdin().lock())?,
        false => LayoutFile::read(file)?,
    };
    let what = || format!("select a configuration of {}", file.display());
    read.select(name).context(what)
}
