//! The last events, without a read of the whole history.

use super::event::Event;
use super::{files, line};
use crate::config::Config;
use crate::files::{Links, Opened, open};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first look at the end of a file, in bytes. A look without enough events is followed by one at twice as much.
const WINDOW: u64 = 64 << 10;
/// The most bytes of one file, which no writer of this version exceeds.
const MOST: u64 = 32 << 20;

/// Returns the last `n` events, the oldest first. Lines that cannot be read and files that are missing are left out.
pub fn last(config: &Config, n: usize) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for file in config.events_file().iter().flat_map(|file| files(file)) {
        let wanted = n - events.len();
        if wanted == 0 {
            break;
        }
        let mut older = last_of(&file, wanted).unwrap_or_default();
        older.append(&mut events);
        events = older;
    }
    events
}

fn last_of(path: &Path, n: usize) -> io::Result<Vec<Event>> {
    let Opened { file, meta } = open(path, Links::Refuse)?;
    let size = meta.len().min(MOST);
    let (end, mut window) = (meta.len(), WINDOW);
    loop {
        let is_all = window >= size;
        let mut bytes = vec![0; usize::try_from(window.min(size)).unwrap_or(0)];
        let from = end - bytes.len() as u64;
        file.read_exact_at(&mut bytes, from)?;
        let lines = bytes.split(|byte| *byte == b'\n');
        // The first line of a part may have no begin.
        let lines = lines.skip(usize::from(!is_all));
        let events: Vec<Event> = lines.filter_map(|line| line::decode(line).event).collect();
        if events.len() >= n || is_all {
            let more = events.len().saturating_sub(n);
            return Ok(events.into_iter().skip(more).collect());
        }
        window *= 2;
    }
}
