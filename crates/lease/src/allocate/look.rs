//! The look of a create, and of `migctl explain`: what a request of any kind gets on a machine at one moment, or why it
//! gets nothing. It writes nothing.

use super::admit::{Admission, Machine};
use super::found::{Denial, Found, Piece};
use super::levels::{Levels, Terms};
use super::outside_mig;
use super::requester::Tried;
use super::seats::Seats;
use super::usable_plan::{self, usable_plan};
use crate::error::Result;
use crate::gpu::Queries;
use crate::model::{Gpu, GpuUuid, MigMode};
use crate::placement::{Candidate, GpuObstacle, NoRoom, Rejection};
use crate::queue::Wants;
use crate::request::{Seat, ShareSize, Wanted};

/// A request, as the policy admits it on a machine.
pub(super) enum Ask<'a> {
    Slices(Admission),
    Gpus(u32),
    Share(&'a [ShareSize], Terms<'a>),
    Seat(&'a Seat, Admission, Terms<'a>),
}

impl<'a> Ask<'a> {
    /// # Errors
    /// The policy forbids the request, or no permitted level is possible.
    pub(super) fn new(
        machine: &Machine<'_, impl Queries>,
        wanted: &'a Wanted,
        levels: impl FnOnce() -> &'a Levels,
    ) -> Result<Ask<'a>> {
        let config = machine.config;
        Ok(match wanted {
            Wanted::Slices(slices) => Ask::Slices(machine.admit(slices)?),
            Wanted::Gpus(count) => {
                config.policy.check_gpus(*count)?;
                Ask::Gpus(*count)
            }
            Wanted::Share(sizes) => {
                let is_in_mig = |gpu: &Gpu| gpu.mig == MigMode::Enabled && !gpu.ends_mig();
                // Whatever level is possible, a GPU in MIG mode has no shares.
                let needs_level = !machine.inventory.snapshot.gpus.iter().all(is_in_mig);
                Ask::Share(sizes, Terms::new(config, levels(), needs_level)?)
            }
            Wanted::Seat(seat) => {
                let terms = Terms::new(config, levels(), true)?;
                Ask::Seat(seat, machine.admit(&seat.slices)?, terms)
            }
        })
    }

    /// Returns what is asked of a slice for this container alone.
    pub(super) fn slices(&self) -> Option<&Admission> {
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
            Ask::Slices(asked) | Ask::Seat(_, asked, _) => {
                let Admission { admitted, ours, .. } = asked;
                Wants::Slices { admitted, ours }
            }
        }
    }
}

/// A look at a machine for a request.
pub(super) enum Look<'a, D> {
    Slices(&'a Machine<'a, D>, &'a Admission),
    Gpus(&'a Machine<'a, D>, u32, Vec<Candidate<'a>>),
    Share(
        &'a Machine<'a, D>,
        &'a [ShareSize],
        Terms<'a>,
        Vec<Candidate<'a>>,
    ),
    Seat(Seats<'a, D>),
}

impl<'a, D: Queries> Look<'a, D> {
    /// Asks the driver about every GPU that the request could have, each once.
    pub(super) fn new(machine: &'a Machine<'a, D>, ask: &'a Ask<'a>) -> Self {
        match ask {
            Ask::Slices(asked) => Look::Slices(machine, asked),
            Ask::Gpus(count) => Look::Gpus(machine, *count, outside_mig::candidates(machine, None)),
            Ask::Share(sizes, terms) => {
                let on = outside_mig::candidates(machine, Some(terms));
                Look::Share(machine, sizes, *terms, on)
            }
            Ask::Seat(seat, asked, terms) => Look::Seat(Seats::new(machine, seat, asked, *terms)),
        }
    }

    /// Returns what the request gets.
    pub(super) fn found(&self, tried: &mut Tried) -> Result<Found<'a>, Denial<Box<NoRoom>>> {
        match self {
            Look::Slices(machine, asked) => {
                let (wanted, limits) = (asked.wanted(), machine.limits());
                let alternatives = &asked.admitted.alternatives;
                let plan = usable_plan(machine, &wanted, &limits, tried, |planner| {
                    planner.plan(alternatives)
                });
                let named = |mut no: Rejection| {
                    no.name(|slot| machine.inventory.named_at(slot));
                    NoRoom::of_slices(asked.asked(), no)
                };
                let plan = plan.map_err(|no| no.of(named))?;
                let pieces = plan.steps.into_iter().map(Piece::Slice).collect();
                Ok(Found::Pieces(pieces, plan.evict))
            }
            Look::Gpus(machine, count, on) => outside_mig::plan(machine, on, *count),
            Look::Share(machine, sizes, terms, on) => {
                outside_mig::plan_share(machine, on, sizes, *terms)
            }
            Look::Seat(seats) => seats.plan(tried),
        }
    }

    /// Returns the profiles that the request could use, by GPU. Without a profile it is the GPU itself.
    pub(super) fn could_use(&self, no: &NoRoom) -> Vec<(GpuUuid, Vec<u32>)> {
        match self {
            Look::Gpus(..) | Look::Share(..) => { no.awaited.iter() }
                .map(|gpu| (gpu.clone(), Vec::new()))
                .collect(),
            Look::Slices(machine, asked) => {
                usable_plan::could_use(machine, &machine.config.policy, &asked.admitted)
            }
            Look::Seat(seats) => seats.could_use(),
        }
    }

    /// Returns the GPUs that were asked about, or the slices with seats, each with its obstacle for a requester without
    /// limits.
    pub(super) fn on_trial(&self) -> Vec<(Candidate<'a>, Option<GpuObstacle>)> {
        let with = |on: &[Candidate<'a>], obstacle: &dyn Fn(&Candidate<'a>) -> _| {
            { on.iter() }.map(|on| (on.clone(), obstacle(on))).collect()
        };
        match self {
            Look::Slices(..) => Vec::new(),
            Look::Gpus(.., on) => with(on, &|on| on.obstacle.clone()),
            Look::Share(_, sizes, terms, on) => {
                with(on, &|on| terms.of_sizes(sizes, &|_| None).obstacle(on))
            }
            Look::Seat(seats) => with(&seats.asked(), &|on| seats.obstacle(on)),
        }
    }
}
