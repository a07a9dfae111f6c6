//! Chooses the slice of a seat: a pure function of the slices with seats, and of what is booked in each.

use super::backfill::Backfill;
use super::no_room::{Candidate, CandidateSlice, GpuObstacle, NoRoom, ShareLevel};
use super::plan::{Constraints, fitting, usable};
use super::rejection::Rejection;
use super::share::{ShareMemory, ShareTerms};
use crate::model::{Gpu, GpuUuid, Profile, Snapshot};
use crate::request::{Seat, ShareSize, Slice, Wanted};

impl ShareTerms<'_> {
    /// Returns the memory of a seat of a size in a slice; else the obstacle.
    fn seat_in(
        &self,
        on: &Candidate<'_>,
        size: ShareSize,
        constraints: &Constraints<'_>,
    ) -> Result<ShareMemory, GpuObstacle> {
        let fits = self.place(on, size)?;
        // Its slice stays longer with one more seat, in a place that an earlier request may wait for.
        let permits =
            |of: &CandidateSlice<'_>| Backfill::on(on.gpu, constraints).permits(of.profile, of.at);
        match on.slice.as_ref().is_none_or(permits) {
            true => Ok(fits),
            false => Err(GpuObstacle::Queued),
        }
    }

    /// Chooses a slice with seats for one more: one that exists before one in the making, then the one with the least
    /// free memory, then by GPU and place. Returns its number, and the memory of the seat.
    pub(crate) fn choose_seat(
        &self,
        slices: &[Candidate<'_>],
        size: ShareSize,
        constraints: &Constraints<'_>,
    ) -> Option<(usize, ShareMemory)> {
        let asked = slices.iter().enumerate();
        let asked = asked.filter(|(_, on)| on.is_asked(constraints));
        let fits = asked.filter_map(|(n, on)| Some((n, self.seat_in(on, size, constraints).ok()?)));
        fits.min_by_key(|(n, _)| {
            let on = &slices[*n];
            on.slice
                .map(|of| (!of.is_ready, on.free_mib, on.gpu.index, of.at.start))
        })
    }

    /// Returns the answer to a request for a seat that finds none in these slices. `no_slice`: why there is no new
    /// one.
    pub(crate) fn no_seat(
        &self,
        seat: &Seat,
        slices: &[Candidate<'_>],
        constraints: &Constraints<'_>,
        no_slice: Rejection,
    ) -> Box<NoRoom> {
        let asked = slices.iter().filter(|on| on.is_asked(constraints));
        let asked: Vec<Candidate<'_>> = asked.cloned().collect();
        let obstacle = |on: &Candidate<'_>| self.seat_obstacle(on, constraints);
        let mut no = NoRoom::among(Wanted::Seat(seat.clone()), &asked, obstacle);
        no.no_slice = Some(no_slice);
        no
    }

    /// Returns the obstacle of a slice with seats for all requested sizes. None if one of them fits.
    pub(crate) fn seat_obstacle(
        &self,
        on: &Candidate<'_>,
        constraints: &Constraints<'_>,
    ) -> Option<GpuObstacle> {
        self.obstacle_by(|size| self.seat_in(on, size, constraints))
    }

    /// Returns the memory of a seat in a new slice; else the obstacle.
    pub(crate) fn in_new(
        &self,
        gpu: &Gpu,
        profile: &Profile,
        level: Result<ShareLevel, GpuObstacle>,
        size: ShareSize,
    ) -> Result<ShareMemory, GpuObstacle> {
        let on = Candidate {
            memory_mib: Some(profile.memory_mib),
            free_mib: profile.memory_mib,
            level: Some(level?),
            ..Candidate::new(gpu)
        };
        self.place(&on, size)
    }

    /// Returns the GPUs on which no new slice has room for a seat of any of the sizes, each with the obstacle.
    pub(crate) fn unfit(
        &self,
        snapshot: &Snapshot,
        slice: &Slice,
        constraints: &Constraints<'_>,
        level: impl Fn(&Gpu) -> Result<ShareLevel, GpuObstacle>,
    ) -> Vec<(GpuUuid, GpuObstacle)> {
        let gpus = usable(snapshot, constraints);
        let fitting = fitting(&gpus, slice, constraints);
        let unfit = |(gpu, profile): (&Gpu, &Profile)| {
            let level = level(gpu);
            let why = self.obstacle_by(|size| self.in_new(gpu, profile, level.clone(), size))?;
            Some((gpu.uuid.clone(), why))
        };
        fitting.into_iter().filter_map(unfit).collect()
    }
}

impl Candidate<'_> {
    /// Returns whether the slice is what one of the alternatives stands for on its GPU.
    pub(crate) fn is_asked(&self, constraints: &Constraints<'_>) -> bool {
        let is_it = |slice: &Slice| {
            let stands_for = constraints.profile_on(self.gpu, slice);
            stands_for.is_some_and(|p| self.slice.is_some_and(|of| of.profile.id == p.id))
        };
        !constraints.excludes(self.gpu) && constraints.alternatives.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests;
