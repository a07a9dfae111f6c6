//! The ends of leases and instances by one change of the ledger.

use super::{Observer, of, of_held, seconds};
use crate::counters::{Actor, Counter, Counts, LeaseKind, Times};
use crate::events::{Event, EventType};
use crate::store::{Held, Instance, Lease};
use std::time::Instant;

/// What a change ends. Its events have ids by which a reader knows one that was written twice.
pub(crate) struct Ends<'a> {
    observer: &'a Observer,
    pub(crate) counts: Counts,
    pub(crate) events: Vec<Event>,
}

impl Ends<'_> {
    pub(crate) fn by(observer: &Observer) -> Ends<'_> {
        Ends {
            observer,
            counts: Counts::default(),
            events: Vec::new(),
        }
    }

    /// The change removes a lease, whose release began at this moment.
    pub(crate) fn lease(&mut self, lease: &Lease, instance: &Instance, begun: Instant) {
        let event_type = match self.observer.actor.get() {
            Actor::Gc => EventType::Collected,
            Actor::Eviction => EventType::Evicted,
            _ => EventType::Released,
        };
        let kind = portion_kind(instance, lease.share().is_some());
        self.ends(kind, of(event_type, Some(lease), instance), begun);
    }

    /// The change removes an instance without a lease. It counts if it made room.
    pub(crate) fn instance(&mut self, instance: &Instance, begun: Instant) {
        if self.observer.actor.get() == Actor::Eviction {
            let kind = portion_kind(instance, false);
            self.ends(kind, of(EventType::Evicted, None, instance), begun);
        }
    }

    fn ends(&mut self, kind: LeaseKind, event: Event, begun: Instant) {
        let (by, time) = (self.observer.actor.get(), begun.elapsed());
        self.counts.count(Counter::Releases(kind, by));
        self.counts.observe(Times::Release(kind), time);
        let event = Event {
            actor: Some(by.word().to_owned()),
            seconds: Some(seconds([Some(time), None, None, None])),
            ..event
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
        let event = of(EventType::Recovered, lease, instance);
        self.push(event, "recovered");
    }

    fn push(&mut self, mut event: Event, kind: &str) {
        // Whatever kept it until now keeps it no longer.
        event.lease.iter_mut().for_each(|lease| lease.error = None);
        self.events.push(event.once(kind));
    }
}

fn portion_kind(instance: &Instance, has_share: bool) -> LeaseKind {
    match (instance.slice(), has_share) {
        (Some(_), true) => LeaseKind::Seat,
        (Some(_), false) => LeaseKind::Slice,
        (None, true) => LeaseKind::Share,
        (None, false) => LeaseKind::Gpu,
    }
}
