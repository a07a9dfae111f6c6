//! Reads events in the order in which they were written, across rotations.

use super::event::Event;
use super::{files, line};
use crate::error::{Context, Result};
use crate::files::{Links, Opened, open, read_rest};
use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most bytes of one file that are read at once. No writer of this version makes a file so long.
const MOST: u64 = 64 << 20;
/// A reader remembers at least so many of the latest ids, each of at most so many bytes.
pub(super) const MOST_IDS: usize = 16 << 10;
const MAX_ID: usize = 64;

/// The events of a file and its older ones, and how far they are read.
pub struct History {
    file: PathBuf,
    /// The bytes that are read, by device and inode of the file.
    offsets: HashMap<(u64, u64), u64>,
    unreadable: u64,
    /// The ids of the latest events in two sets. When the newer one is full, the older one is dropped.
    ids: [HashSet<String>; 2],
}

impl History {
    /// Returns the events of a file, of which nothing is read yet.
    pub fn new(file: &Path) -> History {
        History {
            file: file.to_owned(),
            offsets: HashMap::new(),
            unreadable: 0,
            ids: Default::default(),
        }
    }

    /// Reads the events since the last call. An event that was written twice is read once. A missing file has none.
    ///
    /// `to_end`: a last line without an end counts too.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(&mut self, to_end: bool, each: &mut dyn FnMut(Event)) -> Result<()> {
        // A rotation moves files to later names, so the look goes that way and meets each file.
        let mut found: Vec<Opened> = Vec::new();
        for path in files(&self.file) {
            match open(&path, Links::Refuse) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                opened => {
                    let opened = opened.context(|| format!("read events in {}", path.display()))?;
                    if found.iter().all(|known| id(known) != id(&opened)) {
                        found.push(opened);
                    }
                }
            }
        }
        let mut offsets = HashMap::new();
        for opened in found.into_iter().rev() {
            let id = id(&opened);
            let from = self.offsets.get(&id).copied().unwrap_or(0);
            let end = self.read_file(opened, from, to_end, each);
            offsets.insert(id, end.context(|| format!("read {}", self.file.display()))?);
        }
        self.offsets = offsets;
        Ok(())
    }

    /// Reads whole lines from a place in a file. Returns the place after the last one.
    fn read_file(
        &mut self,
        mut opened: Opened,
        mut from: u64,
        to_end: bool,
        each: &mut dyn FnMut(Event),
    ) -> io::Result<u64> {
        if opened.meta.len() < from {
            // An administrator emptied it.
            from = 0;
        }
        opened.file.seek(SeekFrom::Start(from))?;
        let bytes = read_rest(&opened.file, MOST)?;
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !text.ends_with(b"\n") && !to_end {
                break;
            }
            from += text.len() as u64;
            match line::decode(text) {
                Some(event) if self.is_known(&event) => {}
                Some(event) => each(event),
                None if text.trim_ascii().is_empty() => {}
                None => self.unreadable += 1,
            }
        }
        Ok(from)
    }

    /// Returns whether an event was read before, and remembers its id.
    fn is_known(&mut self, event: &Event) -> bool {
        let Some(id) = event.id.as_ref().filter(|id| id.len() <= MAX_ID) else {
            return false;
        };
        let [newer, older] = &mut self.ids;
        if newer.len() >= MOST_IDS {
            *older = std::mem::take(newer);
        }
        older.contains(id) || !newer.insert(id.clone())
    }

    /// Returns the number of lines until now that could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

fn id(opened: &Opened) -> (u64, u64) {
    (opened.meta.dev(), opened.meta.ino())
}
