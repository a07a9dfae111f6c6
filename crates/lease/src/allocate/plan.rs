//! Plans the slices of a create: for each one that exists already, or a place for a new one. All of them
//! or none. Pure: the same inventory, request and limits give the same plan.

#[cfg(test)]
mod tests;

use super::admit::Limits;
use super::found::{Denial, Step};
use super::pod;
use super::requester::Tried;
use crate::draft::slot_of;
use crate::inventory::{Inventory, memory_of};
use crate::model::{Gpu, GpuInstance, GpuUuid, Snapshot};
use crate::placement::{self, Constraints, Decision, Obstacle, Rejection, Selection, Slot};
use crate::policy::Kind;
use crate::request::{self, Alternative};
use crate::store::{Instance, Slice};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// One step for each slice that is requested.
    pub steps: Vec<Step>,
    /// Idle slices that lie where new ones go: they have to be destroyed first.
    pub evict: Vec<Instance>,
}

/// Everything that a plan depends on.
pub(crate) struct Planner<'a> {
    pub inventory: &'a Inventory,
    /// The request's constraints: what it wants, and what blockers reserve.
    pub wanted: &'a Constraints<'a>,
    pub limits: &'a Limits<'a>,
    pub tried: &'a Tried,
    /// Whether instances of an administrator may be handed out.
    pub adopts: bool,
}

impl Planner<'_> {
    /// Plans the first alternative that can be had.
    pub(super) fn plan(&self, alternatives: &[Alternative]) -> Result<Plan, Denial<Rejection>> {
        let (mut noes, mut over) = (Vec::new(), None);
        for asked in alternatives {
            match self.plan_one(asked) {
                Ok(plan) => return Ok(plan),
                Err(Denial::Room(no)) => noes.push(no),
                // The user would settle for the last.
                Err(Denial::Limit(e)) => over = Some(e),
            }
        }
        let no = Rejection::of_all(noes);
        Err(Denial::new(no.may_pass(), over, no))
    }

    /// Plans one alternative.
    pub(crate) fn plan_one(&self, asked: &Alternative) -> Result<Plan, Denial<Rejection>> {
        let (snapshot, count) = (&self.inventory.snapshot, asked.count());
        let least = self.limits.least_of(snapshot, asked, self.wanted);
        self.limits.allow(Kind::Slice, count, least)?;
        if let Some(never) = placement::never_several(snapshot, asked, self.wanted) {
            return Err(Denial::Room(never));
        }
        let idle: Vec<(&Instance, &Slice)> = { self.inventory.usable_idle() }
            .filter(|i| !self.tried.idle.contains(&i.id))
            .filter_map(|i| Some((i, i.slice()?)))
            .collect();
        let kept: Vec<Slot> = idle.iter().map(|(_, slice)| slot_of(slice)).collect();
        let mut reserved = self.inventory.taken();
        reserved.retain(|r| !kept.contains(r));
        reserved.extend_from_slice(&self.tried.refused);
        let mut taken = Selection::new(&reserved, &kept);
        // Idle places count, and refused ones do not: another process may have created an instance there.
        let mut ours = self.inventory.unadoptable();
        let (mut plan, mut memory) = (Plan::default(), 0);
        for (found, slice) in asked.all().enumerate() {
            let wanted = self.wanted.of(slice);
            let wanted = taken.constraints(&wanted);
            let decision = self.decide(slice, &taken, &wanted, count, memory);
            let best = decision.as_ref().ok();
            let mut evicts = Vec::new();
            let step = match self.adoptable(&ours, &wanted, best, count, memory) {
                Some(slice) => {
                    let record = self.inventory.of_layout(&slot_of(&slice));
                    Step::Adopt(slice, record.cloned().map(Box::new))
                }
                None => {
                    let rejection = |obstacle| Rejection::of(asked, found, obstacle);
                    let decision = decision.map_err(|denial| denial.of(rejection))?;
                    let place = decision.slot();
                    match idle.iter().find(|(_, slice)| slot_of(slice) == place) {
                        Some((idle, slice)) if taken.idle.contains(&place) => {
                            Step::Reuse(Box::new((*idle).clone()), (*slice).clone())
                        }
                        _ => {
                            plan.evict.extend(evicted(&idle, &decision));
                            evicts.clone_from(&decision.evicts);
                            let (gpu, profile) = (decision.gpu, decision.profile);
                            Step::Create(Slice::planned(gpu, profile, decision.placement))
                        }
                    }
                }
            };
            let slice = step.slice();
            memory += memory_of(slice, snapshot);
            ours.push(slot_of(slice));
            taken.add(slot_of(slice), &evicts);
            plan.steps.push(step);
        }
        Ok(plan)
    }

    /// Returns where the next slice is created, or lies idle, beside those that were planned before.
    fn decide(
        &self,
        slice: &request::Slice,
        taken: &Selection,
        wanted: &Constraints<'_>,
        count: u32,
        memory: u64,
    ) -> Result<Decision<'_>, Denial<Obstacle>> {
        let mut excluded = wanted.excluded.to_vec();
        let mut over = None;
        loop {
            let left = Constraints {
                excluded: &excluded,
                ..*wanted
            };
            let snapshot = &self.inventory.snapshot;
            let decision = match placement::choose_one(snapshot, &taken.reserved, slice, &left) {
                Ok(decision) => decision,
                // The GPUs that a limit leaves may have room one day.
                Err(no) => return Err(Denial::new(no.may_pass(), over, no)),
            };
            // A slice that is too large on one model of GPU may be allowed on another.
            let all = memory + decision.profile.memory_mib;
            let Err(too_much) = self.limits.allow(Kind::Slice, count, all) else {
                return Ok(decision);
            };
            excluded.push((decision.gpu.uuid.clone(), too_much.to_string()));
            over.get_or_insert(too_much);
        }
    }

    /// Returns the instance of an administrator that placement chooses, unless it prefers the profile of the best slice that
    /// could be created: a request may leave a choice of profiles. `claimed`: places that a lease claims, or the plan. An
    /// instance that lies there by the time of the look is claimed too.
    fn adoptable(
        &self,
        claimed: &[Slot],
        wanted: &Constraints<'_>,
        best: Option<&Decision<'_>>,
        count: u32,
        memory: u64,
    ) -> Option<Slice> {
        if !self.adopts {
            return None;
        }
        let (snapshot, tried) = (&self.inventory.snapshot, self.tried);
        let is_beside = |gpu: &GpuUuid| wanted.own_gpus.contains(gpu);
        let may = |slice: &Slice| {
            let place = slot_of(slice);
            let mut here = claimed.iter().filter(|r| r.gpu == place.gpu);
            let mut ahead = wanted.blockers.iter();
            let memory = memory + memory_of(slice, snapshot);
            let is_nearer = is_beside(&place.gpu) && best.is_some_and(|b| !is_beside(&b.gpu.uuid));
            !is_nearer
                && !here.any(|r| r.placement.overlaps(place.placement))
                && !ahead.any(|a| (&a.gpu, a.profile_id) == (&place.gpu, place.profile_id))
                && !tried.unfit.contains(&place)
                && !tried.unusable.contains(&place)
                && self.limits.allow(Kind::Slice, count, memory).is_ok()
        };
        let wanted = pod::unreserved(wanted);
        let there: Vec<Slice> = slices(snapshot).filter(may).collect();
        let places: Vec<Slot> = there.iter().map(slot_of).collect();
        let only_there = pod::only(snapshot, &places);
        let decision = placement::choose(&only_there, &[], &wanted).ok()?;
        let (chosen, name) = (decision.slot(), &decision.profile.name);
        if let Some(best) = best.filter(|best| best.profile.name != *name) {
            let both = pod::only(snapshot, &[chosen.clone(), best.slot()]);
            let preferred = placement::choose(&both, &[], &wanted).ok()?;
            if preferred.profile.name != *name {
                return None;
            }
        }
        there.into_iter().find(|s| slot_of(s) == chosen)
    }
}

/// Returns every GPU instance whose profile its GPU offers, with what the snapshot tells of it.
fn slices(snapshot: &Snapshot) -> impl Iterator<Item = Slice> {
    let slice = |gpu: &Gpu, instance: &GpuInstance| {
        let profile = gpu.profile(instance.profile_id)?;
        Some(Slice {
            gpu_instance: Some(instance.id),
            ..Slice::planned(gpu, profile, instance.placement)
        })
    };
    let all = snapshot.gpus.iter();
    all.flat_map(move |gpu| gpu.instances.iter().filter_map(move |i| slice(gpu, i)))
}

fn evicted(idle: &[(&Instance, &Slice)], decision: &Decision<'_>) -> Vec<Instance> {
    let (gpu, evicts) = (&decision.gpu.uuid, &decision.evicts);
    let is_here = |s: &Slice| s.gpu_uuid == *gpu && evicts.contains(&s.placement);
    let here = idle.iter().filter(|(_, slice)| is_here(slice));
    here.map(|(instance, _)| (*instance).clone()).collect()
}
