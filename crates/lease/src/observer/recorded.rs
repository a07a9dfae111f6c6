//! The sink that writes the history.

use super::create::Create;
use super::news::{Existing, News, Sink, Times};
use crate::counters::Actor;
use crate::error::{Error, printable};
use crate::events::{Event, EventSeconds, EventType, Writer};
use crate::store::{Entry, Held, Holder, Instance, Lease};
use crate::view::LeaseView;
use std::time::Duration;

/// The file of events.
pub(crate) struct Recorded(Writer);

impl Recorded {
    pub(crate) fn new(writer: Writer) -> Recorded {
        Recorded(writer)
    }
}

impl Sink for Recorded {
    fn hear(&self, news: &News<'_>) {
        events(news).iter().for_each(|event| self.0.write(event));
    }
}

/// Returns the events of a piece of news.
fn events(news: &News<'_>) -> Vec<Event> {
    let one = match news {
        News::WaitBegun(create) => of_create(EventType::WaitBegun, create),
        News::WaitEnded(create, times) => Event {
            seconds: Some(EventSeconds {
                wait: EventSeconds::of(times.wait),
                ..EventSeconds::default()
            }),
            ..of_create(EventType::WaitEnded, create)
        },
        News::Created {
            outcome,
            leases,
            times,
            ..
        } => {
            let ready = |held| Event {
                verdict: Some(outcome.word().to_owned()),
                seconds: Some(seconds(times)),
                ..of_held(EventType::Ready, held)
            };
            return leases.iter().map(ready).collect();
        }
        News::Failed {
            create,
            outcome,
            error,
            times,
        } => Event {
            verdict: Some(outcome.word().to_owned()),
            seconds: Some(seconds(times)),
            error: error.map(Error::line),
            ..of_create(EventType::Refused, create)
        },
        News::Promised(held) => of_held(EventType::Promised, held),
        News::Taken(held, Existing::Reused) => of_held(EventType::Reused, held),
        News::Taken(held, Existing::Adopted) => of_held(EventType::Adopted, held),
        News::Taken(held, Existing::Shared) => of_held(EventType::Shared, held),
        News::Made(held) => of_held(EventType::Created, held),
        News::Released {
            lease,
            instance,
            by,
            time,
        } => {
            let event_type = match by {
                Actor::Gc => EventType::Collected,
                Actor::Eviction => EventType::Evicted,
                _ => EventType::Released,
            };
            released(of(event_type, Some(lease), instance), *by, *time)
        }
        News::Lapsed(Entry::Unleased(_)) => return Vec::new(),
        News::Lapsed(Entry::Held(held)) => Event {
            actor: Some(Actor::Gc.word().to_owned()),
            error: Some("its boot is over".to_owned()),
            ..of_held(EventType::Collected, held)
        },
        News::Evicted { instance, time } => {
            let evicted = of(EventType::Evicted, None, instance);
            released(evicted, Actor::Eviction, *time)
        }
        News::Quarantined {
            lease,
            instance,
            error,
        } => Event {
            error: Some(error.line()),
            ..of(EventType::Quarantined, *lease, instance)
        },
        News::Recovered(instance) => of(EventType::Recovered, None, instance),
        News::Damaged(damaged) => Event {
            record: Some(printable(&damaged.file.to_string_lossy())),
            error: Some(damaged.why.line()),
            ..Event::now(EventType::RecordDamaged)
        },
        News::LayoutApplied(name) => Event {
            lease: Some(LeaseView {
                layout: Some((*name).to_owned()),
                ..LeaseView::default()
            }),
            ..Event::now(EventType::LayoutApplied)
        },
        News::Retried(_) | News::DriverFailed(_) | News::Collected => {
            return Vec::new();
        }
    };
    vec![one]
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
    of(event_type, Some(&held.lease), &held.instance)
}

fn of(event_type: EventType, lease: Option<&Lease>, instance: &Instance) -> Event {
    let instance = instance.clone();
    let entry = match lease.cloned() {
        Some(lease) => Entry::Held(Held { lease, instance }),
        None => Entry::Unleased(instance),
    };
    Event {
        user: lease.and_then(|lease| user(&lease.holder)),
        lease: Some(LeaseView::from(&entry)),
        ..Event::now(event_type)
    }
}

fn released(event: Event, by: Actor, time: Duration) -> Event {
    Event {
        actor: Some(by.word().to_owned()),
        seconds: Some(EventSeconds {
            total: EventSeconds::of(time),
            ..EventSeconds::default()
        }),
        ..event
    }
}

fn user(holder: &Holder) -> Option<u32> {
    match holder {
        Holder::Container(container) => container.user,
        Holder::Claim(_) => None,
    }
}

fn seconds(times: &Times) -> EventSeconds {
    EventSeconds {
        total: EventSeconds::of(times.total),
        wait: EventSeconds::of(times.wait),
        driver: EventSeconds::of(times.driver),
        runtime: times.runtime.and_then(EventSeconds::of),
    }
}
