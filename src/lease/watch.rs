//! What wakes those who wait for room: a lease that goes, and whoever before them leaves the queue.

use crate::error::{Context, Result};
use crate::store::{Store, Waiting};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often it looks where it cannot be told.
const UNWATCHED: Duration = Duration::from_millis(200);

pub(super) struct Watch {
    /// None where there is none to be had: a node has 128 for all of root's programs.
    inotify: Option<Inotify>,
    known: (Vec<String>, Vec<Waiting>),
}

impl Watch {
    pub fn on(store: &Store) -> Watch {
        let watch = || {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            inotify.add_watch(&store.leases(), AddWatchFlags::IN_DELETE)?;
            // Closed for writing: by its waiter's end, however that came. Modified: it stepped aside.
            let leaves =
                AddWatchFlags::IN_DELETE | AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MODIFY;
            inotify.add_watch(&store.queue(), leaves)?;
            nix::Result::Ok(inotify)
        };
        let mut watch = Watch {
            inotify: { store.open_queue() }
                .is_ok()
                .then(watch)
                .and_then(Result::ok),
            known: Default::default(),
        };
        watch.known = watch.state(store);
        watch
    }

    /// What has happened until now is about to be seen.
    pub fn forget(&mut self) {
        if let Some(inotify) = &self.inotify {
            while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
        }
    }

    /// Whether it was woken; else the time is over.
    pub fn wait(&mut self, store: &Store, number: u64, time: Duration) -> Result<bool> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(inotify) = &self.inotify else {
                std::thread::sleep(left.min(UNWATCHED));
                let now = self.state(store);
                let woken = now != self.known;
                self.known = now;
                if woken || left.is_zero() {
                    return Ok(woken);
                }
                continue;
            };
            match inotify.read_events() {
                Ok(events) if events.iter().any(|e| matters(e, number)) => return Ok(true),
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(e) => return Err(e).context(|| "wait for room"),
            }
            if left.is_zero() {
                return Ok(false);
            }
            // Rounded up, so that what is left is not spent with a full processor.
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context(|| "wait for room"),
            }
        }
    }

    fn state(&self, store: &Store) -> (Vec<String>, Vec<Waiting>) {
        match self.inotify {
            Some(_) => Default::default(),
            None => (store.names(), store.waiting().unwrap_or_default()),
        }
    }
}

/// Not who comes behind us, and not what we write ourselves.
fn matters(event: &InotifyEvent, number: u64) -> bool {
    let name = event.name.as_deref().and_then(OsStr::to_str);
    let of_queue = name.filter(|n| !n.contains(['.', '-']));
    match of_queue.and_then(|n| n.parse::<u64>().ok()) {
        Some(other) => other < number,
        // A lease, or a queue of events that was too long.
        None => name != Some(crate::store::UNFINISHED),
    }
}
