//! The events that wake a waiting create: a lease goes, an earlier ticket leaves the queue, its waiter is killed, or the
//! own bundle ends.

use crate::bundles::Bundles;
use crate::error::{Context, Error, Result};
use crate::store::{self, Header, Store, Waiting};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The number of waiters that use the kernel's events. A node has 128 watches for all of root's programs,
/// and engines need theirs. A waiter further behind has time to look by itself.
const MOST_WATCHED: usize = 32;
/// The time between two looks of a waiter without events. More requests ahead make it longer.
const UNWATCHED: Duration = Duration::from_millis(200);
/// The number of requests ahead that adds `UNWATCHED` once more.
const AS_MANY: usize = 8;

/// The event that woke a waiter. The last of several counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Woken {
    /// No event: the time is over.
    No,
    /// A lease went.
    ByLease,
    /// An earlier request left the queue, as far as this waiter knows.
    ByQueue,
}

pub(super) struct Watch {
    /// The bundle. A user who removes it has no use for the container any more.
    bundle: PathBuf,
    /// The kernel's events. None if the waiter is too far behind, or if the kernel has no watch left.
    events: Option<Events>,
    /// The last known header of the ledger, with the counts of changes that help.
    header: Option<Header>,
    /// The earlier requests, as this waiter saw them last.
    pub earlier: Vec<Waiting>,
}

/// The kernel's source of events.
struct Events {
    inotify: Inotify,
    /// The watch of the bundle. None if only a look at the bundle finds its end.
    of_bundle: Option<WatchDescriptor>,
    /// The watch of the folder of operations.
    of_operations: WatchDescriptor,
}

impl Watch {
    pub(super) fn on(store: &Store, bundle: &Path) -> Watch {
        let queue = store.state().map_or(0, |s| s.queue.before(u64::MAX).len());
        Watch {
            bundle: bundle.to_owned(),
            events: Events::of(store, queue, bundle),
            header: None,
            earlier: Vec::new(),
        }
    }

    /// Forgets the events until now. The caller looks at the state next.
    pub(super) fn forget(&mut self, store: &Store) {
        if let Some(Events { inotify, .. }) = &self.events {
            while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
        }
        self.header = store.header();
    }

    /// Waits for an event. It fails if the bundle is gone.
    pub(super) fn wait(
        &mut self,
        store: &Store,
        bundles: &dyn Bundles,
        number: u64,
        time: Duration,
    ) -> Result<Woken> {
        let end = Instant::now() + time;
        loop {
            if bundles.is_gone(&self.bundle) {
                return Err(Error::new(format!(
                    "the bundle {} is gone: nobody waits for this container any more",
                    self.bundle.display()
                )));
            }
            let left = end.saturating_duration_since(Instant::now());
            let Some(events) = &self.events else {
                let ahead = self.earlier.len();
                let times = 1 + u32::try_from(ahead / AS_MANY).unwrap_or(u32::MAX - 1);
                crate::effect::pause(left.min(UNWATCHED * times));
                // Other waiters may have released their watches.
                self.events = Events::of(store, ahead, &self.bundle);
                let woken = match self.events {
                    Some(_) => Woken::ByQueue,
                    None => self.woken(store, number),
                };
                if woken != Woken::No || left.is_zero() {
                    return Ok(woken);
                }
                continue;
            };
            match events.inotify.read_events() {
                Ok(all) => match all.iter().map(|e| events.woken_by(e)).max() {
                    None | Some(Woken::No) => {}
                    Some(Woken::ByQueue) => return Ok(Woken::ByQueue),
                    Some(Woken::ByLease) => match self.woken(store, number) {
                        // Most changes make no room.
                        Woken::No => continue,
                        woken => return Ok(woken),
                    },
                },
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(e) => return Err(e).context(|| "wait for room"),
            }
            if left.is_zero() {
                return Ok(Woken::No);
            }
            // The timeout is rounded up: a zero timeout would keep the processor busy for the rest.
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            crate::effect::wait("");
            let mut fds = [PollFd::new(events.inotify.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context(|| "wait for room"),
            }
        }
    }

    /// Returns what the ledger's header says. The whole ledger is read only if a ticket left.
    fn woken(&mut self, store: &Store, number: u64) -> Woken {
        let now = store.header();
        let before = std::mem::replace(&mut self.header, now.clone());
        let differs =
            |count: fn(&Header) -> u64| now.as_ref().map(count) != before.as_ref().map(count);
        // A repair begins another ledger, whose counts may be the same.
        let id = |header: &Option<Header>| header.as_ref().map(|header| header.id.clone());
        let may_have_lost = differs(|header| header.left) || id(&now) != id(&before);
        match may_have_lost && self.has_lost(store, number) {
            true => Woken::ByQueue,
            false if differs(|header| header.freed) => Woken::ByLease,
            false => Woken::No,
        }
    }

    /// Returns whether an earlier ticket is gone, or the waiter's own by a repair.
    fn has_lost(&mut self, store: &Store, number: u64) -> bool {
        let Ok(state) = store.state() else {
            return true;
        };
        let now = state.queue.before(number);
        let has_lost = self.earlier.iter().any(|ticket| !now.contains(ticket));
        self.earlier = now.to_vec();
        has_lost || !state.queue.has(number)
    }
}

impl Events {
    fn of(store: &Store, ahead: usize, bundle: &Path) -> Option<Events> {
        if ahead >= MOST_WATCHED {
            return None;
        }
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
        // A watch on the file would end with the file's first replacement.
        inotify
            .add_watch(store.dir(), AddWatchFlags::IN_MOVED_TO)
            .ok()?;
        let of_operations = inotify
            .add_watch(&store.operations(), store::killed())
            .ok()?;
        let goes = AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        let of_bundle = inotify.add_watch(bundle, goes).ok();
        Some(Events {
            inotify,
            of_bundle,
            of_operations,
        })
    }

    /// Returns the meaning of an event for this waiter. It ignores events of the bundle. The waiter looks at its bundle each
    /// time.
    fn woken_by(&self, event: &InotifyEvent) -> Woken {
        if self.of_bundle == Some(event.wd) {
            return Woken::No;
        }
        match event.name.as_deref().and_then(OsStr::to_str) {
            Some(store::LEDGER) => Woken::ByLease,
            // A create was killed, maybe an earlier one.
            Some(_) if event.wd == self.of_operations => Woken::ByQueue,
            Some(_) => Woken::No,
            // The kernel's queue of events overflowed.
            None => Woken::ByQueue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::NoBundles;
    use crate::store::Held;
    use crate::store::tests::{instance, lease};

    /// The kernel may have no watch left.
    #[test]
    fn without_events_looks_until_a_lease_goes_or_the_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Duration::from_secs(1)).unwrap();
        let held = Held {
            lease: lease("one").into(),
            instance: instance("ione").into(),
        };
        store.lock("test").unwrap().put_new(&held).unwrap();
        std::fs::remove_dir(store.operations()).unwrap();
        let mut watch = Watch::on(&store, dir.path());
        assert!(watch.events.is_none());
        watch.forget(&store);
        let mut wait = |time| watch.wait(&store, &NoBundles, u64::MAX, time).unwrap();
        assert!(wait(Duration::ZERO) == Woken::No);
        let ledger = store.lock("test").unwrap();
        ledger
            .change(|state| Ok(state.remove_all(&[held])))
            .unwrap();
        assert!(wait(Duration::from_secs(3600)) != Woken::No);
    }
}
