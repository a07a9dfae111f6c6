//! The text of a configuration file, bounded. Root acts on it, so only root may have written it.

use super::file::LayoutFile;
use super::hooks::{self, HookCommand};
use super::places::Checkpoint;
use crate::error::{Context, Result};
use crate::{files, trust};
use std::io::Read;
use std::path::Path;

/// mig-parted's own file has 30 KiB.
const MAX_SIZE: u64 = 1024 * 1024;

/// Reads a configuration file.
///
/// # Errors
/// A file, a folder or a link on the way to it that others than root can change; more than 1 MiB.
pub fn read_file(path: &Path) -> Result<LayoutFile> {
    let what = || format!("read configuration file {}", path.display());
    let text = trust::read_to_string(path, MAX_SIZE).context(what)?;
    LayoutFile::parse(&text).context(what)
}

/// Reads a checkpoint.
///
/// # Errors
/// The same as for a configuration file.
pub fn read_checkpoint(path: &Path) -> Result<Checkpoint> {
    let what = || format!("read checkpoint {}", path.display());
    let text = trust::read_to_string(path, MAX_SIZE).context(what)?;
    Checkpoint::parse(&text).context(what)
}

/// Reads a file of hooks.
///
/// # Errors
/// The same as for a configuration file.
pub fn read_hooks(path: &Path) -> Result<Vec<HookCommand>> {
    let what = || format!("read hooks file {}", path.display());
    let text = trust::read_to_string(path, MAX_SIZE).context(what)?;
    hooks::parse(&text).context(what)
}

/// Reads a configuration file from a stream, such as standard input.
pub fn read_input(from: impl Read) -> Result<LayoutFile> {
    let what = || "read the configuration from standard input";
    let bytes = files::read_rest(from, MAX_SIZE).context(what)?;
    let text = std::str::from_utf8(&bytes).context(what)?;
    LayoutFile::parse(text).context(what)
}
