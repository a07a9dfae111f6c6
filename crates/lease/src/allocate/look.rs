//! The look of a create, and of `migctl explain`: what a request of any kind gets on a machine at one moment, or why it
//! gets nothing. It writes nothing.

use super::admit::Machine;
use super::found::{Denial, Found, Piece, Step};
use super::levels::Levels;
use super::outside_mig;
use super::plan::{Plan, Planner};
use super::requester::Tried;
use super::seats::Seats;
use crate::draft::slot_of;
use crate::error::Result;
use crate::gpu::Queries;
use crate::model::{Gpu, GpuUuid, MigMode};
use crate::placement::{Admitted, Candidate, Constraints, NoRoom, Rejection, Reservation, Slot};
use crate::policy::Kind;
use crate::queue::Wants;
use crate::reclaim;
use crate::request::{Alternative, Seat, ShareSize, Wanted};
use crate::store::Slice;
use std::collections::{BTreeMap, BTreeSet};

/// A request, as the policy admits it on a machine.
pub(super) enum Ask<'a> {
    Slices(Admitted),
    Gpus(u32),
    Share(&'a [ShareSize], &'a Levels),
    Seat(&'a Seat, Admitted, &'a Levels),
}

impl<'a> Ask<'a> {
    /// # Errors
    /// The policy forbids the request, or no permitted level is possible.
    pub(super) fn new(
        machine: &Machine<'_, impl Queries>,
        wanted: &'a Wanted,
        levels: impl FnOnce() -> &'a Levels,
    ) -> Result<Ask<'a>> {
        let policy = &machine.config.policy;
        Ok(match wanted {
            Wanted::Slices(slices) => Ask::Slices(machine.admit(slices)?),
            Wanted::Gpus(count) => {
                policy.check_gpus(*count)?;
                Ask::Gpus(*count)
            }
            Wanted::Share(sizes) => {
                policy.check_kind(Kind::Share)?;
                let levels = levels();
                let is_in_mig = |gpu: &Gpu| gpu.mig == MigMode::Enabled && !gpu.ends_mig();
                // Whatever level is possible, a GPU in MIG mode has no shares.
                if !machine.inventory.snapshot.gpus.iter().all(is_in_mig) {
                    levels.check()?;
                }
                Ask::Share(sizes, levels)
            }
            Wanted::Seat(seat) => {
                policy.check_kind(Kind::Share)?;
                let levels = levels();
                levels.check()?;
                Ask::Seat(seat, machine.admit(&seat.slices)?, levels)
            }
        })
    }

    /// Returns what is asked of a slice for this container alone.
    pub(super) fn slices(&self) -> Option<&Admitted> {
        match self {
            Ask::Slices(asked) => Some(asked),
            Ask::Gpus(_) | Ask::Share(..) | Ask::Seat(..) => None,
        }
    }

    /// Returns what a waiter looks for after this answer.
    pub(super) fn wants(self, no: &NoRoom) -> Wants {
        let gpus = |count: u32| {
            let (of, unreadable) = (no.awaited.clone(), no.unreadable.len() as u32);
            let count = count.saturating_sub(unreadable);
            Wants::Gpus { count, of }
        };
        match self {
            Ask::Gpus(count) => gpus(count),
            Ask::Share(..) => gpus(1),
            Ask::Slices(asked) | Ask::Seat(_, asked, _) => Wants::Slices(asked),
        }
    }
}

/// A look at a machine for a request.
pub(super) enum Look<'l, 'm, D> {
    Slices(&'l Machine<'m, D>, &'l Admitted),
    Gpus(&'l Machine<'m, D>, u32, Vec<Candidate<'m>>),
    Share(
        &'l Machine<'m, D>,
        &'l [ShareSize],
        &'l Levels,
        Vec<Candidate<'m>>,
    ),
    Seat(Seats<'l, 'm, D>),
}

impl<'l, 'm, D: Queries> Look<'l, 'm, D> {
    /// Asks the driver about every GPU that the request could have, each once.
    pub(super) fn new(machine: &'l Machine<'m, D>, ask: &'l Ask<'l>) -> Self {
        match ask {
            Ask::Slices(asked) => Look::Slices(machine, asked),
            Ask::Gpus(count) => Look::Gpus(machine, *count, outside_mig::candidates(machine, None)),
            Ask::Share(sizes, levels) => {
                let on = outside_mig::candidates(machine, Some(levels));
                Look::Share(machine, sizes, levels, on)
            }
            Ask::Seat(seat, asked, levels) => Look::Seat(Seats::new(machine, seat, asked, levels)),
        }
    }

    /// Returns what the request gets.
    pub(super) fn found(&self, tried: &mut Tried) -> Result<Found<'m>, Denial> {
        match self {
            Look::Slices(machine, asked) => {
                let plan = usable_plan(machine, &asked.alternatives, &asked.wanted(), tried);
                let named = |mut no: Rejection| {
                    no.name(|slot| machine.inventory.named_at(slot));
                    NoRoom::of_slices(asked.asked(), no)
                };
                let plan = plan.map_err(|no| no.of(named))?;
                let pieces = plan.steps.into_iter().map(Piece::Slice).collect();
                Ok(Found::Pieces(pieces, plan.evict))
            }
            Look::Gpus(machine, count, on) => outside_mig::plan(machine, on, *count),
            Look::Share(machine, sizes, levels, on) => {
                outside_mig::plan_share(machine, on, sizes, levels)
            }
            Look::Seat(seats) => seats.plan(tried),
        }
    }

    /// Returns the profiles that the request could use, by GPU. Without a profile it is the GPU itself.
    pub(super) fn could_use(&self, no: &NoRoom) -> Vec<(GpuUuid, Vec<u32>)> {
        let each: Vec<Reservation> = match self {
            Look::Gpus(..) | Look::Share(..) => {
                let gpus = no.awaited.iter().cloned();
                return gpus.map(|gpu| (gpu, Vec::new())).collect();
            }
            Look::Slices(machine, asked) => {
                let (limits, wanted) = (machine.limits_of_nobody(), asked.wanted());
                let snapshot = &machine.inventory.snapshot;
                { asked.alternatives.iter() }
                    .flat_map(|one| limits.could_use(snapshot, one, &wanted))
                    .collect()
            }
            Look::Seat(seats) => seats.could_use(),
        };
        let mut all: BTreeMap<GpuUuid, BTreeSet<u32>> = BTreeMap::new();
        for Reservation { gpu, profile_id } in each {
            all.entry(gpu).or_default().insert(profile_id);
        }
        let profiles = |(gpu, ids): (GpuUuid, BTreeSet<u32>)| (gpu, ids.into_iter().collect());
        all.into_iter().map(profiles).collect()
    }

    /// Returns the GPUs that were asked about, or the slices with seats, each with its obstacle for a requester without
    /// limits.
    pub(super) fn on_trial(&self) -> Vec<Candidate<'m>> {
        let (mut all, sizes, levels) = match self {
            Look::Slices(..) => return Vec::new(),
            Look::Gpus(.., on) => return on.clone(),
            Look::Share(_, sizes, levels, on) => (on.clone(), *sizes, *levels),
            Look::Seat(seats) => (seats.asked(), &*seats.seat.sizes, seats.levels),
        };
        let terms = levels.of_sizes(sizes, &|_| None);
        for on in &mut all {
            on.obstacle = terms.obstacle(on);
        }
        all
    }
}

/// Plans the first alternative that can be had, until each instance of an administrator in the plan is usable.
pub(super) fn usable_plan(
    machine: &Machine<'_, impl Queries>,
    alternatives: &[Alternative],
    wanted: &Constraints<'_>,
    tried: &mut Tried,
) -> Result<Plan, Denial<Rejection>> {
    let limits = &machine.limits();
    loop {
        let planner = Planner {
            inventory: machine.inventory,
            wanted,
            limits,
            tried,
            adopts: machine.config.adopt,
        };
        let mut planned = planner.plan(alternatives)?;
        match complete(machine.driver, &mut planned.steps) {
            Ok(()) => return Ok(planned),
            Err(place) => tried.unusable.push(place),
        }
    }
}

/// Completes the steps that adopt an instance with its compute instance; an error with the place of the
/// first that cannot be handed out.
fn complete(driver: &impl Queries, steps: &mut [Step]) -> Result<(), Slot> {
    for step in steps {
        if let Step::Adopt(slice, _) = step {
            let ci = only_compute_instance(driver, slice).unwrap_or_else(|e| {
                tracing::warn!("not adopted: {}", e.line());
                None
            });
            slice.compute_instance = Some(ci.ok_or_else(|| slot_of(slice))?);
        }
    }
    Ok(())
}

/// Returns the compute instance that fills an instance; none where it has another, or is in use. The driver
/// answers this at once, under the plan's lock; processes that merely have the instance open are looked for
/// once a lease holds it.
fn only_compute_instance(driver: &impl Queries, slice: &Slice) -> Result<Option<u32>> {
    let Some(instance) = reclaim::locate(driver, slice)? else {
        return Ok(None);
    };
    let [only] = instance.compute_instances.as_slice() else {
        return Ok(None);
    };
    let (gpu, gi) = (&slice.gpu_uuid, instance.id);
    let is_usable = driver.is_filled_by(gpu, gi, only.profile_id)?
        && driver.processes(gpu, gi, only.id)?.is_empty();
    Ok(is_usable.then_some(only.id))
}
