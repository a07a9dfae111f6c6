//! Chooses the slice of a seat: a pure function of the slices for seats, and of what is booked in each.

use super::backfill::Backfill;
use super::plan::{Constraints, fitting, usable};
use super::rejection::Rejection;
use super::share::{Over, ShareCandidate, ShareLevel, ShareTerms};
use super::whole::GpuObstacle;
use crate::model::{Gpu, GpuUuid, Placement, Profile, Snapshot};
use crate::request::{Seat, ShareSize, Slice};

/// A slice for seats on trial for one more.
#[derive(Debug, Clone)]
pub(crate) struct SeatCandidate<'a> {
    /// Its GPU, with the memory and the holders of the slice in place of the GPU's.
    pub on: ShareCandidate<'a>,
    /// Its profile.
    pub profile: &'a Profile,
    /// Its place.
    pub at: Placement,
    /// Says whether the slice exists. Another create makes it otherwise.
    pub is_ready: bool,
}

/// A request for a seat that gets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatShortage {
    /// The request.
    pub wanted: Seat,
    /// The slices of the requested profiles that have seats, each with its obstacle.
    pub taken: Vec<(String, GpuObstacle)>,
    /// The reason for which there is no new slice.
    pub rejection: Rejection,
}

impl SeatShortage {
    /// Says whether a wait may help.
    pub fn may_pass(&self) -> bool {
        let is_full = matches!(self.rejection, Rejection::NoCapacity(_));
        is_full || self.taken.iter().any(|(_, why)| why.may_pass())
    }
}

/// The terms of a seat.
pub(crate) struct SeatTerms<'a> {
    /// The number of seats that one slice takes.
    pub most: u32,
    /// Returns the limit that forbids so many MiB more to the requester.
    pub limit: &'a dyn Fn(u64) -> Option<Over>,
}

impl SeatTerms<'_> {
    fn place(&self, on: &ShareCandidate<'_>, size: ShareSize) -> Result<(u64, u64), GpuObstacle> {
        let terms = ShareTerms {
            sizes: &[],
            most: self.most,
            limit: self.limit,
        };
        terms.place(on, size)
    }

    /// Returns the memory of a seat of a size in a slice, and the memory that it books, in MiB; else the obstacle.
    fn seat_in(
        &self,
        slice: &SeatCandidate<'_>,
        size: ShareSize,
        constraints: &Constraints<'_>,
    ) -> Result<(u64, u64), GpuObstacle> {
        let fits = self.place(&slice.on, size)?;
        // Its slice stays longer with one more seat, in a place that an earlier request may wait for.
        match Backfill::on(slice.on.gpu, constraints).permits(slice.profile, slice.at) {
            true => Ok(fits),
            false => Err(GpuObstacle::Queued),
        }
    }

    /// Chooses a slice with seats for one more: one that exists before one in the making, then the one with the least
    /// free memory, then by GPU and place. Returns its number, and the memory of the seat and that which it books, in
    /// MiB.
    pub(crate) fn choose(
        &self,
        slices: &[SeatCandidate<'_>],
        (slice, size): (&Slice, ShareSize),
        constraints: &Constraints<'_>,
    ) -> Option<(usize, (u64, u64))> {
        let fits = slices
            .iter()
            .enumerate()
            .filter(|(_, on)| on.is_a(slice, constraints));
        let fits = fits.filter_map(|(n, on)| Some((n, self.seat_in(on, size, constraints).ok()?)));
        fits.min_by_key(|(n, _)| {
            let one = &slices[*n];
            let (gpu, start) = (one.on.gpu.index, one.at.start);
            (!one.is_ready, one.on.free_mib, gpu, start)
        })
    }

    /// Returns the slices with seats that the request could have, each with its obstacle.
    pub(crate) fn taken(
        &self,
        slices: &[SeatCandidate<'_>],
        seat: &Seat,
        constraints: &Constraints<'_>,
    ) -> Vec<(String, GpuObstacle)> {
        let asked = slices.iter().filter(|on| on.is_asked(seat, constraints));
        let obstacle = |on: &SeatCandidate<'_>| {
            let why = self.obstacle(on, seat, constraints)?;
            let (profile, at, gpu) = (&on.profile.name, on.at, on.on.gpu.index);
            Some((format!("{profile} at {at} on GPU {gpu}"), why))
        };
        asked.filter_map(obstacle).collect()
    }

    /// Returns the obstacle of a slice with seats for all requested sizes. None if one of them fits.
    pub(crate) fn obstacle(
        &self,
        on: &SeatCandidate<'_>,
        seat: &Seat,
        constraints: &Constraints<'_>,
    ) -> Option<GpuObstacle> {
        let mut found = None;
        for size in &seat.sizes {
            found = Some(self.seat_in(on, *size, constraints).err()?);
        }
        found
    }

    /// Returns the memory of a seat in a new slice, and the memory that it books, in MiB; else the obstacle.
    pub(crate) fn in_new(
        &self,
        (gpu, profile): (&Gpu, &Profile),
        level: Result<ShareLevel, GpuObstacle>,
        size: ShareSize,
    ) -> Result<(u64, u64), GpuObstacle> {
        let on = ShareCandidate {
            gpu,
            memory_mib: Some(profile.memory_mib),
            free_mib: profile.memory_mib,
            foreign_mib: 0,
            holders: Vec::new(),
            level: Some(level?),
            obstacle: None,
            is_queued: false,
        };
        self.place(&on, size)
    }

    /// Returns the GPUs on which no new slice has room for a seat of any of these sizes, each with the obstacle.
    pub(crate) fn unfit(
        &self,
        snapshot: &Snapshot,
        (slice, sizes): (&Slice, &[ShareSize]),
        constraints: &Constraints<'_>,
        level: impl Fn(&Gpu) -> Result<ShareLevel, GpuObstacle>,
    ) -> Vec<(GpuUuid, GpuObstacle)> {
        let gpus = usable(snapshot, constraints);
        let unfit = |(gpu, profile): (&Gpu, &Profile)| {
            let level = level(gpu);
            let mut sizes = sizes.iter();
            let fits = sizes.try_fold(None, |_, size| {
                match self.in_new((gpu, profile), level.clone(), *size) {
                    Ok(_) => Err(()),
                    Err(why) => Ok(Some(why)),
                }
            });
            Some((gpu.uuid.clone(), fits.ok()??))
        };
        let fitting = fitting(&gpus, slice, constraints);
        fitting.into_iter().filter_map(unfit).collect()
    }
}

impl SeatCandidate<'_> {
    /// Returns whether the slice is what an alternative of the request stands for on its GPU.
    pub(crate) fn is_asked(&self, seat: &Seat, constraints: &Constraints<'_>) -> bool {
        let mut alternatives = seat.slices.alternatives.iter();
        alternatives.any(|asked| self.is_a(&asked.slice, constraints))
    }

    /// Returns whether the slice is what a request stands for on its GPU.
    fn is_a(&self, slice: &Slice, constraints: &Constraints<'_>) -> bool {
        let stands_for = constraints.profile_on(self.on.gpu, slice);
        !constraints.excludes(self.on.gpu) && stands_for.is_some_and(|p| p.id == self.profile.id)
    }
}

#[cfg(test)]
mod tests;
