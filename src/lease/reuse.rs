//! A slice that is there already instead of one that is made: an idle one of ours (`idle`), or an
//! administrator's (`adopt`).

use super::acquire::{Applicant, place_of};
use super::{Leases, Patience};
use crate::error::{Error, Result};
use crate::gpu::Driver;
use crate::model::Snapshot;
use crate::placement::{self, Decision, NoRoom, Reserved};
use crate::request;
use crate::store::{Lease, Slice};

/// A slice that nobody has.
pub(super) struct Spare {
    pub slice: Slice,
    /// Its lease, if it is an idle one of ours; else an administrator made it.
    pub idle: Option<Lease>,
}

/// What is done rather than to make a slice where there is room.
pub(super) enum Instead {
    Take(Spare),
    /// These idle slices are in the way of a better one.
    Clear(Vec<Lease>),
    Nothing,
}

type World<'a> = (&'a Snapshot, &'a [Reserved]);

/// Idle slices count as room when it is decided which profile is the best that can be had. Of that
/// one, a slice that is there is taken before one is made, and idle ones go where there is no other
/// room for it.
pub(super) fn instead(
    world: World<'_>,
    mut spares: Vec<Spare>,
    asked: &request::Slice,
    plain: &std::result::Result<Decision<'_>, NoRoom>,
    mut usable: impl FnMut(&Spare) -> Result<bool>,
) -> Result<Instead> {
    if spares.is_empty() {
        return Ok(Instead::Nothing);
    }
    let idle: Vec<Lease> = spares.iter().filter_map(|s| s.idle.clone()).collect();
    let (snapshot, reserved) = without(world, &idle.iter().collect::<Vec<_>>());
    let best = placement::choose(&snapshot, &reserved, asked).ok();
    while let Some(found) = chosen(world.0, &spares, best.as_ref(), asked) {
        let spare = spares.swap_remove(found);
        if usable(&spare)? {
            return Ok(Instead::Take(spare));
        }
    }
    let Some(best) = best else {
        return Ok(Instead::Nothing);
    };
    if plain
        .as_ref()
        .is_ok_and(|d| d.profile.name == best.profile.name)
    {
        return Ok(Instead::Nothing);
    }
    let clear = cheapest(world, &idle, asked, &best.profile.name);
    Ok(clear.map_or(Instead::Nothing, Instead::Clear))
}

/// Of what is there the one that placement chooses, unless it prefers the profile of what could be
/// made: a request may leave a choice of profiles.
fn chosen(
    snapshot: &Snapshot,
    spares: &[Spare],
    best: Option<&Decision<'_>>,
    asked: &request::Slice,
) -> Option<usize> {
    let there: Vec<Reserved> = spares.iter().map(|s| place_of(&s.slice)).collect();
    let only_spares = only(snapshot, &there);
    let decision = placement::choose(&only_spares, &[], asked).ok()?;
    if let Some(best) = best.filter(|b| b.profile.name != decision.profile.name) {
        let both = [place(&decision), place(best)];
        let both = only(snapshot, &both);
        let preferred = placement::choose(&both, &[], asked).ok()?;
        if preferred.profile.name != decision.profile.name {
            return None;
        }
    }
    let place = place(&decision);
    there.iter().position(|t| *t == place)
}

fn place(decision: &Decision<'_>) -> Reserved {
    Reserved {
        gpu: decision.gpu.uuid.clone(),
        profile_id: decision.profile.id,
        placement: decision.placement,
    }
}

/// As if these places were all the room there is.
pub(super) fn only(snapshot: &Snapshot, places: &[Reserved]) -> Snapshot {
    let mut only = snapshot.clone();
    for gpu in &mut only.gpus {
        gpu.instances.clear();
        for profile in &mut gpu.profiles {
            profile.placements.retain(|at| {
                let is_it = |p: &&Reserved| (p.profile_id, p.placement) == (profile.id, *at);
                places
                    .iter()
                    .filter(|p| p.gpu == gpu.uuid)
                    .any(|p| is_it(&p))
            });
        }
    }
    only
}

/// As if these leases and their slices were not.
fn without((snapshot, reserved): World<'_>, gone: &[&Lease]) -> (Snapshot, Vec<Reserved>) {
    let is_gone = |gpu: &str, at| {
        let mut slices = gone.iter().map(|l| &l.slice);
        slices.any(|s| (s.gpu_uuid.as_str(), s.placement) == (gpu, at))
    };
    let mut snapshot = snapshot.clone();
    for gpu in &mut snapshot.gpus {
        let uuid = &gpu.uuid;
        gpu.instances.retain(|i| !is_gone(uuid, i.placement));
    }
    let left = reserved.iter().filter(|r| !is_gone(&r.gpu, r.placement));
    (snapshot, left.cloned().collect())
}

/// Above this many idle slices on one GPU, which no GPU has today, not every set of them is tried.
const MAX_TRIED: usize = 10;

/// The idle slices of one GPU that make room for a profile: as few as will do, of those the
/// smallest, of those that have waited longest.
fn cheapest(
    world: World<'_>,
    idle: &[Lease],
    asked: &request::Slice,
    profile: &str,
) -> Option<Vec<Lease>> {
    let mut best = None;
    for gpu in &world.0.gpus {
        let alone = Snapshot {
            gpus: vec![gpu.clone()],
            ..Snapshot::default()
        };
        let mut here: Vec<&Lease> = idle
            .iter()
            .filter(|l| l.slice.gpu_uuid == gpu.uuid)
            .collect();
        here.sort_by_key(|l| &l.idle_since);
        here.truncate(MAX_TRIED);
        for set in 1u32..1 << here.len() {
            let chosen = here.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
            let chosen: Vec<&Lease> = chosen.map(|(_, l)| *l).collect();
            let size: u32 = chosen.iter().map(|l| l.slice.placement.size).sum();
            let youngest = chosen.iter().map(|l| l.idle_since.clone()).max();
            let cost = (chosen.len(), size, youngest);
            if best.as_ref().is_some_and(|(least, _)| *least <= cost) {
                continue;
            }
            let (snapshot, reserved) = without((&alone, world.1), &chosen);
            let fits = placement::choose(&snapshot, &reserved, asked);
            if fits.is_ok_and(|d| d.profile.name == profile) {
                best = Some((cost, chosen.into_iter().cloned().collect()));
            }
        }
    }
    best.map(|(_, chosen)| chosen)
}

impl Leases<'_> {
    /// Slices that nobody has; or idle ones that are to be destroyed first, since their time is over
    /// or the driver has them no more.
    pub(super) fn spares(
        &self,
        snapshot: &Snapshot,
        leases: &[Lease],
        reserved: &[Reserved],
        unfit: &[Reserved],
    ) -> std::result::Result<Vec<Spare>, Vec<Lease>> {
        let idle = leases.iter().filter(|l| l.idle_since.is_some());
        let (idle, over): (Vec<&Lease>, Vec<&Lease>) = idle.partition(|lease| {
            let is_there = instance_of(snapshot, &lease.slice).is_some();
            lease.boot_id == self.boot_id && is_there && self.idle_is_over(lease).is_err()
        });
        if !over.is_empty() {
            return Err(over.into_iter().cloned().collect());
        }
        let idle = idle.into_iter().map(|lease| Spare {
            slice: lease.slice.clone(),
            idle: Some(lease.clone()),
        });
        let adoptable = self.adoptable(snapshot, reserved);
        Ok(idle
            .chain(adoptable)
            .filter(|s| !unfit.contains(&place_of(&s.slice)))
            .collect())
    }

    /// Puts on record whose it is now; still to be looked over, since we are the only ones now who
    /// can hand it out.
    pub(super) fn take(&self, spare: Spare, who: &Applicant<'_>) -> Result<Option<Lease>> {
        let slice = Slice {
            request: who.asked.slice.to_string(),
            ..spare.slice
        };
        let mut lease = self.draft(who, slice)?;
        lease.adopted = spare.idle.is_none();
        let ledger = self.store.lock(&who.why())?;
        ledger.sweep();
        match spare.idle {
            None => ledger.put(&lease)?,
            Some(idle) => match self.store.get(&idle.id)? {
                Some(now) if now.idle_since.is_some() => ledger.replace(&now, &lease)?,
                // Its time was over meanwhile.
                _ => return Ok(None),
            },
        }
        tracing::info!(
            lease = lease.id,
            container = who.holder.key.id,
            "{} {} at {} on GPU {} is handed out",
            if lease.adopted { "adopted" } else { "idle" },
            lease.slice.profile,
            lease.slice.placement,
            lease.slice.gpu_index
        );
        Ok(Some(lease))
    }

    /// Whether it is still what it was and nobody uses it; else it is given up, and the place told.
    pub(super) fn look_over(
        &self,
        driver: &impl Driver,
        lease: &Lease,
    ) -> Result<std::result::Result<Lease, Reserved>> {
        let wrong = match self.what_is_wrong(driver, lease) {
            Ok(Ok(lease)) => return Ok(Ok(lease)),
            Ok(Err(why)) => why,
            Err(e) => {
                let given_up = self.discard(&lease.id, Patience::NONE);
                return Err(e.and(given_up.err()));
            }
        };
        tracing::warn!(lease = lease.id, "not handed out: {wrong}");
        // What is in use stays on record, and is tried again by whoever comes next.
        if let Err(e) = self.discard(&lease.id, Patience::NONE) {
            tracing::warn!(lease = lease.id, "{}", e.line());
        }
        Ok(Err(place_of(&lease.slice)))
    }

    fn what_is_wrong(
        &self,
        driver: &impl Driver,
        lease: &Lease,
    ) -> Result<std::result::Result<Lease, String>> {
        let slice = &lease.slice;
        let (Some(gi), Some(ci)) = (slice.gpu_instance, slice.compute_instance) else {
            return Err(Error::new("the lease has no instance"));
        };
        let Some(instance) = self.find(driver, lease)? else {
            return Ok(Err("its instance is gone, or another one".to_owned()));
        };
        if instance.compute_instances.iter().map(|c| c.id).ne([ci]) {
            return Ok(Err("it has other compute instances than ours".to_owned()));
        }
        let computing = driver.processes(&slice.gpu_uuid, gi, ci)?;
        if let Some(pid) = computing.first() {
            return Ok(Err(format!("process {pid} computes on it")));
        }
        if let Some(holder) = self.holders(lease).first() {
            return Ok(Err(format!("process {holder} has it open")));
        }
        if slice.mig_uuid.is_some() {
            return Ok(Ok(lease.clone()));
        }
        let uuid = driver.mig_uuid(&slice.gpu_uuid, gi, ci)?;
        let lease = self.record(lease, |l| l.slice.mig_uuid = Some(uuid))?;
        Ok(Ok(lease))
    }
}

/// The id of the instance of a complete slice, if the driver shows that very one.
pub(super) fn instance_of(snapshot: &Snapshot, slice: &Slice) -> Option<u32> {
    let gpu = snapshot.gpus.iter().find(|g| g.uuid == slice.gpu_uuid)?;
    let at = |i: &&crate::model::GpuInstance| {
        (i.profile_id, i.placement) == (slice.profile_id, slice.placement)
    };
    let id = gpu.instances.iter().find(at)?.id;
    (slice.gpu_instance == Some(id)).then_some(id)
}
