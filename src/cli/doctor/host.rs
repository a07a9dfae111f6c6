//! The machine as the checks see it: one look for all groups.

use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::gpu::Queries;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub struct Host {
    /// The configuration, or the reason for which there is none.
    pub config: Result<Config>,
    /// The folder of migctl, where its other programs are too.
    pub folder: PathBuf,
    /// The driver and the ledger, or the reason for which they are unknown.
    pub seen: Result<Seen>,
}

/// The driver and the ledger at one moment.
pub struct Seen {
    pub inventory: Inventory,
    /// The GPU instances without a compute instance: the index of the GPU and the id.
    pub empty: Vec<(u32, u32)>,
    /// The functions in use that the library lacks, or the reason for which that is unknown.
    pub missing: std::result::Result<Vec<String>, String>,
    /// The file of the library.
    pub library: Option<PathBuf>,
    /// The time from the open of the library to its answer.
    pub took: Duration,
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

    /// Returns the configuration; the defaults where it cannot be read, which another finding names.
    pub fn configured(&self) -> Config {
        self.config
            .as_ref()
            .map_or_else(|_| Config::default(), Config::clone)
    }

    /// Returns the look, or the text of a skipped check.
    pub fn seen(&self) -> std::result::Result<&Seen, &'static str> {
        self.seen
            .as_ref()
            .map_err(|_| "the GPU driver does not answer, see driver.library")
    }

    /// Returns the root of the driver's files.
    pub fn driver_root(&self) -> PathBuf {
        self.configured().driver.root
    }
}

fn look(config: &Config) -> Result<Seen> {
    let driver = runmig_lease::driver(config);
    let begin = Instant::now();
    let inventory = Inventory::look(config, &driver)?;
    let took = begin.elapsed();
    // A GPU that does not answer is told elsewhere.
    let empty = inventory.snapshot.gpus.iter().flat_map(|gpu| {
        let listed = gpu
            .profiles
            .iter()
            .map(|profile| driver.instances_of(&gpu.uuid, profile.id));
        let without = listed
            .flatten()
            .flatten()
            .filter(|gi| gi.compute_instances.is_empty());
        without.map(|gi| (gpu.index, gi.id)).collect::<Vec<_>>()
    });
    Ok(Seen {
        empty: empty.collect(),
        inventory,
        missing: driver.missing_functions().map_err(|e| e.to_string()),
        library: driver.library_file(),
        took,
    })
}
