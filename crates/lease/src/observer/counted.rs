//! The sink that counts.

use super::create::Create;
use super::news::{News, Sink, Times as Spent};
use crate::counters::{
    Actor, Counter, Counters, DriverFailure, LeaseKind, Outcome, Part, ResourceKind, Times,
};
use crate::gpu::Reason;
use crate::model::BootId;
use crate::store::{Instance, Kind};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The counters of this boot. Without a file to count in, the log has one line.
pub(crate) struct Counted {
    state_dir: PathBuf,
    boot: BootId,
    counters: OnceCell<Option<Counters>>,
}

impl Counted {
    pub(crate) fn new(state_dir: &Path, boot: &BootId) -> Counted {
        Counted {
            state_dir: state_dir.to_owned(),
            boot: boot.clone(),
            counters: OnceCell::new(),
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

impl Sink for Counted {
    fn hear(&self, news: &News<'_>) {
        let count = |counter| {
            if let Some(counters) = self.counters() {
                counters.count(counter);
            }
        };
        let observe = |times, time: Duration| {
            if let Some(counters) = self.counters() {
                counters.observe(times, time);
            }
        };
        match news {
            News::Created {
                create,
                outcome,
                times,
                ..
            } => {
                count(of_create(create, *outcome));
                for (part, time) in parts(times) {
                    observe(Times::Create(create.kind, part), time);
                }
            }
            News::Failed {
                create, outcome, ..
            } => count(of_create(create, *outcome)),
            News::Released {
                lease,
                instance,
                by,
                time,
            } => {
                let kind = portion_kind(instance, lease.share().is_some());
                count(Counter::Releases(kind, *by));
                observe(Times::Release(kind), *time);
            }
            News::Evicted { instance, time } => {
                let kind = portion_kind(instance, false);
                count(Counter::Releases(kind, Actor::Eviction));
                observe(Times::Release(kind), *time);
            }
            News::Retried(instance) => count(Counter::DestroyRetries(resource_kind(instance))),
            News::Quarantined { instance, .. } => {
                count(Counter::Quarantines(resource_kind(instance)));
            }
            News::DriverFailed(failure) => {
                count(Counter::DriverErrors(match &failure.reason {
                    Reason::Code(code) => DriverFailure::Code(*code),
                    Reason::Library(_) => DriverFailure::Library,
                    Reason::Answer(_) => DriverFailure::Answer,
                }));
            }
            News::Collected => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                if let (Ok(now), Some(counters)) = (now, self.counters()) {
                    counters.set_moment(Counter::LastCollection, now.as_secs());
                }
            }
            News::WaitBegun(_)
            | News::WaitEnded(..)
            | News::LayoutApplied(_)
            | News::Promised(_)
            | News::Taken(..)
            | News::Made(_)
            | News::Lapsed(_)
            | News::Recovered(_)
            | News::Damaged(_) => {}
        }
    }
}

fn parts(times: &Spent) -> impl Iterator<Item = (Part, Duration)> {
    let runtime = times.runtime.map(|time| (Part::Runtime, time));
    [
        (Part::Total, times.total),
        (Part::Wait, times.wait),
        (Part::Driver, times.driver),
    ]
    .into_iter()
    .chain(runtime)
}

fn of_create(create: &Create, outcome: Outcome) -> Counter {
    Counter::Creates(create.kind, create.holder_kind(), outcome)
}

fn portion_kind(instance: &Instance, has_share: bool) -> LeaseKind {
    match (Kind::of(&instance.resource), instance.resource.mig_slice()) {
        (Kind::Mps, Some(_)) => LeaseKind::Seat,
        (Kind::Mig, _) if has_share => LeaseKind::Seat,
        (Kind::Mig, _) => LeaseKind::Slice,
        (Kind::Mps, None) => LeaseKind::Share,
        (Kind::Gpu, _) if has_share => LeaseKind::Share,
        (Kind::Gpu, _) => LeaseKind::Gpu,
    }
}

fn resource_kind(instance: &Instance) -> ResourceKind {
    match Kind::of(&instance.resource) {
        Kind::Mig => ResourceKind::Mig,
        Kind::Gpu => ResourceKind::Gpu,
        Kind::Mps => ResourceKind::Mps,
    }
}
