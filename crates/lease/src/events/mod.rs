//! The history of creates, leases and instances: one line of JSON for each event, in a file that outlives the boot.
//!
//! `event` has the types, and `line` their text. `writer` appends and rotates, `history` reads.

mod event;
mod history;
mod line;
mod writer;

#[cfg(test)]
mod tests;

pub use event::{Event, EventSeconds, EventType};
pub use history::History;
pub(crate) use writer::Writer;

use std::path::{Path, PathBuf};

/// The number of older files that a rotation keeps.
const OLDER: usize = 4;

/// Returns the file of the events, then the older ones, the newest first.
fn files(file: &Path) -> Vec<PathBuf> {
    let older = (1..=OLDER).map(|n| numbered(file, n));
    std::iter::once(file.to_owned()).chain(older).collect()
}

/// Returns the older file with a number.
fn numbered(file: &Path, n: usize) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}
