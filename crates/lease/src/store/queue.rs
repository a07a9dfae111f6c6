//! The creates that wait for room, in order of arrival.
//!
//! ```text
//! queue/<number>      the ticket of a waiter: its request, and the places that it could use. The waiter
//!                     holds the file's lock, so an unlocked ticket is of a killed waiter
//! queue/.new          an unfinished ticket
//! ```

use super::{Lock, Store, durable, lock};
use crate::effect;
use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::model::{GpuUuid, Timestamp};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(crate) const UNFINISHED: &str = ".new";
/// The limit of a ticket, in bytes. A waiter names the profiles that it could use on each GPU: 16 GPUs with
/// 20 profiles each are 20 KiB.
const MAX_SIZE: u64 = 256 * 1024;

/// A request in the queue, as its ticket tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiter {
    /// The id of the container.
    pub container: String,
    /// The name for people, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The request, as the user wrote it.
    pub request: String,
    /// The time of its arrival.
    pub since: Timestamp,
    /// The process that waits.
    pub pid: u32,
    /// The profiles that could ever satisfy the request, by UUID of the GPU. No profile stands for the whole
    /// GPU.
    pub could_use: Vec<(GpuUuid, Vec<u32>)>,
}

/// A queued request with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The position in the order of arrival.
    pub number: u64,
    /// The request. None where the ticket cannot be read: such a request counts as wanting every place.
    pub waiter: Option<Waiter>,
}

/// The meaning of a file in the queue.
enum State {
    /// The ticket of a waiter that has ended.
    Dead,
    /// The waiter has its place and makes its slice.
    Aside,
    Waits(Option<Waiter>),
}

/// A place in the queue. It ends when this value is dropped or its process ends.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub number: u64,
    file: File,
    path: PathBuf,
}

impl Store {
    pub(crate) fn queue(&self) -> PathBuf {
        self.dir.join("queue")
    }

    /// Creates the directory of the queue if it is missing.
    pub(crate) fn open_queue(&self) -> Result<()> {
        let dir = self.queue();
        effect::make_dir_all(&dir, 0o700).context(|| format!("make {}", dir.display()))
    }

    /// Returns the queued requests in their order. Needs no lock.
    pub fn waiting(&self) -> Result<Vec<Waiting>> {
        self.waiting_before(u64::MAX)?.collect()
    }

    /// Returns the requests before this number. It reads each ticket only on demand.
    pub(crate) fn waiting_before(
        &self,
        number: u64,
    ) -> Result<impl Iterator<Item = Result<Waiting>>> {
        let mut tickets = self.tickets()?;
        tickets.retain(|(other, _)| *other < number);
        let waits = |(number, file): (u64, PathBuf)| match state(&file) {
            Ok(State::Waits(waiter)) => Some(Ok(Waiting { number, waiter })),
            Ok(State::Dead | State::Aside) => None,
            Err(e) => Some(Err(e).context(|| format!("read {}", file.display()))),
        };
        Ok(tickets.into_iter().filter_map(waits))
    }

    /// Returns the numbers before this one, also of dead tickets. It opens none.
    pub(crate) fn numbers_before(&self, number: u64) -> Vec<u64> {
        let tickets = self.tickets().unwrap_or_default();
        let numbers = tickets.into_iter().map(|(number, _)| number);
        numbers.filter(|other| *other < number).collect()
    }

    /// Adds a ticket behind all others: the order is that of the plan's lock.
    pub(crate) fn enqueue(&self, _plan: &Lock, waiter: &Waiter) -> Result<Ticket> {
        let dir = self.queue();
        let what = || format!("write a place in the queue into {}", dir.display());
        self.open_queue()?;
        let last = self.tickets()?.last().map_or(0, |(number, _)| *number);
        let number = last + 1;
        let (unfinished, path) = (dir.join(UNFINISHED), dir.join(format!("{number:020}")));
        let _ = effect::remove_file(&unfinished);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = effect::open(&options, &unfinished).context(what)?;
        // The lock comes before the file is visible, because other processes remove unlocked tickets.
        if !lock::try_lock(&file).context(what)? {
            return Err(Error::new("another process has locked the new ticket")).context(what);
        }
        let mut ticket = Ticket {
            number,
            file,
            path: unfinished.clone(),
        };
        ticket.write(waiter)?;
        effect::rename(&unfinished, &path).context(what)?;
        ticket.path = path;
        Ok(ticket)
    }

    /// Removes the tickets of killed waiters.
    pub(crate) fn sweep_queue(&self, _plan: &Lock) {
        for (_, file) in self.tickets().unwrap_or_default() {
            if matches!(state(&file), Ok(State::Dead)) {
                let _ = durable::unlink(&file);
            }
        }
        let _ = effect::remove_file(&self.queue().join(UNFINISHED));
    }

    /// Returns whether the queue has no file at all, not even of killed waiters.
    pub(crate) fn is_queue_empty(&self) -> bool {
        let entries = std::fs::read_dir(self.queue());
        entries.into_iter().flatten().next().is_none()
    }

    fn tickets(&self) -> Result<Vec<(u64, PathBuf)>> {
        let dir = self.queue();
        let what = || format!("read {}", dir.display());
        let mut tickets = Vec::new();
        let entries = match std::fs::read_dir(&dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(tickets),
            entries => entries.context(what)?,
        };
        for entry in entries {
            let path = entry.context(what)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(number) = name.and_then(|name| name.parse().ok()) {
                tickets.push((number, path));
            }
        }
        tickets.sort();
        Ok(tickets)
    }
}

impl Ticket {
    /// Writes the present request of the waiter.
    pub(crate) fn write(&mut self, waiter: &Waiter) -> Result<()> {
        let text = serde_json::to_vec(waiter).context(|| "write a place in the queue")?;
        self.replace(&text)
    }

    /// Lets later requests pass, because the waiter has its place and is about to make its slice. If that
    /// fails, the waiter still has its number.
    pub(crate) fn step_aside(&mut self) -> Result<()> {
        self.replace(b"")
    }

    fn replace(&mut self, text: &[u8]) -> Result<()> {
        let what = || format!("write {}", self.path.display());
        effect::set_len(&self.file, 0).context(what)?;
        self.file.rewind().context(what)?;
        effect::write_all(&mut self.file, text).context(what)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The lock is still held, so no other process has removed the file as a dead waiter's.
        let _ = effect::remove_file(&self.path);
    }
}

fn state(path: &Path) -> std::io::Result<State> {
    let opened = match files::open(path, Links::Refuse) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(State::Dead),
        opened => opened?,
    };
    if !opened.is_locked()? {
        return Ok(State::Dead);
    }
    Ok(match opened.read(MAX_SIZE) {
        Ok(text) if text.is_empty() => State::Aside,
        Ok(text) => State::Waits(serde_json::from_slice(&text).ok()),
        Err(e) if e.kind() == ErrorKind::FileTooLarge => State::Waits(None),
        Err(e) => return Err(e),
    })
}
