//! Waits for more events, by the kernel's word and without polling.

use crate::error::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There may be more events.
    ByEvents,
    /// The reader of the output is gone.
    ByReader,
}

/// A watch on the file of events, which may be missing together with its folders.
pub struct Watch {
    inotify: Inotify,
    folder: PathBuf,
}

impl Watch {
    /// Begins to watch. From here on it misses no event.
    ///
    /// # Errors
    /// The kernel has no watch left.
    pub fn on(file: &Path) -> Result<Watch> {
        let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
        let what = || format!("watch {}", folder.display());
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let inotify = Inotify::init(flags).context(what)?;
        descend(&inotify, &folder).context(what)?;
        Ok(Watch { inotify, folder })
    }

    /// Waits for a change, or for the end of whoever reads this output.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, output: BorrowedFd<'_>) -> Result<Woken> {
        let what = || format!("watch {}", self.folder.display());
        let mut fds = [
            PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
            // The kernel reports the end of a pipe without being asked.
            PollFd::new(output, PollFlags::empty()),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Woken::ByEvents),
            Err(e) => return Err(e).context(what),
        }
        // A pipe without a reader has an error; a socket without one has a hang-up.
        let is_over = |flags: PollFlags| !flags.is_empty();
        if fds[1].revents().is_some_and(is_over) {
            return Ok(Woken::ByReader);
        }
        while self
            .inotify
            .read_events()
            .is_ok_and(|events| !events.is_empty())
        {}
        // The folder may have come, or another may have taken its place.
        descend(&self.inotify, &self.folder).context(what)?;
        Ok(Woken::ByEvents)
    }
}

/// Watches a folder, or the nearest above it that is there.
fn descend(inotify: &Inotify, folder: &Path) -> nix::Result<()> {
    let changes = AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF;
    let mut last = None;
    loop {
        let watch = |at: &Path| inotify.add_watch(at, changes).map(|_| at.to_owned());
        let found = folder
            .ancestors()
            .map(watch)
            .find(|w| *w != Err(Errno::ENOENT));
        let found = found.unwrap_or(Err(Errno::ENOENT))?;
        // A folder may come before its parent is watched: the second look then finds it.
        if found == folder || last.as_ref() == Some(&found) {
            return Ok(());
        }
        last = Some(found);
    }
}
