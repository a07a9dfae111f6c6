//! The events that wake a waiting create: a lease goes, an earlier ticket leaves the queue, or its own
//! bundle ends.

use crate::bundles::Bundles;
use crate::error::{Context, Error, Result};
use crate::store::{self, Store};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::cell::Cell;
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
    /// The last known number of changes that made room.
    freed: Cell<Option<u64>>,
    /// The last known earlier tickets, without the kernel's events.
    earlier: Vec<u64>,
}

/// The kernel's source of events.
struct Events {
    inotify: Inotify,
    /// The watch of the bundle. None if only a look at the bundle finds its end.
    of_bundle: Option<WatchDescriptor>,
}

impl Watch {
    pub(super) fn on(store: &Store, bundle: &Path) -> Watch {
        // The watch comes first, so that no change lies between.
        let events = Events::of(store, u64::MAX, bundle);
        Watch {
            bundle: bundle.to_owned(),
            earlier: match events {
                Some(_) => Vec::new(),
                None => store.numbers_before(u64::MAX),
            },
            events,
            freed: Cell::new(store.freed()),
        }
    }

    /// Forgets the events until now. The caller looks at the state next.
    pub(super) fn forget(&mut self, store: &Store) {
        self.freed.set(store.freed());
        if let Some(Events { inotify, .. }) = &self.events {
            while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
        }
    }

    /// Waits for an event. It fails if the bundle is gone.
    pub(super) fn wait(
        &mut self,
        (store, bundles): (&Store, &dyn Bundles),
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
                let ahead = store.numbers_before(number).len();
                let times = 1 + u32::try_from(ahead / AS_MANY).unwrap_or(u32::MAX - 1);
                crate::effect::pause(left.min(UNWATCHED * times));
                // Other waiters may have released their watches.
                self.events = Events::of(store, number, &self.bundle);
                if self.events.is_some() {
                    return Ok(Woken::ByQueue);
                }
                let earlier = store.numbers_before(number);
                let woken = match (earlier == self.earlier, self.has_room_come(store)) {
                    (false, _) => Woken::ByQueue,
                    (true, true) => Woken::ByLease,
                    (true, false) => Woken::No,
                };
                self.earlier = earlier;
                if woken != Woken::No || left.is_zero() {
                    return Ok(woken);
                }
                continue;
            };
            match events.inotify.read_events() {
                Ok(all) => match all.iter().map(|e| events.woken_by(e, number)).max() {
                    None | Some(Woken::No) => {}
                    // A write that made no room wakes nobody.
                    Some(Woken::ByLease) if !self.has_room_come(store) => continue,
                    Some(woken) => return Ok(woken),
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

    fn has_room_come(&self, store: &Store) -> bool {
        let freed = store.freed();
        self.freed.replace(freed) != freed
    }
}

impl Events {
    fn of(store: &Store, number: u64, bundle: &Path) -> Option<Events> {
        store.open_queue().ok()?;
        if store.numbers_before(number).len() >= MOST_WATCHED {
            return None;
        }
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
        // A watch on the file would end with the file's first replacement.
        inotify
            .add_watch(store.dir(), AddWatchFlags::IN_MOVED_TO)
            .ok()?;
        // Closed for writing: the waiter ended, in whatever way. Modified: the waiter stepped aside.
        let leaves =
            AddWatchFlags::IN_DELETE | AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MODIFY;
        inotify.add_watch(&store.queue(), leaves).ok()?;
        let goes = AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        let of_bundle = inotify.add_watch(bundle, goes).ok();
        Some(Events { inotify, of_bundle })
    }

    /// Returns the meaning of an event for this waiter. It ignores later requests, its own writes and
    /// events of the bundle. The waiter looks at its bundle each time.
    fn woken_by(&self, event: &InotifyEvent, number: u64) -> Woken {
        if self.of_bundle == Some(event.wd) {
            return Woken::No;
        }
        let name = event.name.as_deref().and_then(OsStr::to_str);
        match name.map(|name| (name, name.parse::<u64>())) {
            Some((_, Ok(earlier))) if earlier < number => Woken::ByQueue,
            Some((store::LEDGER, _)) => Woken::ByLease,
            Some(_) => Woken::No,
            // The kernel's queue of events overflowed.
            None => Woken::ByQueue,
        }
    }
}
