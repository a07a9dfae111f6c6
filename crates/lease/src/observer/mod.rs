//! Hears of every create, release and failed call of the driver, and counts them.
//!
//! Counting never fails or delays an operation: without a file to count in, the log has one line, and the operation goes
//! on.

mod create;

pub use create::Create;

use crate::counters::{
    Actor, Counter, Counters, DriverFailure, HolderKind, LeaseKind, Outcome, Part, ResourceKind,
    Times,
};
use crate::error::Error;
use crate::gpu::{DriverError, Listener, Reason};
use crate::model::BootId;
use crate::request::Wanted;
use crate::store::{Instance, Kind, Lease};
use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The observer of one process's operations.
pub(crate) struct Observer {
    state_dir: PathBuf,
    boot: BootId,
    actor: Cell<Actor>,
    driver_time: Cell<Duration>,
    counters: OnceCell<Option<Counters>>,
}

impl Observer {
    pub(crate) fn new(state_dir: &Path, boot: &BootId) -> Observer {
        Observer {
            state_dir: state_dir.to_owned(),
            boot: boot.clone(),
            actor: Cell::new(Actor::Create),
            driver_time: Cell::new(Duration::ZERO),
            counters: OnceCell::new(),
        }
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

    /// Begins a create, which `created`, `failed` or `refused` ends.
    pub(crate) fn begin(&self, kind: LeaseKind, holder: HolderKind) -> Create {
        Create::new(kind, holder, self.driver_time.get())
    }

    /// Hears of a create that ended with a container, and of the time of its low-level runtime.
    pub(crate) fn created(&self, create: &Create, runtime: Option<Duration>) {
        let driver = self.driver_time.get().saturating_sub(create.driver_before);
        let parts = [
            (Part::Total, Some(create.begun.elapsed())),
            (Part::Wait, Some(create.wait)),
            (Part::Driver, Some(driver)),
            (Part::Runtime, runtime),
        ];
        self.count(create_counter(create, create.made()));
        let Some(counters) = self.counters() else {
            return;
        };
        for (part, time) in parts {
            if let Some(time) = time {
                counters.observe(Times::Create(create.kind, part), time);
            }
        }
    }

    /// Hears of a create that failed with this error.
    pub(crate) fn failed(&self, create: &Create, e: &Error) {
        self.count(create_counter(create, create.failed(e)));
    }

    /// Hears of a create that ended in another way.
    pub(crate) fn ended(&self, create: &Create, outcome: Outcome) {
        self.count(create_counter(create, outcome));
    }

    /// Hears that this process removed a lease, whose release began at this moment.
    pub(crate) fn released(&self, lease: &Lease, instance: &Instance, begun: Instant) {
        let kind = portion_kind(instance, lease.share().is_some());
        self.count_release(kind, begun);
    }

    /// Hears that this process removed an instance without a lease. It counts if it made room.
    pub(crate) fn removed(&self, instance: &Instance, begun: Instant) {
        if self.actor.get() == Actor::Eviction {
            self.count_release(portion_kind(instance, false), begun);
        }
    }

    fn count_release(&self, kind: LeaseKind, begun: Instant) {
        self.count(Counter::Releases(kind, self.actor.get()));
        if let Some(counters) = self.counters() {
            counters.observe(Times::Release(kind), begun.elapsed());
        }
    }

    /// Hears of one more try to destroy an instance.
    pub(crate) fn retried(&self, instance: &Instance) {
        self.count(Counter::DestroyRetries(resource_kind(instance)));
    }

    /// Hears that an instance is quarantined.
    pub(crate) fn quarantined(&self, instance: &Instance) {
        self.count(Counter::Quarantines(resource_kind(instance)));
    }

    /// Hears that a collection looked at every record.
    pub(crate) fn collected(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        if let (Ok(now), Some(counters)) = (now, self.counters()) {
            counters.set_moment(Counter::LastCollection, now.as_secs());
        }
    }

    fn count(&self, counter: Counter) {
        if let Some(counters) = self.counters() {
            counters.count(counter);
        }
    }

    /// Returns the counters, which the first count opens.
    fn counters(&self) -> Option<&Counters> {
        let open = || match Counters::open(&self.state_dir, &self.boot) {
            Ok(counters) => Some(counters),
            Err(e) => {
                tracing::warn!("nothing is counted: {}", e.line());
                None
            }
        };
        self.counters.get_or_init(open).as_ref()
    }
}

impl Listener for Observer {
    fn called(&self, time: Duration, failure: Option<&DriverError>) {
        self.driver_time.set(self.driver_time.get() + time);
        if let Some(failure) = failure {
            self.count(Counter::DriverErrors(match &failure.reason {
                Reason::Code(code) => DriverFailure::Code(*code),
                Reason::Library(_) => DriverFailure::Library,
                Reason::Answer(_) => DriverFailure::Answer,
            }));
        }
    }
}

fn create_counter(create: &Create, outcome: Outcome) -> Counter {
    Counter::Creates(create.kind, create.holder, outcome)
}

/// Returns the kind of what a request wants.
pub(crate) fn kind_of_wanted(wanted: &Wanted) -> LeaseKind {
    match wanted {
        Wanted::Slices(_) => LeaseKind::Slice,
        Wanted::Share(_) => LeaseKind::Share,
        Wanted::Seat(_) => LeaseKind::Seat,
        Wanted::Gpus(_) => LeaseKind::Gpu,
    }
}

fn portion_kind(instance: &Instance, has_share: bool) -> LeaseKind {
    match (Kind::of(&instance.resource), instance.resource.mig_slice()) {
        (Kind::Mps, Some(_)) => LeaseKind::Seat,
        (Kind::Mig, _) if has_share => LeaseKind::Seat,
        (Kind::Mig, _) => LeaseKind::Slice,
        (Kind::Mps, None) => LeaseKind::Share,
        (Kind::Gpu, _) if has_share => LeaseKind::Share,
        (Kind::Gpu, _) => LeaseKind::Gpu,
        _ => LeaseKind::Other,
    }
}

fn resource_kind(instance: &Instance) -> ResourceKind {
    match Kind::of(&instance.resource) {
        Kind::Mig => ResourceKind::Mig,
        Kind::Gpu => ResourceKind::Gpu,
        Kind::Mps => ResourceKind::Mps,
        _ => ResourceKind::Other,
    }
}
