//! The events that wake those who wait for room: a lease that goes, an earlier ticket that leaves
//! the queue, and the end of their own bundle.

use crate::bundles::Bundles;
use crate::error::{Context, Error, Result};
use crate::store::Store;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So many are told. A node has 128 watches for all of root's programs, and engines need theirs; whoever
/// is further behind has time to look by itself.
const MOST_WATCHED: usize = 32;
/// How often it looks where it is not told; less often the more are before it.
const UNWATCHED: Duration = Duration::from_millis(200);
/// So many more make it as much longer.
const AS_MANY: usize = 8;

/// The event that woke a waiter. The last of several counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Woken {
    /// Nothing: the time is over.
    No,
    /// A lease that went.
    ByLease,
    /// One before it that left the queue, for all that is known.
    ByQueue,
}

pub(super) struct Watch {
    /// A user who takes it away has no use for the container any more.
    bundle: PathBuf,
    /// None for who is too far behind, or where there is none to be had.
    told: Option<Told>,
    /// The last known state without the kernel's events: the leases, and the earlier tickets.
    known: (Vec<String>, Vec<u64>),
}

/// The kernel's source of events.
struct Told {
    inotify: Inotify,
    /// None where only its looks find that out.
    of_bundle: Option<WatchDescriptor>,
}

impl Watch {
    pub(super) fn on(store: &Store, bundle: &Path) -> Watch {
        let mut watch = Watch {
            bundle: bundle.to_owned(),
            told: Told::of(store, u64::MAX, bundle),
            known: Default::default(),
        };
        watch.known = watch.state(store, u64::MAX);
        watch
    }

    /// Forgets the events until now, which the caller is about to see.
    pub(super) fn forget(&mut self) {
        if let Some(Told { inotify, .. }) = &self.told {
            while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
        }
    }

    /// An error where its bundle is gone.
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
            let Some(told) = &self.told else {
                let ahead = store.numbers_before(number).len();
                let times = 1 + u32::try_from(ahead / AS_MANY).unwrap_or(u32::MAX - 1);
                std::thread::sleep(left.min(UNWATCHED * times));
                // Others may have done with theirs.
                self.told = Told::of(store, number, &self.bundle);
                if self.told.is_some() {
                    return Ok(Woken::ByQueue);
                }
                let now = self.state(store, number);
                let woken = match (now.0 == self.known.0, now.1 == self.known.1) {
                    (_, false) => Woken::ByQueue,
                    (false, true) => Woken::ByLease,
                    (true, true) => Woken::No,
                };
                self.known = now;
                if woken != Woken::No || left.is_zero() {
                    return Ok(woken);
                }
                continue;
            };
            match told.inotify.read_events() {
                Ok(events) => match events.iter().map(|e| told.woken_by(e, number)).max() {
                    None | Some(Woken::No) => {}
                    Some(woken) => return Ok(woken),
                },
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(e) => return Err(e).context(|| "wait for room"),
            }
            if left.is_zero() {
                return Ok(Woken::No);
            }
            // Rounded up, so that what is left is not spent with a full processor.
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(told.inotify.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context(|| "wait for room"),
            }
        }
    }

    fn state(&self, store: &Store, number: u64) -> (Vec<String>, Vec<u64>) {
        match self.told {
            Some(_) => Default::default(),
            None => (store.names(), store.numbers_before(number)),
        }
    }
}

impl Told {
    fn of(store: &Store, number: u64, bundle: &Path) -> Option<Told> {
        store.open_queue().ok()?;
        if store.numbers_before(number).len() >= MOST_WATCHED {
            return None;
        }
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
        inotify
            .add_watch(&store.leases(), AddWatchFlags::IN_DELETE)
            .ok()?;
        // Closed for writing: by its waiter's end, however that came. Modified: it stepped aside.
        let leaves =
            AddWatchFlags::IN_DELETE | AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MODIFY;
        inotify.add_watch(&store.queue(), leaves).ok()?;
        let goes = AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        let of_bundle = inotify.add_watch(bundle, goes).ok();
        Some(Told { inotify, of_bundle })
    }

    /// Not who comes behind us, and not what we write ourselves. For its bundle it looks each time.
    fn woken_by(&self, event: &InotifyEvent, number: u64) -> Woken {
        if self.of_bundle == Some(event.wd) {
            return Woken::No;
        }
        let name = event.name.as_deref().and_then(OsStr::to_str);
        let of_queue = name.filter(|n| !n.contains(['.', '-']));
        match of_queue.and_then(|n| n.parse::<u64>().ok()) {
            Some(other) if other < number => Woken::ByQueue,
            Some(_) => Woken::No,
            None => match name {
                Some(crate::store::UNFINISHED) => Woken::No,
                Some(_) => Woken::ByLease,
                // A queue of events that was too long.
                None => Woken::ByQueue,
            },
        }
    }
}
