//! Which slices would have to lie elsewhere for a request to fit: the smallest set, by exact search
//! as far as its steps go.

use super::simulate::{Moved, Simulation, orders};
use crate::model::{Gpu, Placement, Profile, Snapshot};
use crate::placement::constraints::{Constraints, is_on};
use crate::placement::occupancy::{Occupancy, Occupant, Slot};
use crate::placement::pack::Packer;
use crate::placement::plan::{DefragPlan, Movable, SearchResult};
use crate::request::Alternative;

/// The fewest containers of `movable` that have to be restarted for the request to fit, the least memory of
/// several such sets. They are all taken down, the request is let in, and they come again, larger
/// ones first: where `choose` puts each then is what the plan says.
pub fn fewest_moves(
    snapshot: &Snapshot,
    reserved: &[Slot],
    movable: &[Movable],
    request: &Alternative,
    constraints: &Constraints<'_>,
    steps: u32,
) -> SearchResult {
    // Slices that make way for the request may go to GPUs where it may not.
    let gpus = snapshot.gpus.iter().filter(|gpu| is_on(gpu));
    let mut occupancies: Vec<Occupancy<'_>> = gpus
        .map(|gpu| constraints.occupancy(gpu, reserved))
        .collect();
    for occupancy in &mut occupancies {
        occupancy.occupants.retain(|l| !l.idle);
        for occupant in &mut occupancy.occupants {
            let is =
                |m: &Movable| m.place.gpu == occupancy.gpu.uuid && m.place.placement == occupant.at;
            occupant.movable = movable.iter().position(is);
        }
    }
    let mut mine: Vec<Option<&Profile>> = Vec::new();
    for occupancy in &occupancies {
        let profile = constraints.profile_on(occupancy.gpu, &request.slice);
        mine.push(profile.filter(|_| !constraints.excludes(occupancy.gpu)));
    }
    // Most rejected requests meet this: no order of slices makes memory.
    let free: u32 = occupancies.iter().map(Occupancy::free_slices).sum();
    let needed = mine.iter().flatten().map(|p| p.memory_slices()).min();
    if needed.is_none_or(|needed| free < needed.saturating_mul(request.count)) {
        return SearchResult::Impossible;
    }
    if could_fit(&occupancies, &mine, request.count, steps) == Some(false) {
        return SearchResult::Impossible;
    }
    let world = Simulation {
        snapshot,
        reserved,
        movable,
        constraints,
        request,
    };
    let occupant = occupancies.iter().flat_map(|r| &r.occupants);
    let most = occupant
        .filter_map(|l| Some(movable[l.movable?].containers))
        .sum();
    let needs = vec![Need::Request; request.count as usize];
    let mut left = steps;
    for moves in 0..=most {
        let mut search = Search {
            mine: &mine,
            movable,
            world: &world,
            moved: Vec::new(),
            best: None,
            left,
        };
        let done = search.place(&mut occupancies.clone(), needs.clone(), moves);
        left = search.left;
        if let Some((_, plan)) = search.best {
            return SearchResult::Plan(plan);
        }
        if done.is_none() {
            return SearchResult::Beyond(moves.saturating_sub(1));
        }
    }
    SearchResult::Impossible
}

/// Were everything movable free to lie anywhere.
fn could_fit(
    occupancies: &[Occupancy<'_>],
    mine: &[Option<&Profile>],
    count: u32,
    steps: u32,
) -> Option<bool> {
    let mut bare = occupancies.to_vec();
    let mut names: Vec<String> = Vec::new();
    for occupancy in &mut bare {
        for occupant in occupancy.occupants.iter().filter(|l| l.movable.is_some()) {
            names.push(occupancy.name(occupant.profile_id));
        }
        occupancy.occupants.retain(|l| l.movable.is_none());
    }
    let mut packer = Packer::new(&bare, steps / 10);
    let mut meanings: Vec<&str> = mine.iter().flatten().map(|p| p.name.as_str()).collect();
    meanings.sort_unstable();
    meanings.dedup();
    // With several meanings, one may have room on one GPU, and another on the next.
    let mut sure = meanings.len() == 1 || count == 1;
    for name in meanings {
        let request = std::iter::repeat_n(name, count as usize);
        match packer.holds(names.iter().map(String::as_str).chain(request)) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => sure = false,
        }
    }
    sure.then_some(false)
}

/// A slice that waits for a place.
#[derive(Clone, Debug)]
enum Need {
    Request,
    Moved(Moved),
}

struct Search<'s, 'a> {
    /// The request's profile on each GPU.
    mine: &'s [Option<&'a Profile>],
    movable: &'s [Movable],
    world: &'s Simulation<'s>,
    moved: Vec<Moved>,
    /// With the memory that it moves.
    best: Option<(u32, DefragPlan)>,
    left: u32,
}

impl<'a> Search<'_, 'a> {
    /// Places all that waits, and takes down at most so many more for it. None when out of steps.
    fn place(
        &mut self,
        occupancies: &mut [Occupancy<'a>],
        mut needs: Vec<Need>,
        budget: usize,
    ) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let Some(need) = needs.pop() else {
            self.settle();
            return Some(());
        };
        let moving = |m: &[Moved]| m.iter().map(|m| m.from.size).sum::<u32>();
        if self
            .best
            .as_ref()
            .is_some_and(|(least, _)| moving(&self.moved) >= *least)
        {
            return Some(());
        }
        for g in 0..occupancies.len() {
            // One of several GPUs that are alike is enough.
            if (0..g).any(|other| self.are_alike(occupancies, other, g)) {
                continue;
            }
            let gpu: &'a Gpu = occupancies[g].gpu;
            let profile = match &need {
                Need::Request => self.mine[g],
                Need::Moved(m) if !self.movable[m.which].may_use(gpu) => None,
                Need::Moved(m) => gpu.profiles.iter().find(|p| p.name == m.profile),
            };
            let Some(profile) = profile else { continue };
            for &at in &profile.placements {
                self.put(occupancies, g, profile, at, &needs, budget)?;
            }
        }
        Some(())
    }

    /// The same lies on both, for as many containers, and the same may go there.
    fn are_alike(&self, occupancies: &[Occupancy<'a>], a: usize, b: usize) -> bool {
        let as_movable = |a: usize, b: usize| self.movable[a].is_like(&self.movable[b]);
        let (gpu, other) = (occupancies[a].gpu, occupancies[b].gpu);
        occupancies[a].is_like(&occupancies[b], as_movable)
            && self.mine[a].is_some() == self.mine[b].is_some()
            && (self.movable.iter()).all(|m| m.may_use(gpu) == m.may_use(other))
    }

    /// Takes down what is in the way of one place, puts the profile there, and goes on.
    fn put(
        &mut self,
        occupancies: &mut [Occupancy<'a>],
        g: usize,
        profile: &'a Profile,
        at: Placement,
        needs: &[Need],
        budget: usize,
    ) -> Option<()> {
        let new = Occupant::new(profile.id, at);
        let occupancy = &occupancies[g];
        let blocks = |l: &&Occupant| l.slices & new.slices != 0;
        let blocked = occupancy.occupants.iter().any(|l| blocks(&l));
        let lack = (!blocked)
            .then(|| occupancy.lacks(profile, occupancy.occupants.iter()))
            .flatten();
        if !blocked && lack.is_none() {
            occupancies[g].occupants.push(new);
            let done = self.place(occupancies, needs.to_vec(), budget);
            occupancies[g].occupants.pop();
            return done;
        }
        // Any one that is in the way has to go; of those that use up an engine, one or another.
        let going: Vec<usize> = if blocked {
            occupancy
                .occupants
                .iter()
                .position(|l| blocks(&l))
                .into_iter()
                .collect()
        } else {
            let helps = |i: &usize| {
                lack.is_some_and(|l| occupancy.frees(l, profile, &occupancy.occupants[*i]))
            };
            (0..occupancy.occupants.len()).filter(helps).collect()
        };
        for i in going {
            let occupant = occupancies[g].occupants[i];
            let Some(which) = occupant.movable else {
                continue;
            };
            let Some(budget) = budget.checked_sub(self.movable[which].containers) else {
                continue;
            };
            occupancies[g].occupants.remove(i);
            let moved = Moved {
                which,
                profile: occupancies[g].name(occupant.profile_id),
                gpu: occupancies[g].gpu.index,
                gpu_uuid: occupancies[g].gpu.uuid.clone(),
                from: occupant.at,
            };
            self.moved.push(moved.clone());
            let mut more = needs.to_vec();
            let size = |n: &Need| match n {
                Need::Request => u32::MAX,
                Need::Moved(m) => m.from.size,
            };
            let place = more.partition_point(|n| size(n) <= occupant.at.size);
            more.insert(place, Need::Moved(moved));
            let done = self.put(occupancies, g, profile, at, &more, budget);
            self.moved.pop();
            occupancies[g].occupants.insert(i, occupant);
            done?;
        }
        Some(())
    }

    /// All fits. The plan is what `choose` makes of it.
    fn settle(&mut self) {
        let memory = self.moved.iter().map(|m| m.from.size).sum();
        if self
            .best
            .as_ref()
            .is_some_and(|(least, _)| *least <= memory)
        {
            return;
        }
        let mut in_order: Vec<&Moved> = self.moved.iter().collect();
        in_order.sort_by_key(|m| (std::cmp::Reverse(m.from.size), m.which));
        let plan = (orders(in_order).iter()).find_map(|order| self.world.play(order));
        if let Some(plan) = plan {
            self.best = Some((memory, plan));
        }
    }
}
