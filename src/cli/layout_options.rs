//! The options that the verbs of layouts share, by the names and variables of mig-parted.

use super::output::Output;
use clap::ValueHint;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::layout::{self, Configuration, Document};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A configuration of a file.
#[derive(clap::Args)]
pub struct Source {
    /// The configuration file; - reads standard input
    #[arg(short = 'f', long, value_name = "FILE", env = "MIG_PARTED_CONFIG_FILE", value_hint = ValueHint::FilePath)]
    config_file: Option<PathBuf>,
    /// The name of the configuration, which may be left out for a file with one
    #[arg(
        short = 'c',
        long,
        value_name = "NAME",
        env = "MIG_PARTED_SELECTED_CONFIG"
    )]
    selected_config: Option<String>,
}

impl Source {
    /// Returns the values of the options by the names of their variables.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let file = self.config_file.as_ref().map(|file| file.into());
        let name = self.selected_config.as_ref().map(|name| name.into());
        let both = [("CONFIG_FILE", file), ("SELECTED_CONFIG", name)];
        { both.into_iter() }
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Reads the file, and returns the chosen configuration.
    pub fn configuration(&self) -> Result<Configuration> {
        let path = required(self.config_file.as_deref(), "config-file")?;
        let file = match path == Path::new("-") {
            true => layout::read_input(std::io::stdin().lock())?,
            false => layout::read_file(path)?,
        };
        let name = self.selected_config.as_deref();
        let what = || format!("select a configuration of {}", path.display());
        file.select(name.filter(|name| !name.is_empty()))
            .context(what)
    }
}

/// Whether instances count.
#[derive(clap::Args)]
pub struct Modes {
    /// Leave instances alone: only the MIG modes count
    #[arg(short, long, env = "MIG_PARTED_MODE_CHANGE_ONLY", value_parser = Switch)]
    pub mode_only: bool,
}

/// Returns the file of an option. A missing one is a failure of the verb, since a variable may name it.
pub fn required<'p>(path: Option<&'p Path>, option: &str) -> Result<&'p Path> {
    let path = path.filter(|path| *path != Path::new(""));
    let missing = || Error::new("no file is named").hint(format!("name one with --{option}"));
    path.ok_or_else(missing)
}

/// The format of a configuration file.
#[derive(clap::Args)]
pub struct FileFormat {
    /// The format of the file
    // The id is the one of the option for all verbs, whose place this takes.
    #[arg(id = "output", short = 'o', long = "output-format", value_name = "FORMAT", default_value = "yaml",
          env = "MIG_PARTED_OUTPUT_FORMAT", value_parser = file_formats())]
    format: Output,
}

impl FileFormat {
    /// Returns a file as text, to the byte as mig-parted prints it.
    pub fn text(&self, document: &Document) -> String {
        match self.format {
            Output::Json => document.json(),
            Output::Table | Output::Wide | Output::Name => document.yaml(),
        }
    }
}

/// YAML is the form for people, which other verbs call a table.
fn file_formats() -> impl TypedValueParser<Value = Output> {
    PossibleValuesParser::new(["yaml", "json"]).map(|format| match format.as_str() {
        "json" => Output::Json,
        _ => Output::Table,
    })
}

/// Parses the value of a switch's variable as Go does, where 1 and T are true.
#[derive(Clone)]
pub struct Switch;

impl TypedValueParser for Switch {
    type Value = bool;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<bool, clap::Error> {
        match value.to_str() {
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some("" | "0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            _ => PossibleValuesParser::new(["true", "false"])
                .parse_ref(command, arg, value)
                .map(|_| false),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = ["true", "false"].map(PossibleValue::new);
        Some(Box::new(values.into_iter()))
    }
}
