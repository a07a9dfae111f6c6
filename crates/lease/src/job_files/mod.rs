//! The job files of dcgm-exporter: a file for each slice with leases, and in it a line for each container.
//!
//! `jobs` says what the ledger wants in the files, and `folder` puts it there. No lock is needed: every change of the
//! ledger writes the files of its slice, and looks at the ledger once more after that. So the last one to write has seen
//! the last change.

mod folder;
mod jobs;

use crate::error::{self, Error, Result};
use crate::store::{Instance, Listing, Store};
use folder::Folder;
use jobs::Jobs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time for which a change of the ledger follows those after it.
const LONGEST: Duration = Duration::from_secs(2);

/// The job files of one machine.
pub(crate) struct JobFiles {
    folder: PathBuf,
    state_dir: PathBuf,
    lock_timeout: Duration,
}

impl JobFiles {
    pub(crate) fn new(folder: &Path, state_dir: &Path, lock_timeout: Duration) -> JobFiles {
        JobFiles {
            folder: folder.to_owned(),
            state_dir: state_dir.to_owned(),
            lock_timeout,
        }
    }

    /// Makes the files of these instances say what the ledger says.
    pub(crate) fn follow<'a>(&self, changed: impl IntoIterator<Item = &'a Instance>) -> Result<()> {
        let names: BTreeSet<String> = changed
            .into_iter()
            .filter_map(|instance| jobs::file_name(&instance.resource))
            .collect();
        match names.is_empty() {
            true => Ok(()),
            false => self.write(|_, _| Ok(names.clone())),
        }
    }

    /// Makes all files say what the ledger says, and removes what a killed process left.
    pub(crate) fn repair(&self) -> Result<()> {
        self.write(|folder, wanted| {
            folder.sweep();
            let mut names = folder.names()?;
            names.extend(wanted.names());
            Ok(names)
        })
    }

    fn write(&self, names: impl Fn(&Folder, &Jobs) -> Result<BTreeSet<String>>) -> Result<()> {
        let folder = Folder::open(&self.folder)?;
        let mut wanted = self.wanted()?;
        let end = Instant::now() + LONGEST;
        loop {
            let names = names(&folder, &wanted)?;
            // One file that cannot be written keeps no other from its text.
            let written = names.iter().map(|name| folder.put(name, wanted.text(name)));
            let written: Vec<Result<()>> = written.collect();
            let now = self.wanted()?;
            if names.iter().all(|name| now.text(name) == wanted.text(name)) {
                return error::all(written);
            }
            if Instant::now() > end {
                return Err(
                    Error::new("leases change faster than their files are written")
                        .hint("migctl gc writes them"),
                );
            }
            wanted = now;
        }
    }

    fn wanted(&self) -> Result<Jobs> {
        let store = Store::existing(&self.state_dir, self.lock_timeout)?;
        // Without the ledger's lock. A lease that is between its two records has a process that writes its file later.
        let listing = store.map(|store| store.listing()).transpose()?;
        Ok(Jobs::of(listing.iter().flat_map(Listing::held)))
    }
}
