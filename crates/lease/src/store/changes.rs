//! The changes of the ledger, as the kernel reports them.

use super::file;
use super::operation;
use crate::error::{Context, Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a watch on the leases looks at in the state directory.
pub const RECORDS: &[&str] = &[file::FILE];
/// The same with the operations that are killed, by which tickets end.
pub const RECORDS_AND_QUEUE: &[&str] = &[file::FILE, operation::FOLDER];
/// The time without a change that ends a burst of changes.
const QUIET: Duration = Duration::from_millis(50);
/// The longest burst.
const BURST: Duration = Duration::from_millis(500);

/// A watch on the ledger, also on one that does not exist yet.
pub struct Changes {
    inotify: Inotify,
    state_dir: PathBuf,
    names: &'static [&'static str],
    watched: Vec<(WatchDescriptor, Watched)>,
}

/// The events of a folder that count.
enum Watched {
    /// All events.
    Operations,
    /// The coming and going of these names, and the end of the folder.
    Names(Vec<OsString>),
}

impl Changes {
    /// Watches these files and folders of a ledger. The caller reads it next, so that no change lies between.
    ///
    /// # Errors
    /// The kernel has no watch left.
    pub fn of(state_dir: &Path, names: &'static [&'static str]) -> Result<Changes> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let mut changes = Changes {
            inotify: inotify.map_err(|e| failed(state_dir, e))?,
            state_dir: state_dir.to_owned(),
            names,
            watched: Vec::new(),
        };
        changes.watch()?;
        Ok(changes)
    }

    /// Watches every folder that exists now. A folder comes before its content is looked for, so that none is missed.
    fn watch(&mut self) -> Result<()> {
        self.watched.clear();
        let coming = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        let going = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF;
        let state_dir = self.state_dir.clone();
        let mut to_root: Vec<&Path> = state_dir.ancestors().collect();
        to_root.reverse();
        // Among the folders above only the last one that exists tells of the next one.
        while let [folder, below, ..] = to_root[..] {
            if !below.is_dir() {
                let next = below.file_name().unwrap_or_default().to_owned();
                self.add(folder, coming | going, Watched::Names(vec![next]))?;
            }
            if !below.is_dir() {
                return Ok(());
            }
            to_root.remove(0);
        }
        let names = self.names.iter().map(OsString::from).collect();
        let removed = AddWatchFlags::IN_DELETE;
        self.add(&state_dir, coming | going | removed, Watched::Names(names))?;
        if self.names.contains(&operation::FOLDER) {
            let folder = state_dir.join(operation::FOLDER);
            self.add(&folder, operation::killed() | going, Watched::Operations)?;
        }
        Ok(())
    }

    fn add(&mut self, folder: &Path, flags: AddWatchFlags, watched: Watched) -> Result<()> {
        match self.inotify.add_watch(folder, flags) {
            Ok(watch) => self.watched.push((watch, watched)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(e) => return Err(failed(folder, e)),
        }
        Ok(())
    }

    /// Reads the events until now, and returns whether the ledger changed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&mut self) -> Result<bool> {
        let mut changed = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => changed |= events.iter().any(|event| self.counts(event)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(e) => return Err(failed(&self.state_dir, e)),
            }
        }
        if changed {
            self.watch()?;
        }
        Ok(changed)
    }

    fn counts(&self, event: &InotifyEvent) -> bool {
        let watched = { self.watched.iter() }.find(|(watch, _)| *watch == event.wd);
        let name = event.name.as_deref();
        match (watched, name) {
            // A folder ends, or the kernel's queue of events overflowed.
            (_, None) => !event.mask.contains(AddWatchFlags::IN_IGNORED),
            (Some((_, Watched::Operations)), Some(_)) => true,
            (Some((_, Watched::Names(names))), Some(name)) => names.iter().any(|its| its == name),
            (None, Some(_)) => false,
        }
    }

    /// Waits for a change.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self) -> Result<()> {
        while !self.take()? {
            let mut fds = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(failed(&self.state_dir, e)),
            }
        }
        Ok(())
    }

    /// Waits for a change, no longer than this. Returns whether there is one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool> {
        let end = Instant::now() + time;
        while !self.take()? {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(failed(&self.state_dir, e)),
            }
        }
        Ok(true)
    }

    /// Takes the rest of a burst of changes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn join(&mut self) -> Result<()> {
        let end = Instant::now() + BURST;
        while Instant::now() < end {
            let mut fds = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(QUIET).unwrap_or(PollTimeout::ZERO);
            match poll(&mut fds, timeout) {
                Ok(0) => break,
                Ok(_) | Err(Errno::EINTR) => drop(self.take()?),
                Err(e) => return Err(failed(&self.state_dir, e)),
            }
        }
        Ok(())
    }

    /// Waits for a change, and returns false if nobody reads the output any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait_beside(&mut self, output: BorrowedFd<'_>) -> Result<bool> {
        loop {
            let mut fds = [
                PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
                // The kernel reports a closed output without being asked.
                PollFd::new(output, PollFlags::empty()),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(failed(&self.state_dir, e)),
            }
            if fds[1].revents().is_some_and(|events| !events.is_empty()) {
                return Ok(false);
            }
            if self.take()? {
                self.join()?;
                return Ok(true);
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn failed(folder: &Path, e: Errno) -> Error {
    let what = || format!("watch the ledger in {}", folder.display());
    let failed = Err::<(), _>(e).context(what).unwrap_err();
    match e {
        Errno::EMFILE => failed.hint("raise fs.inotify.max_user_instances by sysctl"),
        Errno::ENOSPC => failed.hint("raise fs.inotify.max_user_watches by sysctl"),
        _ => failed,
    }
}
