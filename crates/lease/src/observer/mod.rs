//! Hears of every create, release and failed call of the driver, and tells its sinks: the counters and the history.
//!
//! No sink fails or delays an operation. Without a file to write to, the log has one line, and the operation goes on.

mod counted;
mod create;
mod news;
mod recorded;

pub(crate) use counted::Counted;
pub use create::Create;
pub(crate) use create::kind_of_wanted;
pub(crate) use news::{Existing, News, Sink};
pub(crate) use recorded::Recorded;

use crate::counters::{Actor, LeaseKind, Outcome};
use crate::error::Error;
use crate::gpu::{DriverError, Listener};
use crate::store::{Held, Holder, Instance, Lease};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The observer of one process's operations.
pub(crate) struct Observer {
    sinks: Vec<Box<dyn Sink>>,
    actor: Cell<Actor>,
    driver_time: Cell<Duration>,
}

impl Observer {
    pub(crate) fn new(sinks: Vec<Box<dyn Sink>>) -> Observer {
        Observer {
            sinks,
            actor: Cell::new(Actor::Create),
            driver_time: Cell::new(Duration::ZERO),
        }
    }

    /// Tells all sinks.
    pub(crate) fn tell(&self, news: &News<'_>) {
        self.sinks.iter().for_each(|sink| sink.hear(news));
    }

    /// Sets the actor of the releases from here on.
    pub(crate) fn act_as(&self, actor: Actor) {
        self.actor.set(actor);
    }

    /// Does work with releases of another actor.
    pub(crate) fn acting<T>(&self, actor: Actor, work: impl FnOnce() -> T) -> T {
        let before = self.actor.replace(actor);
        let done = work();
        self.actor.set(before);
        done
    }

    /// Begins a create, which `created`, `failed` or `ended` ends. `holder`: none where it is not known.
    pub(crate) fn begin(&self, kind: LeaseKind, holder: Option<Holder>, request: &str) -> Create {
        Create::new(kind, (holder, request), self.driver_time.get())
    }

    /// Hears that a create is about to wait. It tells that once until the wait ends.
    pub(crate) fn waits(&self, create: &mut Create) {
        if !std::mem::replace(&mut create.waits, true) {
            self.tell(&News::WaitBegun(create));
        }
    }

    /// Hears that a create waits no more, if it did.
    pub(crate) fn waits_no_more(&self, create: &mut Create) {
        if std::mem::take(&mut create.waits) {
            let times = create.times(self.driver_time.get(), None);
            self.tell(&News::WaitEnded(create, times));
        }
    }

    /// Hears of a create that ended with a container on these leases, and of the time of its low-level runtime.
    pub(crate) fn created(&self, create: &Create, leases: &[Held], runtime: Option<Duration>) {
        self.tell(&News::Created {
            create,
            outcome: create.made(),
            leases,
            times: create.times(self.driver_time.get(), runtime),
        });
    }

    /// Hears of a create that failed with this error.
    pub(crate) fn failed(&self, create: &Create, e: &Error) {
        self.ended(create, create.failed(e), Some(e));
    }

    /// Hears of a create that ended in another way.
    pub(crate) fn ended(&self, create: &Create, outcome: Outcome, error: Option<&Error>) {
        self.tell(&News::Failed {
            create,
            outcome,
            error,
            times: create.times(self.driver_time.get(), None),
        });
    }

    /// Hears that this process removed a lease, whose release began at this moment.
    pub(crate) fn released(&self, lease: &Lease, instance: &Instance, begun: Instant) {
        self.tell(&News::Released {
            lease,
            instance,
            by: self.actor.get(),
            time: begun.elapsed(),
        });
    }

    /// Hears that this process removed an instance without a lease. It counts if it made room.
    pub(crate) fn removed(&self, instance: &Instance, begun: Instant) {
        if self.actor.get() == Actor::Eviction {
            let time = begun.elapsed();
            self.tell(&News::Evicted { instance, time });
        }
    }
}

impl Listener for Observer {
    fn called(&self, time: Duration, failure: Option<&DriverError>) {
        self.driver_time.set(self.driver_time.get() + time);
        if let Some(failure) = failure {
            self.tell(&News::DriverFailed(failure));
        }
    }
}
