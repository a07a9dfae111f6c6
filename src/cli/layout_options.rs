//! The options that the verbs of layouts share, by the names and variables of mig-parted.

use super::output::Output;
use clap::ValueHint;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};
use runmig_lease::config::Layout;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::layout::{self, Configuration, Document};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A configuration of a file.
#[derive(clap::Args)]
pub struct Source {
    /// The file with layouts; - reads standard input [default: layout.file in runmig's configuration]
    #[arg(short = 'f', long, value_name = "FILE", env = "MIG_PARTED_CONFIG_FILE", value_hint = ValueHint::FilePath)]
    config_file: Option<PathBuf>,
    /// The name of the layout, which may be left out for a file with one [default: layout.config for layout.file]
    #[arg(
        short = 'c',
        long,
        value_name = "NAME",
        env = "MIG_PARTED_SELECTED_CONFIG"
    )]
    selected_config: Option<String>,
}

impl Source {
    /// Returns the file and the name that the options choose, and without a file those of the configuration.
    pub fn choice(&self, configured: impl FnOnce() -> Result<Layout>) -> Result<Choice> {
        let file = named(self.config_file.as_deref());
        let name = self.selected_config.clone().filter(|name| !name.is_empty());
        if let Some(file) = file {
            let file = file.to_owned();
            return Ok(Choice { file, name });
        }
        let mut choice = Choice::configured(configured()?).ok_or_else(|| {
            Error::new("no file is named")
                .hint("name one with --config-file, or set layout.file in runmig's configuration")
        })?;
        choice.name = name.or(choice.name);
        Ok(choice)
    }
}

/// A configuration of a file, chosen.
pub struct Choice {
    file: PathBuf,
    name: Option<String>,
}

impl Choice {
    /// Returns the layout of this machine, if the configuration names one.
    pub fn configured(layout: Layout) -> Option<Choice> {
        let file = layout.file?;
        let name = layout.config;
        Some(Choice { file, name })
    }

    /// Returns the choice by the names of the options' variables.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let name = self.name.as_ref().map(|name| name.into());
        let file = Some(("CONFIG_FILE", OsString::from(&self.file)));
        { file.into_iter() }
            .chain(name.map(|name| ("SELECTED_CONFIG", name)))
            .collect()
    }

    /// Reads the file, and returns the chosen configuration.
    pub fn read(&self) -> Result<Configuration> {
        let file = match self.file == Path::new("-") {
            true => layout::read_input(std::io::stdin().lock())?,
            false => layout::read_file(&self.file)?,
        };
        let what = || format!("select a configuration of {}", self.file.display());
        file.select(self.name.as_deref()).context(what)
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
    let missing = || Error::new("no file is named").hint(format!("name one with --{option}"));
    named(path).ok_or_else(missing)
}

/// Returns the file of an option. An empty variable names none.
fn named(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| *path != Path::new(""))
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
