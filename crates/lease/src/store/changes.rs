//! The changes of the ledger, as the kernel reports them.

use super::file;
use super::operation;
use crate::error::{Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time without a change that ends a burst of changes.
const QUIET: Duration = Duration::from_millis(50);
/// The longest burst.
const BURST: Duration = Duration::from_millis(500);
/// A wait without another limit is repeated.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// A watch on the ledger, also on one that does not exist yet.
pub struct Changes {
    inotify: Inotify,
    state_dir: PathBuf,
    /// The watched folders, with the names whose coming and going count besides the folder's end. Without one all count.
    watched: Vec<(WatchDescriptor, Option<OsString>)>,
}

impl Changes {
    /// Watches a ledger, and the operations, since a killed one ends its ticket. The caller reads the ledger after this, so
    /// that it misses no change.
    ///
    /// # Errors
    /// The kernel has no watch left.
    pub fn of(state_dir: &Path) -> Result<Changes> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let mut changes = Changes {
            inotify: inotify.map_err(|e| failed(state_dir, e))?,
            state_dir: state_dir.to_owned(),
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
        for folders in to_root.windows(2) {
            let (folder, below) = (folders[0], folders[1]);
            if !below.is_dir() {
                let next = below.file_name().unwrap_or_default().to_owned();
                self.add(folder, coming | going, Some(next))?;
            }
            if !below.is_dir() {
                return Ok(());
            }
        }
        let ledger = Some(file::FILE.into());
        self.add(
            &state_dir,
            coming | going | AddWatchFlags::IN_DELETE,
            ledger,
        )?;
        let operations = state_dir.join(operation::FOLDER);
        self.add(&operations, operation::killed() | going, None)?;
        Ok(())
    }

    fn add(&mut self, folder: &Path, flags: AddWatchFlags, name: Option<OsString>) -> Result<()> {
        match self.inotify.add_watch(folder, flags) {
            Ok(watch) => self.watched.push((watch, name)),
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
        let Some(name) = &event.name else {
            // A folder ends, or the kernel's queue of events overflowed.
            return !event.mask.contains(AddWatchFlags::IN_IGNORED);
        };
        let watched = { self.watched.iter() }.find(|(watch, _)| *watch == event.wd);
        watched.is_some_and(|(_, its)| its.as_ref().is_none_or(|its| its == name))
    }

    /// Waits for a change.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self) -> Result<()> {
        while !self.wait_for(LONG)? {}
        Ok(())
    }

    fn readable(&self) -> PollFd<'_> {
        PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)
    }

    /// Waits for one of these. A signal counts as one.
    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32> {
        match poll(fds, timeout) {
            Err(Errno::EINTR) => Ok(1),
            polled => polled.map_err(|e| failed(&self.state_dir, e)),
        }
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
            self.poll(&mut [self.readable()], timeout)?;
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
            let timeout = PollTimeout::try_from(QUIET).unwrap_or(PollTimeout::ZERO);
            if self.poll(&mut [self.readable()], timeout)? == 0 {
                break;
            }
            self.take()?;
        }
        Ok(())
    }

    /// Waits for a change, and returns false if nobody reads the output any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait_beside(&mut self, output: BorrowedFd<'_>) -> Result<bool> {
        loop {
            // The kernel reports a closed output without being asked.
            let mut fds = [self.readable(), PollFd::new(output, PollFlags::empty())];
            self.poll(&mut fds, PollTimeout::NONE)?;
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
    let failed = Error::failed(format!("watch the ledger in {}", folder.display())).caused_by(e);
    match e {
        Errno::EMFILE => failed.hint("raise fs.inotify.max_user_instances by sysctl"),
        Errno::ENOSPC => failed.hint("raise fs.inotify.max_user_watches by sysctl"),
        _ => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::store::tests::instance;

    fn watched() -> (tempfile::TempDir, Store, Changes) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Duration::from_millis(50)).unwrap();
        let changes = Changes::of(dir.path()).unwrap();
        (dir, store, changes)
    }

    fn change(store: &Store) {
        let ledger = store.lock("test").unwrap();
        let number = store.state().unwrap().instances.len();
        let more = instance(&number.to_string());
        ledger.change(|state| state.put_instance(more)).unwrap();
    }

    #[test]
    fn each_wait_ends_with_the_change_that_it_takes() {
        let (_dir, store, mut changes) = watched();
        type Wait = fn(&mut Changes);
        let waits: [Wait; 4] = [
            |changes| changes.wait().unwrap(),
            |changes| assert!(changes.wait_for(LONG).unwrap()),
            |changes| changes.join().unwrap(),
            |changes| {
                let (_reader, output) = std::io::pipe().unwrap();
                assert!(changes.wait_beside(output.as_fd()).unwrap());
            },
        ];
        for wait in waits {
            change(&store);
            wait(&mut changes);
            assert!(!changes.take().unwrap());
        }
    }

    #[test]
    fn wait_without_a_change_ends_with_its_time() {
        let (_dir, _store, mut changes) = watched();
        assert!(!changes.wait_for(Duration::from_millis(20)).unwrap());
    }

    #[test]
    fn nobody_waits_beside_a_closed_output() {
        let (_dir, _store, mut changes) = watched();
        let (reader, output) = std::io::pipe().unwrap();
        drop(reader);
        assert!(!changes.wait_beside(output.as_fd()).unwrap());
    }

    #[test]
    fn end_of_a_watch_is_no_change() {
        let (_dir, _store, changes) = watched();
        for (mask, counts) in [
            (AddWatchFlags::IN_IGNORED, false),
            (AddWatchFlags::IN_DELETE_SELF, true),
            (AddWatchFlags::IN_Q_OVERFLOW, true),
        ] {
            let event = InotifyEvent {
                wd: changes.watched[0].0,
                mask,
                cookie: 0,
                name: None,
            };
            assert_eq!(changes.counts(&event), counts, "{mask:?}");
        }
    }

    #[test]
    fn names_the_limit_that_the_kernel_has_reached() {
        for (e, hint) in [
            (Errno::EMFILE, "fs.inotify.max_user_instances"),
            (Errno::ENOSPC, "fs.inotify.max_user_watches"),
            (Errno::EACCES, ""),
        ] {
            let line = failed(Path::new("/state"), e).line();
            assert!(
                line.starts_with("cannot watch the ledger in /state: "),
                "{line}"
            );
            assert!(line.contains(hint), "{line}");
            assert_eq!(line.contains("hint: "), !hint.is_empty(), "{line}");
        }
    }
}
