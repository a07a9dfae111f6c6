//! Records the facts about a container that become known during its create, and releases its leases at its end.

use super::finding::Patience;
use super::liveness::{self, Liveness};
use super::release::{Returned, end_earlier_boot};
use crate::error::{self, Error, Result};
use crate::leases::Leases;
use crate::model::Process;
use crate::process;
use crate::store::{Held, Key, Lease, LeaseState};
use std::sync::Arc;
use std::time::Instant;

impl Leases<'_> {
    /// Records the low-level runtime before it does anything, because it goes on after a kill of runmig.
    pub fn started(&self, lease: &Lease, runtime: Process) -> Result<Option<Arc<Lease>>> {
        let ledger = self.store.lock("create")?;
        ledger.update_lease(lease, |l| l.runtime_process = Some(runtime))
    }

    /// Returns whether the wait for a container is over: the container runs, or its lease is gone. It serves
    /// low-level runtimes that stay as long as their container.
    pub fn ready_if_started(&self, lease: &Lease) -> Result<bool> {
        let Some(lease) = self.store.lease_now(lease)? else {
            return Ok(true);
        };
        let init = liveness::own_init(&lease);
        if init.is_some_and(|init| process::is_alive(&init)) {
            self.ready(&lease)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Records that the container exists. A lease that is gone stays gone: the container ended at once and its
    /// hook ran.
    pub fn ready(&self, lease: &Lease) -> Result<Option<Arc<Lease>>> {
        let ledger = self.store.lock("create")?;
        let Some(lease) = self.store.lease_now(lease)? else {
            return Ok(None);
        };
        if lease.state != LeaseState::Pending {
            return Ok(Some(lease));
        }
        let init = liveness::own_init(&lease);
        // Only the front can tell which of the container's cgroups are not the engine's too.
        let is_front = lease.creator == process::current();
        let exact = init.filter(|_| is_front).map(|init| own_cgroups(init.pid));
        ledger.update_lease(&lease, |l| {
            l.state = LeaseState::Ready;
            l.init = init;
            if let Some(exact) = exact.filter(|c| !c.is_empty()) {
                l.cgroups = exact;
            }
        })
    }

    /// Releases the container's leases after a delete, if the container is gone. `deleted` says that the
    /// low-level runtime has deleted it.
    pub fn release_if_dead(&self, key: &Key, deleted: bool) -> Result<()> {
        end_earlier_boot(self, false)?;
        let leases = self.of(key)?;
        // One container has one end, however many leases it has.
        let end = Instant::now() + liveness::AFTER_DELETE;
        let patience = |lease: &Lease| {
            let passes = deleted
                && liveness::unseen(lease).is_none()
                && self.is_made_by_others(lease).is_none();
            match passes {
                true => end.saturating_duration_since(Instant::now()),
                false => liveness::A_MOMENT,
            }
        };
        let against = |now: &Lease| match now.state {
            LeaseState::Releasing => None,
            LeaseState::Pending | LeaseState::Ready => self.sign_of_life(now),
        };
        let released = leases.iter().map(|held| {
            let lease = &held.lease;
            let returned = match liveness::lasting(patience(lease), || against(lease)) {
                Some(life) => Returned::No(life),
                None => self.release_unless(held, Patience::with(held.attempt()), against)?,
            };
            match returned {
                // A later create of the same id does not concern this delete.
                Returned::No(life) if deleted && self.is_made_by_others(lease).is_none() => {
                    Err(stays(held, &life))
                }
                _ => Ok(()),
            }
        });
        error::all(released)
    }

    /// Releases the container's leases for its creator, whose low-level runtime failed, was killed or is done.
    /// It releases nothing if the container lives on without them.
    pub fn release_if_over(&self, held: &Held, patience: Patience) -> Result<Returned> {
        let lives = |lease: &Lease| Liveness::here().outlives_its_front(lease);
        let mut held = held.clone();
        // Its low-level runtime came on record after the front took the lease.
        if let Some(lease) = self.store.lease_now(&held.lease)? {
            liveness::lasting(liveness::A_MOMENT, || lives(&lease));
            held.lease = lease;
        }
        self.release_unless(&held, patience, lives)
    }
}

/// Records for a collection that a container runs. The front that had to record it was killed.
pub(super) fn ready_without_its_front(context: &Leases<'_>, lease: &Lease) -> Result<()> {
    let is_left = lease.state == LeaseState::Pending
        && lease.runtime_process.is_some()
        && Liveness::here().operation_is_over(lease, &context.store.operations());
    if is_left {
        context.ready_if_started(lease)?;
    }
    Ok(())
}

/// Returns the cgroups of a container's init that this process does not share. From then on the record has
/// exact paths instead of names.
pub(crate) fn own_cgroups(init: i32) -> Vec<String> {
    let ours = process::cgroups(std::process::id() as i32);
    process::cgroups(init)
        .into_iter()
        .filter(|c| c != "/" && !ours.contains(c))
        .collect()
}

/// Returns the error of a delete that leaves the slice with its container.
fn stays(held: &Held, life: &str) -> Error {
    let id = crate::error::printable(held.lease.holder.name());
    let resource = &held.instance.resource;
    Error::new(format!(
        "cannot release {resource} with container {id}: {life}"
    ))
    .hint("run migctl gc as root on the host once that is over")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{GONE, Living, config, of_killed, open, put, record_init};

    #[test]
    fn runtime_is_on_record_before_it_does_anything() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let held = put(&leases, "web", |_| ());
        let started = leases
            .started(&held.lease, process::current())
            .unwrap()
            .unwrap();
        assert_eq!(started.runtime_process, Some(process::current()));
        assert_eq!(leases.store.lease_now(&held.lease).unwrap(), Some(started));
        let gone = of_killed(&leases, "gone");
        assert_eq!(leases.started(&gone.lease, GONE).unwrap(), None);
    }

    #[test]
    fn wait_for_a_container_ends_with_its_start_or_its_lease() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let held = put(&leases, "web", |_| ());
        let state = || leases.store.lease_now(&held.lease).unwrap().unwrap().state;
        assert!(!leases.ready_if_started(&held.lease).unwrap());
        record_init(&held, GONE);
        assert!(!leases.ready_if_started(&held.lease).unwrap());
        assert_eq!(state(), LeaseState::Pending);
        record_init(&held, process::current());
        assert!(leases.ready_if_started(&held.lease).unwrap());
        assert_eq!(state(), LeaseState::Ready);
        let gone = of_killed(&leases, "gone");
        assert!(leases.ready_if_started(&gone.lease).unwrap());
    }

    /// Before its low-level runtime is on record, a first process of that id is another container's.
    #[test]
    fn collection_marks_ready_what_a_killed_front_has_started() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let this = process::current();
        for (runtime, creator, state) in [
            (Some(GONE), GONE, LeaseState::Ready),
            (None, GONE, LeaseState::Pending),
            (Some(GONE), this, LeaseState::Pending),
        ] {
            let held = put(&leases, "web", |lease| {
                (lease.creator, lease.runtime_process) = (creator, runtime);
                // No init is older than its low-level runtime.
                if let Some(runtime) = &mut lease.runtime_process {
                    runtime.start_time = 0;
                }
            });
            record_init(&held, this);
            ready_without_its_front(&leases, &held.lease).unwrap();
            let now = leases.store.lease_now(&held.lease).unwrap().unwrap();
            assert_eq!(now.state, state, "{runtime:?} {creator:?}");
            release(&leases, &held);
        }
    }

    fn release(leases: &Leases<'_>, held: &Held) {
        let released = leases.release_unless(held, Patience::NONE, |_| None);
        assert_eq!(released.unwrap(), Returned::Yes);
    }

    #[test]
    fn delete_releases_what_is_dead_and_tells_what_stays() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let (_living, others) = Living::new();
        let this = process::current();
        let delete = |deleted: bool, change: &dyn Fn(&mut Lease)| {
            let held = put(&leases, "web", change);
            let key = &held.lease.container().unwrap().key;
            let end = leases.release_if_dead(key, deleted).map_err(|e| e.line());
            let stays = leases.store.has(key);
            release(&leases, &held);
            (stays, end)
        };
        assert_eq!(delete(false, &|_| ()), (false, Ok(())));
        let lives = |lease: &mut Lease| lease.init = Some(this);
        assert_eq!(delete(false, &lives), (true, Ok(())));
        // A later create of the id.
        let is_made = |lease: &mut Lease| lease.creator = others;
        assert_eq!(delete(true, &is_made), (true, Ok(())));
        let unseen = |lease: &mut Lease| {
            lease.creator = this;
            lease.namespaces.as_mut().unwrap().time = Some("another".to_owned());
        };
        let (stays, end) = delete(true, &unseen);
        let line = end.unwrap_err();
        assert!(
            stays && line.starts_with("cannot release GPU 0 with container web: "),
            "{line}"
        );
        assert!(line.contains("run migctl gc as root on the host"), "{line}");
    }

    #[test]
    fn delete_waits_for_a_container_that_is_ending() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let mut ending = std::process::Command::new("sleep")
            .arg("0.1")
            .spawn()
            .unwrap();
        let init = process::of(ending.id() as i32).unwrap();
        let held = put(&leases, "web", |lease| lease.init = Some(init));
        let key = &held.lease.container().unwrap().key;
        leases.release_if_dead(key, true).unwrap();
        assert!(!leases.store.has(key));
        ending.wait().unwrap();
    }
}
