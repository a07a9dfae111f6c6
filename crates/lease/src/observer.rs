//! Hears of every create, release and failed call of the driver, counts it, and writes the history.
//!
//! Neither fails an operation. Without a file to write to, the log has one line, and the operation goes on.

use crate::counters::{
    Actor, Counter, Counts, DriverFailure, HolderKind, LeaseKind, Outcome, Part, ResourceKind,
    Times,
};
use crate::error::{Error, printable};
use crate::events::{Event, EventSeconds, EventType, Writer};
use crate::gpu::{Listener, Reason};
use crate::model::{Cordon, GpuUuid};
use crate::request::Wanted;
use crate::store::{Entry, Held, Holder, Instance, Lease, Waiter, random_id};
use crate::view::LeaseView;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The observer of one process's operations.
pub(crate) struct Observer {
    events: Option<Writer>,
    actor: Cell<Actor>,
    driver_time: Cell<Duration>,
    counts: Arc<Mutex<Counts>>,
    /// The create under way, until its end is told.
    create: RefCell<Option<Create>>,
}

impl Observer {
    pub(crate) fn new(counts: Arc<Mutex<Counts>>, events: Option<PathBuf>) -> Observer {
        Observer {
            events: events.map(Writer::new),
            actor: Cell::new(Actor::Create),
            driver_time: Cell::new(Duration::ZERO),
            counts,
            create: RefCell::default(),
        }
    }

    /// Keeps the counts of operations that only look out of the ledger.
    pub(crate) fn count_nothing(&mut self) {
        self.counts = Arc::default();
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

    /// Begins a create. `created`, `failed` or `ended` ends it, and does nothing where none is under way. `holder`: none
    /// where it is not known.
    pub(crate) fn begin(&self, kind: LeaseKind, holder: Option<Holder>, request: &str) {
        self.create.replace(Some(Create {
            kind,
            holder,
            request: request.to_owned(),
            begun: Instant::now(),
            driver_before: self.driver_time.get(),
            wait: Duration::ZERO,
            waits: false,
            outcome: None,
        }));
    }

    /// Returns whether a create is under way whose end is not told.
    pub(crate) fn is_creating(&self) -> bool {
        self.create.borrow().is_some()
    }

    /// Sets the end of the create, unless a failure comes later.
    pub(crate) fn ends(&self, outcome: Outcome) {
        if let Some(create) = self.create.borrow_mut().as_mut() {
            create.outcome = Some(outcome);
        }
    }

    /// Adds a time in the queue.
    pub(crate) fn waited(&self, since: Instant) {
        if let Some(create) = self.create.borrow_mut().as_mut() {
            create.wait += since.elapsed();
        }
    }

    /// Hears that the create is about to wait. It tells that once until the wait ends.
    pub(crate) fn waits(&self) {
        if let Some(create) = self.create.borrow_mut().as_mut()
            && !std::mem::replace(&mut create.waits, true)
        {
            self.write(of_create(EventType::WaitBegun, create));
        }
    }

    /// Hears that the create waits no more, if it did.
    pub(crate) fn waits_no_more(&self) {
        if let Some(create) = self.create.borrow_mut().as_mut()
            && std::mem::take(&mut create.waits)
        {
            self.write(Event {
                seconds: Some(seconds([None, Some(create.wait), None, None])),
                ..of_create(EventType::WaitEnded, create)
            });
        }
    }

    /// Hears that the process of a create has ended while it waited.
    pub(crate) fn wait_killed(&self, waiter: &Waiter) {
        self.write(Event {
            lease: Some(LeaseView {
                container: Some(waiter.container.clone()),
                request: Some(waiter.request.clone()),
                ..LeaseView::default()
            }),
            error: Some("its process has ended".to_owned()),
            ..Event::now(EventType::WaitEnded)
        });
    }

    /// Counts the create, which ends with a container, and the time of its low-level runtime. The change that makes its
    /// leases *ready* takes the count along.
    pub(crate) fn count_created(&self, runtime: Option<Duration>) {
        let end = self.create.borrow().as_ref().map(Create::made);
        if let Some(end) = end {
            let counts = self.counts_of(end, runtime);
            self.counts().add(&counts);
        }
    }

    /// Returns the counts of the create, if it ends so, for the change that makes its leases *ready*.
    pub(crate) fn counts_of(&self, end: Outcome, runtime: Option<Duration>) -> Counts {
        let mut counts = Counts::default();
        let create = self.create.borrow();
        let Some(create) = create.as_ref() else {
            return counts;
        };
        counts.count(Counter::Creates(create.kind, create.holder_kind(), end));
        for (part, time) in Part::ALL.iter().zip(self.times_of(create, runtime)) {
            if let Some(time) = time {
                counts.observe(Times::Create(create.kind, *part), time);
            }
        }
        counts
    }

    /// Hears that the create ended with a container on these leases.
    pub(crate) fn created(&self, leases: &[Held], runtime: Option<Duration>) {
        let Some(create) = self.create.take() else {
            return;
        };
        let seconds = seconds(self.times_of(&create, runtime));
        for held in leases {
            self.write(Event {
                verdict: Some(create.made().word().to_owned()),
                seconds: Some(seconds.clone()),
                ..of_held(EventType::Ready, held)
            });
        }
    }

    /// Hears that the create failed with this error.
    pub(crate) fn failed(&self, e: &Error) {
        let outcome = self.create.borrow().as_ref().map(|create| create.failed(e));
        if let Some(outcome) = outcome {
            self.ended(outcome, Some(e));
        }
    }

    /// Hears that the create ended in another way. `error`: none where another program told it.
    pub(crate) fn ended(&self, outcome: Outcome, error: Option<&Error>) {
        let Some(create) = &self.create.take() else {
            return;
        };
        self.count(Counter::Creates(create.kind, create.holder_kind(), outcome));
        self.write(Event {
            verdict: Some(outcome.word().to_owned()),
            seconds: Some(seconds(self.times_of(create, None))),
            error: error.map(Error::line),
            ..of_create(EventType::Refused, create)
        });
    }

    /// Returns the times of a create until now, in the order of the parts.
    fn times_of(&self, create: &Create, runtime: Option<Duration>) -> [Option<Duration>; 4] {
        let driver = self.driver_time.get().saturating_sub(create.driver_before);
        let total = create.begun.elapsed();
        [Some(total), Some(create.wait), Some(driver), runtime]
    }

    /// Hears that a lease has its instance, and how: promised, made, reused, adopted or shared.
    pub(crate) fn placed(&self, held: &Held, how: EventType) {
        self.write(of_held(how, held));
    }

    /// Hears that one more try to destroy an instance, or to end a daemon, begins.
    pub(crate) fn retried(&self, kind: ResourceKind) {
        self.count(Counter::DestroyRetries(kind));
    }

    /// Hears that an instance could not be destroyed, or a daemon not ended, for the first time.
    pub(crate) fn quarantined(
        &self,
        kind: ResourceKind,
        lease: Option<&Lease>,
        instance: &Instance,
        error: &Error,
    ) {
        self.count(Counter::Quarantines(kind));
        self.write(Event {
            error: Some(error.line()),
            ..of(EventType::Quarantined, &entry(lease, instance))
        });
    }

    /// Hears that a repair replaced a damaged ledger.
    pub(crate) fn repaired(&self, ledger: &Path, why: &Error) {
        self.write(Event {
            record: Some(printable(&ledger.to_string_lossy())),
            error: Some(why.line()),
            ..Event::now(EventType::RecordDamaged)
        });
    }

    /// Hears that all changes of a layout are made.
    pub(crate) fn applied(&self, layout: &str) {
        self.write(Event {
            lease: Some(LeaseView {
                layout: Some(layout.to_owned()),
                ..LeaseView::default()
            }),
            ..Event::now(EventType::LayoutApplied)
        });
    }

    /// Hears that a GPU was cordoned, or opened again.
    pub(crate) fn closed(&self, how: EventType, gpu: &GpuUuid, cordon: Option<&Cordon>) {
        self.write(Event {
            lease: Some(LeaseView {
                gpu_uuid: Some(gpu.to_string()),
                ..LeaseView::default()
            }),
            reason: cordon.and_then(|cordon| cordon.reason.clone()),
            ..Event::now(how)
        });
    }

    /// Hears that a collection looked at every record.
    pub(crate) fn collected(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.counts().last_collection = now.map_or(0, |now| now.as_secs());
    }

    fn write(&self, event: Event) {
        self.write_all(vec![event]);
    }

    pub(crate) fn write_all(&self, mut events: Vec<Event>) {
        if let Some(file) = &self.events {
            for event in events.iter_mut().filter(|event| event.id.is_none()) {
                event.id = random_id().ok();
            }
            file.write(events);
        }
    }

    fn count(&self, counter: Counter) {
        self.counts().count(counter);
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }
}

impl Listener for Observer {
    fn returned(&self, time: Duration) {
        self.driver_time.set(self.driver_time.get() + time);
    }

    fn failed(&self, reason: &Reason) {
        self.count(Counter::DriverErrors(match reason {
            Reason::Code(code) => DriverFailure::Code(*code),
            Reason::Library(_) => DriverFailure::Library,
            Reason::Answer(_) | Reason::Silent(_) => DriverFailure::Answer,
        }));
    }
}

fn of_create(event_type: EventType, create: &Create) -> Event {
    let holder = create.holder.as_ref();
    Event {
        user: holder.and_then(user),
        lease: Some(LeaseView {
            kind: Some(create.kind.word().to_owned()),
            request: Some(create.request.clone()).filter(|request| !request.is_empty()),
            ..holder.map_or_else(LeaseView::default, LeaseView::held_by)
        }),
        ..Event::now(event_type)
    }
}

fn of_held(event_type: EventType, held: &Held) -> Event {
    of(event_type, &Entry::Held(held.clone()))
}

fn of(event_type: EventType, entry: &Entry) -> Event {
    Event {
        user: entry.lease().and_then(|lease| user(&lease.holder)),
        lease: Some(LeaseView::from(entry)),
        ..Event::now(event_type)
    }
}

fn entry(lease: Option<&Lease>, instance: &Instance) -> Entry {
    let instance = Arc::new(instance.clone());
    match lease.cloned().map(Arc::new) {
        Some(lease) => Entry::Held(Held { lease, instance }),
        None => Entry::Unleased(instance),
    }
}

fn user(holder: &Holder) -> Option<u32> {
    match holder {
        Holder::Container(container) => container.user,
        Holder::Claim(_) => None,
    }
}

/// Returns total, wait, driver and runtime as events have them.
fn seconds(times: [Option<Duration>; 4]) -> EventSeconds {
    let [total, wait, driver, runtime] = times.map(|time| time.and_then(EventSeconds::of));
    EventSeconds {
        total,
        wait,
        driver,
        runtime,
    }
}

/// A create under way. It is counted once, at its end.
#[derive(Debug)]
struct Create {
    kind: LeaseKind,
    /// None where the request was refused before its container was known.
    holder: Option<Holder>,
    /// The request, as the user wrote it.
    request: String,
    begun: Instant,
    /// The driver's time before the create.
    driver_before: Duration,
    /// The time in the queue.
    wait: Duration,
    /// Whether the begin of a wait is told.
    waits: bool,
    /// The end as far as it is known.
    outcome: Option<Outcome>,
}

impl Create {
    /// Returns the kind of the holder.
    fn holder_kind(&self) -> HolderKind {
        match &self.holder {
            Some(Holder::Claim(_)) => HolderKind::Claim,
            Some(Holder::Container(_)) | None => HolderKind::Container,
        }
    }

    /// Returns the end of a create that succeeds.
    fn made(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::Created)
    }

    /// Returns the end of a create that fails with this error: what the create said, or else the origin of the error.
    fn failed(&self, e: &Error) -> Outcome {
        self.outcome.unwrap_or(match e.is_of_driver() {
            true => Outcome::Driver,
            false => Outcome::Refused,
        })
    }
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

/// What a change ends. Its events have ids by which a reader knows one that was written twice.
pub(crate) struct Ends {
    actor: Actor,
    pub(crate) counts: Counts,
    pub(crate) events: Vec<Event>,
}

impl Ends {
    pub(crate) fn by(observer: &Observer) -> Ends {
        Ends {
            actor: observer.actor.get(),
            counts: Counts::default(),
            events: Vec::new(),
        }
    }

    /// The change removes a lease, or an idle slice, whose release began at this moment.
    pub(crate) fn release(&mut self, lease: Option<&Lease>, instance: &Instance, begun: Instant) {
        let event_type = match self.actor {
            Actor::Gc => EventType::Collected,
            Actor::Eviction => EventType::Evicted,
            _ => EventType::Released,
        };
        let entry = &entry(lease, instance);
        let (kind, time) = (entry.shown().kind, begun.elapsed());
        self.counts.count(Counter::Releases(kind, self.actor));
        self.counts.observe(Times::Release(kind), time);
        let event = Event {
            actor: Some(self.actor.word().to_owned()),
            seconds: Some(seconds([Some(time), None, None, None])),
            ..of(event_type, entry)
        };
        self.push(event, "end");
    }

    /// The change removes a lease of an earlier boot.
    pub(crate) fn lapsed(&mut self, held: &Held) {
        let event = Event {
            actor: Some(Actor::Gc.word().to_owned()),
            error: Some("its boot is over".to_owned()),
            ..of_held(EventType::Collected, held)
        };
        self.push(event, "end");
    }

    /// A quarantined instance is destroyed, or the quarantined daemon of a lease has ended.
    pub(crate) fn recovered(&mut self, lease: Option<&Lease>, instance: &Instance) {
        let event = of(EventType::Recovered, &entry(lease, instance));
        self.push(event, "recovered");
    }

    fn push(&mut self, mut event: Event, kind: &str) {
        // Whatever kept it until now keeps it no longer.
        event.lease.iter_mut().for_each(|lease| lease.error = None);
        self.events.push(event.once(kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{DriverError, GPU_IS_LOST};
    use crate::store::tests::{instance, lease};

    #[test]
    fn failure_has_its_origin() {
        let observer = Observer::new(Arc::default(), None);
        observer.begin(LeaseKind::Slice, None, "1g.10gb");
        let mut create = observer.create.take().unwrap();
        let lost = Error::from(DriverError {
            what: "create".to_owned(),
            reason: Reason::Code(GPU_IS_LOST),
        });
        assert_eq!(
            create.failed(&Error::new("it is refused")),
            Outcome::Refused
        );
        assert_eq!(create.failed(&lost), Outcome::Driver);
        let above = Error::new("no slice").caused_by(lost);
        assert_eq!(create.failed(&above), Outcome::Driver);
        create.outcome = Some(Outcome::Limited);
        assert_eq!(create.failed(&above), Outcome::Limited);
    }

    /// What ends without the process that began it is told all the same.
    #[test]
    fn tells_a_killed_wait_and_an_earlier_boot() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("events.jsonl");
        let observer = Observer::new(Arc::default(), Some(file.clone()));
        observer.wait_killed(&Waiter {
            container: "web".to_owned(),
            request: "1g.10gb".to_owned(),
            ..Waiter::default()
        });
        let mut ends = Ends::by(&observer);
        let one = Held {
            lease: lease("one").into(),
            instance: instance("ione").into(),
        };
        ends.lapsed(&one);
        observer.write_all(ends.events);
        let mut all = Vec::new();
        let mut history = crate::events::History::new(&file);
        history.read(true, &mut |event| all.push(event)).unwrap();
        let told: Vec<_> = { all.iter() }
            .map(|event| {
                let lease = event.lease.as_ref().unwrap();
                let names = (lease.container.as_deref(), lease.request.as_deref());
                let why = (event.actor.as_deref(), event.error.as_deref());
                (event.event_type.word(), names, why)
            })
            .collect();
        let names = |id| (Some(id), Some("1g.10gb"));
        assert_eq!(
            told,
            [
                (
                    "wait-ended",
                    names("web"),
                    (None, Some("its process has ended"))
                ),
                (
                    "collected",
                    names("c1"),
                    (Some("gc"), Some("its boot is over"))
                ),
            ]
        );
    }
}
