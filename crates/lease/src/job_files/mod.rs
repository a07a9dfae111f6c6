//! The job files of dcgm-exporter: a file for each slice with leases, and in it a line for each container.
//!
//! `jobs` says what the ledger wants in the files, and `folder` puts it there. No lock is held: every change of the
//! ledger writes the files of its slice, and looks at the ledger once more after that. So the last one to write has seen
//! the last change.

mod folder;
mod jobs;

use crate::error::Result;
use crate::store::{Entry, Instance, Store};
use folder::Folder;
use jobs::Jobs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most times that one change of the ledger writes files. Each further change has a process of its own, which
/// writes them too.
const MOST_ROUNDS: usize = 8;

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
        for _ in 0..MOST_ROUNDS {
            let names = names(&folder, &wanted)?;
            for name in &names {
                folder.put(name, wanted.text(name))?;
            }
            let now = self.wanted()?;
            if names.iter().all(|name| now.text(name) == wanted.text(name)) {
                break;
            }
            wanted = now;
        }
        Ok(())
    }

    fn wanted(&self) -> Result<Jobs> {
        let store = Store::existing(&self.state_dir, self.lock_timeout)?;
        // The caller may have the ledger's lock. A lease that is between its two records has a process that writes its
        // file later.
        let listing = store.map(|store| store.listing()).transpose()?;
        let entries = listing.map(|listing| listing.entries).unwrap_or_default();
        Ok(Jobs::of(entries.iter().filter_map(|entry| match entry {
            Entry::Held(held) => Some(held),
            Entry::Unleased(_) => None,
        })))
    }
}
