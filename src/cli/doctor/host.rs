//! The machine as the checks see it: one look for all groups.

use crate::cli::driver;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::finding::Finding;
use std::path::{Path, PathBuf};

pub struct Host {
    /// The configuration, or why there is none.
    pub config: Result<Config>,
    /// The folder of migctl, where its other programs are too.
    pub folder: PathBuf,
    /// The driver and the ledger, or why they are unknown.
    pub seen: Result<Seen>,
}

/// The driver and the ledger at one moment.
pub struct Seen {
    pub inventory: Inventory,
    /// The functions in use that the driver's library lacks.
    pub missing: Vec<String>,
}

impl Host {
    pub fn look(config: Result<Config>) -> Host {
        let seen = match &config {
            Ok(config) => look(config),
            Err(_) => Err(Error::new("the configuration cannot be read")),
        };
        let program = std::env::current_exe().unwrap_or_default();
        Host {
            config,
            folder: program.parent().map(Path::to_owned).unwrap_or_default(),
            seen,
        }
    }

    /// Returns the configuration, or a skipped check.
    pub fn config(&self) -> Result<&Config, Finding> {
        let why = "the configuration cannot be read, see configuration.files";
        self.config.as_ref().map_err(|_| Finding::skip(why))
    }

    /// Returns the look at driver and ledger, or a skipped check.
    pub fn seen(&self) -> Result<&Seen, Finding> {
        self.config()?;
        let why = "the GPU driver does not answer, see driver.library";
        self.seen.as_ref().map_err(|_| Finding::skip(why))
    }
}

fn look(config: &Config) -> Result<Seen> {
    let driver = driver::ask(config);
    Ok(Seen {
        inventory: Inventory::look(config, &driver)?,
        missing: driver.missing_functions()?,
    })
}
