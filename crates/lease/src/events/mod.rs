//! The history of creates, leases and instances: one line of JSON for each event, in a file that outlives the boot.
//!
//! `event` has the types and their text. This file appends events, rotates the files and reads them.

mod event;
#[cfg(test)]
mod tests;

pub use event::{Event, EventSeconds, EventType};

use crate::error::{Context, Result};
use crate::files::{Links, Opened, log_size, open, read_rest};
use crate::{effect, trust};
use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The size in bytes at which a writer rotates the file.
const MAX_SIZE: u64 = 8 << 20;
/// The size at which a file that cannot be rotated takes no more events.
const MOST: u64 = 2 * MAX_SIZE;

/// The size in bytes beyond which no more events go into one write.
const AT_ONCE: usize = 64 * 1024;

/// The mode of the file.
const MODE: u32 = 0o640;

/// Whether the log says why events are missing. One line of a process is enough.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// The end of the file of events.
pub(crate) struct Writer {
    file: PathBuf,
    max_size: u64,
}

impl Writer {
    pub(crate) fn new(file: PathBuf) -> Writer {
        Writer {
            file,
            max_size: MAX_SIZE,
        }
    }

    /// Appends events, several in one write. Without a file to write to, the log has one line, and the events are lost.
    pub(crate) fn write(&self, events: Vec<Event>) {
        let mut lines = Vec::new();
        for event in events {
            lines.extend(event::encode(event));
            if lines.len() >= AT_ONCE {
                self.append(std::mem::take(&mut lines));
            }
        }
        self.append(lines);
    }

    fn append(&self, lines: Vec<u8>) {
        if let Err(e) = self.try_append(lines)
            && !IS_TOLD.swap(true, Ordering::Relaxed)
        {
            let file = self.file.display();
            tracing::warn!(
                "cannot write events to {file}: {e}; hint: correct that, or set events.file to another file"
            );
        }
    }

    fn try_append(&self, mut lines: Vec<u8>) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut file = self.open()?;
        if is_cut(&file)? {
            lines.insert(0, b'\n');
        }
        match effect::write_some(&mut file, &lines)? == lines.len() {
            true => Ok(()),
            false => Err(ErrorKind::StorageFull.into()),
        }
    }

    /// Opens the file at its end. Each event opens it anew, since another process may have rotated it.
    fn open(&self) -> io::Result<File> {
        let file = self.open_or_make()?;
        let size = file.metadata()?.len();
        if size < log_size(&self.file, self.max_size) {
            return Ok(file);
        }
        match self.rotate(&file) {
            Ok(true) => self.open_or_make(),
            // A folder that takes no new name leaves the file as it is, for a while.
            _ if size < MOST => Ok(file),
            Ok(false) => Err(io::Error::other("another process should have rotated it")),
            Err(e) => Err(e),
        }
    }

    fn open_or_make(&self) -> io::Result<File> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        match check_folder(folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                make_folder(folder)?;
                check_folder(folder)?;
            }
            checked => checked?,
        }
        open_end(&self.file)
    }

    /// Moves the open file aside, unless another process does or did. Returns whether the path has another file.
    fn rotate(&self, open: &File) -> io::Result<bool> {
        // The lock ends with the file. A later holder of the lock finds another file at the path.
        if !effect::try_lock(open)? {
            return Ok(false);
        }
        let open = id(&open.metadata()?);
        if std::fs::symlink_metadata(&self.file).is_ok_and(|now| id(&now) == open) {
            for n in (1..OLDER).rev() {
                // A number may be missing.
                let _ = effect::rename(&numbered(&self.file, n), &numbered(&self.file, n + 1));
            }
            effect::rename(&self.file, &numbered(&self.file, 1))?;
        }
        Ok(true)
    }
}

/// Returns whether a full disk cut the last line.
fn is_cut(file: &File) -> io::Result<bool> {
    let mut last = [b'\n'];
    if let Some(at) = file.metadata()?.len().checked_sub(1) {
        file.read_exact_at(&mut last, at)?;
    }
    Ok(last != [b'\n'])
}

fn open_end(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(MODE);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = effect::open(&options, path)?;
    // A file with a second name could be another user's, linked to here.
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(io::Error::other("it is not a file with one name"));
    }
    if meta.len() == 0 {
        // As for the folder.
        effect::set_mode_of(&file, MODE)?;
    }
    Ok(file)
}

/// Makes the folder of the file. Its own folder must be there, since it may be a file system that is not mounted.
fn make_folder(folder: &Path) -> io::Result<()> {
    match effect::make_dir(folder, 0o700) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        // A unit of systemd may have a umask that keeps readers out.
        made => made.and_then(|()| effect::set_mode(folder, 0o755)),
    }
}

/// Checks the folder of the file. In another user's folder the file would be what that user likes.
fn check_folder(folder: &Path) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(folder)?;
    if !meta.is_dir() {
        return Err(io::Error::other("its folder is a link, or no folder"));
    }
    trust::check_metadata(&meta)
        .map_err(|e| io::Error::other(format!("its folder: {}", e.reason())))
}

/// The most bytes of one file that are read at once. No writer of this version makes a file so long.
const MAX_READ: u64 = 64 << 20;
/// A reader remembers at least so many of the latest ids, each of at most so many bytes.
const MOST_IDS: usize = 16 << 10;
const MAX_ID: usize = 64;

/// The events of a file and its older ones, and how far they are read.
pub struct History {
    file: PathBuf,
    /// The bytes that are read, by device and inode of the file.
    offsets: HashMap<(u64, u64), u64>,
    /// The number of lines until now that could not be read.
    pub unreadable: u64,
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
                    if found
                        .iter()
                        .all(|known| id(&known.meta) != id(&opened.meta))
                    {
                        found.push(opened);
                    }
                }
            }
        }
        let mut offsets = HashMap::new();
        for opened in found.into_iter().rev() {
            let id = id(&opened.meta);
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
        let bytes = read_rest(&opened.file, MAX_READ)?;
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !text.ends_with(b"\n") && !to_end {
                break;
            }
            from += text.len() as u64;
            match event::decode(text) {
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
}

fn id(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}
