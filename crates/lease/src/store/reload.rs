//! The turn of a reload of dcgm-exporter, and the note of the last one.

use super::lock::Lock;
use super::{Store, durable};
use crate::error::{Context, Result};
use crate::files;
use std::path::PathBuf;
use std::time::Duration;

const LOCK: &str = "dcgm.lock";
const NOTE: &str = "dcgm-reload.json";
/// The longest note that is read, in bytes.
const MAX_NOTE: u64 = 64 * 1024;

/// The turn of a reload, until it is dropped or its process ends.
#[derive(Debug)]
pub struct ReloadTurn {
    _lock: Lock,
    note: PathBuf,
}

impl Store {
    /// Waits for the turn of a reload.
    ///
    /// # Errors
    /// The lock file cannot be used, or the turn did not come in this time.
    pub fn reload_turn(&self, timeout: Duration) -> Result<ReloadTurn> {
        let lock = Lock::take(&self.dir().join(LOCK), timeout, "reloads dcgm-exporter")?;
        Ok(ReloadTurn {
            _lock: lock,
            note: self.dir().join(NOTE),
        })
    }
}

impl ReloadTurn {
    /// Returns the note of the last reload. None without one that can be read.
    pub fn note(&self) -> Option<Vec<u8>> {
        files::read(&self.note, MAX_NOTE).ok()
    }

    /// Replaces the note.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_note(&self, note: &[u8]) -> Result<()> {
        durable::replace(&self.note, note).context(|| format!("write {}", self.note.display()))
    }
}
