//! Reads events in the order in which they were written, across rotations.

use super::event::Event;
use super::files;
use super::line::{self, MAX_LINE};
use crate::error::{Context, Result};
use crate::files::{Links, Opened, open};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The bytes of one read.
const CHUNK: usize = 64 << 10;

/// The events of a file and its older ones, and how far they are read.
pub struct History {
    file: PathBuf,
    /// The files that were there at the last look, the oldest first.
    open: Vec<OpenFile>,
    /// The number of lines that could not be read.
    unreadable: u64,
}

struct OpenFile {
    file: File,
    id: (u64, u64),
    offset: u64,
    /// The line that has no end yet.
    rest: Vec<u8>,
    /// Whether that line is too long to be read.
    is_too_long: bool,
}

impl History {
    /// Returns the events of a file, of which nothing is read yet.
    pub fn new(file: &Path) -> History {
        History {
            file: file.to_owned(),
            open: Vec::new(),
            unreadable: 0,
        }
    }

    /// Reads the events since the last call. A missing file has none.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(&mut self, each: &mut dyn FnMut(Event)) -> Result<()> {
        // A rotation moves files to later names, so the look goes that way and meets each file.
        let mut found: Vec<OpenFile> = Vec::new();
        for path in files(&self.file) {
            let what = || format!("read events in {}", path.display());
            let opened = match open(&path, Links::Refuse) {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                opened => OpenFile::new(opened.context(what)?),
            };
            if found.iter().all(|known| known.id != opened.id) {
                let known = self.open.iter().position(|known| known.id == opened.id);
                found.push(known.map_or(opened, |at| self.open.remove(at)));
            }
        }
        let gone = std::mem::take(&mut self.open);
        self.open = found.into_iter().rev().collect();
        let mut unreadable = 0;
        for mut file in gone {
            unreadable += file.read(each).context(|| "read older events")?;
            unreadable += file.end(each);
        }
        for file in &mut self.open {
            let name = self.file.display();
            unreadable += file
                .read(each)
                .context(|| format!("read events in {name}"))?;
        }
        self.unreadable += unreadable;
        Ok(())
    }

    /// Ends the reading: a last line without an end counts as one.
    pub fn end(&mut self, each: &mut dyn FnMut(Event)) {
        let ends = self.open.iter_mut().map(|file| file.end(each));
        self.unreadable += ends.sum::<u64>();
    }

    /// Returns the number of lines until now that could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

impl OpenFile {
    fn new(Opened { file, meta }: Opened) -> OpenFile {
        OpenFile {
            file,
            id: (meta.dev(), meta.ino()),
            offset: 0,
            rest: Vec::new(),
            is_too_long: false,
        }
    }

    /// Reads to the end of the file. Returns the number of unreadable lines.
    fn read(&mut self, each: &mut dyn FnMut(Event)) -> io::Result<u64> {
        if self.file.metadata()?.len() < self.offset {
            // An administrator emptied it.
            (self.offset, self.is_too_long) = (0, false);
            self.rest.clear();
        }
        let (mut unreadable, mut chunk) = (0, vec![0; CHUNK]);
        loop {
            let read = match self.file.read_at(&mut chunk, self.offset) {
                Ok(0) => return Ok(unreadable),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.offset += read as u64;
            for part in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
                if !self.is_too_long {
                    self.rest.extend_from_slice(part);
                }
                if self.rest.len() > MAX_LINE {
                    self.is_too_long = true;
                    self.rest.clear();
                }
                if part.ends_with(b"\n") {
                    unreadable += self.end(each);
                }
            }
        }
    }

    /// Ends a line. Returns 1 if it could not be read, as a whole or in part.
    fn end(&mut self, each: &mut dyn FnMut(Event)) -> u64 {
        let line = std::mem::take(&mut self.rest);
        if std::mem::take(&mut self.is_too_long) {
            return 1;
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            return 0;
        }
        let decoded = line::decode(line);
        decoded.event.into_iter().for_each(each);
        u64::from(decoded.is_damaged)
    }
}
