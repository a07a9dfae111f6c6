//! From a request to a slice that exists.

use super::ahead::awaited;
use super::choose::{Found, No, Part};
use super::make::Failed;
use super::queue::Place;
use super::rules::{Ruled, whose};
use super::{Leases, Patience, Returned, alive, now, occupied};
use crate::error::{self, Context, Error, Result};
use crate::files;
use crate::gpu::Mig;
use crate::placement::{Constraints, Rejection, Slot};
use crate::process;
use crate::request::{self, Request};
use crate::spec::Cgroup;
use crate::store::{Holder, Lease, Slice, State};
use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

/// How often the driver may refuse a place that we held for free before we believe it.
const MAX_REFUSALS: usize = 8;

impl Leases<'_> {
    /// Leases on slices that exist, still *creating*: their container is not made yet.
    pub fn acquire(&self, holder: Holder, asked: &Request, cgroup: Cgroup) -> Result<Vec<Lease>> {
        // No record of a world that nobody can see again: its slice would never come back.
        alive::namespaces()?;
        self.clear_the_way(&holder)?;
        if let Some(path) = &cgroup.path {
            occupied::by_process(&holder, path)?;
        }
        let mut place = Place::new(self.config, asked, &holder.bundle);
        let who = Applicant {
            holder: &holder,
            asked,
            cgroup: &cgroup,
        };
        let mut tried = Tried::default();
        let mut collected = false;
        loop {
            place.look(self);
            let mut parts = Vec::new();
            let reserved = self.reserve(&who, &tried, &mut place, &mut parts);
            let given_back = self.put_back(&[], &parts);
            let (driver, found) = told(reserved, given_back)?;
            let no = match found {
                Found::Shared(lease) => return Ok(vec![lease]),
                Found::InTheMaking(peer) => {
                    self.wait_for(&peer, &holder, &mut tried.awaited)?;
                    continue;
                }
                Found::InTheWay(idle) => {
                    for lease in idle {
                        self.discard_idle(&lease);
                        tried.idle.push(lease.id);
                    }
                    continue;
                }
                Found::Slices(parts) => match self.realise(&driver, parts, &mut tried)? {
                    Some(leases) => return Ok(leases),
                    None => continue,
                },
                Found::Nothing(no) => no,
            };
            // Those who are gone count for a limit as well, as long as nobody collects.
            if no.may_pass() && !collected {
                collected = true;
                if self.collect(false)?.gave_room() {
                    continue;
                }
            }
            let no = match no {
                No::Limit(over) => return Err(over),
                No::Room(never @ Rejection::Unsatisfiable { .. }) => return Err(never.into()),
                No::Room(now) => now,
            };
            if !place.wait(self, tried.woke_others())? {
                let no = self.explained(&driver, &who, &place, no);
                return Err(place.give_up(self, no).and(self.unseen()));
            }
            collected = false;
            tried = Tried::default();
        }
    }

    /// All of them or none; none where another choice may do.
    fn realise(
        &self,
        driver: &impl Mig,
        parts: Vec<Part>,
        tried: &mut Tried,
    ) -> Result<Option<Vec<Lease>>> {
        let (mut there, mut parts) = (Vec::new(), parts.into_iter());
        let failed = loop {
            let Some(part) = parts.next() else {
                return Ok(Some(there));
            };
            match self.realise_one(driver, part, tried) {
                Ok(Some(lease)) => there.push(lease),
                Ok(None) => break Ok(None),
                Err(e) => break Err(e),
            }
        };
        let rest: Vec<Part> = parts.collect();
        let given_back = self.put_back(&there, &rest);
        told(failed, given_back)
    }

    fn realise_one(
        &self,
        driver: &impl Mig,
        part: Part,
        tried: &mut Tried,
    ) -> Result<Option<Lease>> {
        match part {
            Part::Spare(lease, patience) => match self.look_over(driver, &lease, patience) {
                Ok(lease) => Ok(Some(lease)),
                Err(place) => {
                    tried.unfit.push(place);
                    Ok(None)
                }
            },
            Part::Room(lease) => match self.make(driver, lease) {
                Ok(lease) => Ok(Some(lease)),
                Err(Failed {
                    place: Some(place), ..
                }) if tried.refused.len() < MAX_REFUSALS => {
                    tried.refused.push(place);
                    Ok(None)
                }
                Err(Failed { error, .. }) => Err(error),
            },
        }
    }

    /// What was to be one container's together with what could not be had. Where nothing was made as yet,
    /// nothing is destroyed: what lies there now is somebody else's.
    fn put_back(&self, made: &[Lease], untried: &[Part]) -> Result<()> {
        let release = |lease: &Lease| self.release(&lease.id, Patience::default());
        let untried = untried.iter().map(|part| match part {
            Part::Room(lease) => self.store.lock("refused create")?.remove(lease),
            Part::Spare(lease, _) => release(lease),
        });
        error::all(made.iter().map(release).chain(untried))
    }

    /// An earlier lease of the same container: rolled back, unless the container lives.
    fn clear_the_way(&self, holder: &Holder) -> Result<()> {
        for lease in self.of(&holder.key)? {
            let against = |now: &Lease| {
                let is_over = now.boot_id != self.boot_id || now.state == State::Releasing;
                (!is_over).then(|| alive::sign_of_life(now)).flatten()
            };
            match self.release_unless(&lease.id, Patience::with(&lease), against) {
                Ok(Returned::Yes) => {}
                Ok(Returned::No(life)) => {
                    let slice = &lease.slice;
                    let and = format!(
                        " and holds slice {} of GPU {}",
                        slice.profile, slice.gpu_index
                    );
                    return Err(exists_already(holder, &and, &life));
                }
                // Its slice stays on record and is tried again; the new container takes another.
                Err(e) => tracing::warn!(lease = lease.id, "{}", e.line()),
            }
        }
        // One without a slice, too: it would count as the life of what is made now.
        match alive::recorded_init(&holder.key) {
            Ok(Some(init)) if process::is_alive(&init) => {
                let life = format!("its init, process {}, runs", init.pid);
                Err(exists_already(holder, "", &life))
            }
            _ => Ok(()),
        }
    }

    /// Chooses a place and puts it on record, one create at a time. So is the look at the
    /// driver: two hundred at once that look first and queue afterwards take six times as long.
    fn reserve(
        &self,
        who: &Applicant<'_>,
        tried: &Tried,
        place: &mut Place,
        parts: &mut Vec<Part>,
    ) -> Result<(impl Mig + use<>, Found)> {
        // Opened first: the driver takes its time to start, and others can choose meanwhile.
        let driver = self.driver()?;
        let plan = self.store.lock_plan(&who.why())?;
        let ahead = place.ahead(self)?;
        let view = self.view(&driver, ahead.is_empty())?;
        if let Some(path) = &who.cgroup.path {
            occupied::by_lease(who.holder, path, &view.leases)?;
        }
        let snapshot = &view.snapshot;
        let ahead = awaited(&ahead, snapshot);
        let whose = whose(who.holder);
        let ruled = Ruled::new(&self.config.policy, snapshot, who.asked, &whose)?;
        let wanted = Constraints {
            blockers: &ahead,
            ours: &view.ours,
            ..ruled.wanted()
        };
        let found = self.find_room(&driver, &view, (&ruled, &wanted), (who, tried), parts)?;
        match found {
            // Several may come to nothing and be given back: until all are there, they are awaited.
            Found::Slices(ref parts) if parts.len() > 1 => {}
            Found::Shared(_) | Found::Slices(_) => place.step_aside(),
            Found::Nothing(No::Room(Rejection::NoCapacity { .. })) => {
                place.join(self, &plan, who, (view.snapshot, ruled, view.ours))?;
            }
            Found::Nothing(_) | Found::InTheMaking(_) | Found::InTheWay(_) => {}
        }
        Ok((driver, found))
    }

    /// A draft becomes a lease; `what` is told of its slice.
    pub(super) fn put_on_record(&self, lease: &Lease, what: &str) -> Result<()> {
        let container = &lease.holder.key.id;
        let ledger = self.store.lock(&format!("create of {container}"))?;
        ledger.sweep();
        ledger.put(lease)?;
        tracing::info!(
            lease = lease.id,
            container,
            "{} at {} on GPU {} {what}",
            lease.slice.profile,
            lease.slice.placement,
            lease.slice.gpu_index
        );
        Ok(())
    }

    /// A lease on a slice, not on record yet.
    pub(super) fn draft(&self, who: &Applicant<'_>, slice: Slice) -> Result<Lease> {
        Ok(Lease {
            id: random_id()?,
            state: State::Creating,
            boot_id: self.boot_id.clone(),
            created: now(),
            holder: who.holder.clone(),
            slice: Slice {
                request: request::written(&who.asked.alternatives),
                ..slice
            },
            creator: process::current(),
            runtime_process: None,
            init: None,
            namespaces: Some(alive::namespaces()?),
            cgroups: { who.cgroup.names.iter().chain(&who.cgroup.path) }
                .cloned()
                .collect(),
            attempt: None,
            idle_since: None,
            adopted: false,
            shared_in: who.asked.shared_in.clone(),
            unknown: serde_json::Map::new(),
        })
    }
}

fn exists_already(holder: &Holder, and: &str, life: &str) -> Error {
    let id = &holder.key.id;
    Error::new(format!("container {id} exists already{and} ({life})"))
        .hint("delete it first, or use another id")
}

/// Who could not give back what it had goes no further: it would be its container's.
fn told<T>(result: Result<T>, given_back: Result<()>) -> Result<T> {
    match (result, given_back) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(e)) => Err(e),
        (Err(e), given_back) => Err(e.and(given_back.err())),
    }
}

/// Who asks for what.
pub(super) struct Applicant<'a> {
    pub holder: &'a Holder,
    pub asked: &'a Request,
    pub cgroup: &'a Cgroup,
}

impl Applicant<'_> {
    /// Why we lock, for who waits for us.
    pub fn why(&self) -> String {
        format!("create of {}", self.holder.key.id)
    }
}

/// What a create has tried in vain since it last waited.
#[derive(Default)]
pub(super) struct Tried {
    /// Places where the driver would make nothing.
    pub refused: Vec<Slot>,
    /// Instances that were there and could not be handed out.
    pub unfit: Vec<Slot>,
    /// Instances that an administrator made and that are in use, or not whole: what the driver said once
    /// holds for every alternative.
    pub unusable: RefCell<Vec<Slot>>,
    /// Idle slices that were to be destroyed, by lease.
    pub idle: Vec<String>,
    /// Another container of the pod that makes the slice, and since when it is waited for.
    awaited: Option<(String, Instant)>,
}

impl Tried {
    /// Each of these was a lease that went.
    fn woke_others(&self) -> bool {
        !self.refused.is_empty() || !self.unfit.is_empty()
    }
}

pub(super) fn random_id() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/uuid";
    let uuid = files::read_text(Path::new(FILE), 64).context(|| format!("read {FILE}"))?;
    Ok(uuid.trim().replace('-', ""))
}
