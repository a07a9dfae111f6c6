//! Which slices would have to lie elsewhere for a request to fit: the smallest set, by exact search
//! as far as patience goes.

use super::simulate::{Moved, World, orders};
use crate::model::{Gpu, Placement, Profile, Snapshot};
use crate::placement::constraints::{Wanted, is_on};
use crate::placement::occupancy::{Lying, Reserved, Room};
use crate::placement::pack::Packer;
use crate::placement::plan::{Found, Movable, Plan};
use crate::request::Alternative;

/// The fewest containers of `movable` that have to be restarted for the request to fit, the least memory of
/// several such sets. They are all taken down, the request is let in, and they come again, larger
/// ones first: where `choose` puts each then is what the plan says.
pub fn fewest_moves(
    snapshot: &Snapshot,
    reserved: &[Reserved],
    movable: &[Movable],
    asked: &Alternative,
    wanted: &Wanted<'_>,
    patience: u32,
) -> Found {
    // Where the request may not go, what makes way for it may.
    let gpus = snapshot.gpus.iter().filter(|gpu| is_on(gpu));
    let mut rooms: Vec<Room<'_>> = gpus.map(|gpu| wanted.room(gpu, reserved)).collect();
    for room in &mut rooms {
        room.lying.retain(|l| !l.idle);
        for lying in &mut room.lying {
            let is = |m: &Movable| m.place.gpu == room.gpu.uuid && m.place.placement == lying.at;
            lying.movable = movable.iter().position(is);
        }
    }
    let mut mine: Vec<Option<&Profile>> = Vec::new();
    for room in &rooms {
        let profile = wanted.profile_on(room.gpu, &asked.slice);
        mine.push(profile.filter(|_| !wanted.excludes(room.gpu)));
    }
    // What most who are refused meet: no order of slices makes memory.
    let free: u32 = rooms.iter().map(Room::free_slices).sum();
    let needed = mine.iter().flatten().map(|p| p.memory_slices()).min();
    if needed.is_none_or(|needed| free < needed.saturating_mul(asked.count)) {
        return Found::Impossible;
    }
    if could_fit(&rooms, &mine, asked.count, patience) == Some(false) {
        return Found::Impossible;
    }
    let world = World {
        snapshot,
        reserved,
        movable,
        wanted,
        asked,
    };
    let lying = rooms.iter().flat_map(|r| &r.lying);
    let most = lying
        .filter_map(|l| Some(movable[l.movable?].containers))
        .sum();
    let needs = vec![Need::Request; asked.count as usize];
    let mut left = patience;
    for moves in 0..=most {
        let mut search = Search {
            mine: &mine,
            movable,
            world: &world,
            moved: Vec::new(),
            best: None,
            left,
        };
        let done = search.place(&mut rooms.clone(), needs.clone(), moves);
        left = search.left;
        if let Some((_, plan)) = search.best {
            return Found::Plan(plan);
        }
        if done.is_none() {
            return Found::Beyond(moves.saturating_sub(1));
        }
    }
    Found::Impossible
}

/// Were everything movable free to lie anywhere.
fn could_fit(
    rooms: &[Room<'_>],
    mine: &[Option<&Profile>],
    count: u32,
    patience: u32,
) -> Option<bool> {
    let mut bare = rooms.to_vec();
    let mut names: Vec<String> = Vec::new();
    for room in &mut bare {
        for lying in room.lying.iter().filter(|l| l.movable.is_some()) {
            names.push(room.name(lying.profile_id));
        }
        room.lying.retain(|l| l.movable.is_none());
    }
    let mut packer = Packer::new(&bare, patience / 10);
    let mut meanings: Vec<&str> = mine.iter().flatten().map(|p| p.name.as_str()).collect();
    meanings.sort_unstable();
    meanings.dedup();
    // Of several meanings one may be had on one GPU, and another on the next.
    let mut sure = meanings.len() == 1 || count == 1;
    for name in meanings {
        let asked = std::iter::repeat_n(name, count as usize);
        match packer.holds(names.iter().map(String::as_str).chain(asked)) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => sure = false,
        }
    }
    sure.then_some(false)
}

/// What waits for a place.
#[derive(Clone, Debug)]
enum Need {
    Request,
    Moved(Moved),
}

struct Search<'s, 'a> {
    /// What the request means on each GPU.
    mine: &'s [Option<&'a Profile>],
    movable: &'s [Movable],
    world: &'s World<'s>,
    moved: Vec<Moved>,
    /// With the memory that it moves.
    best: Option<(u32, Plan)>,
    left: u32,
}

impl<'a> Search<'_, 'a> {
    /// Places all that waits, and takes down at most so many more for it. None when out of patience.
    fn place(&mut self, rooms: &mut [Room<'a>], mut needs: Vec<Need>, budget: usize) -> Option<()> {
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
        for g in 0..rooms.len() {
            // Of GPUs that are alike one is enough.
            if (0..g).any(|other| self.are_alike(rooms, other, g)) {
                continue;
            }
            let gpu: &'a Gpu = rooms[g].gpu;
            let profile = match &need {
                Need::Request => self.mine[g],
                Need::Moved(m) if !self.movable[m.which].may_use(gpu) => None,
                Need::Moved(m) => gpu.profiles.iter().find(|p| p.name == m.profile),
            };
            let Some(profile) = profile else { continue };
            for &at in &profile.placements {
                self.put(rooms, g, profile, at, &needs, budget)?;
            }
        }
        Some(())
    }

    /// The same lies on both, for as many containers, and the same may go there.
    fn are_alike(&self, rooms: &[Room<'a>], a: usize, b: usize) -> bool {
        let as_movable = |a: usize, b: usize| self.movable[a].is_like(&self.movable[b]);
        let (gpu, other) = (rooms[a].gpu, rooms[b].gpu);
        rooms[a].is_like(&rooms[b], as_movable)
            && self.mine[a].is_some() == self.mine[b].is_some()
            && (self.movable.iter()).all(|m| m.may_use(gpu) == m.may_use(other))
    }

    /// Takes down what is in the way of one place, puts the profile there, and goes on.
    fn put(
        &mut self,
        rooms: &mut [Room<'a>],
        g: usize,
        profile: &'a Profile,
        at: Placement,
        needs: &[Need],
        budget: usize,
    ) -> Option<()> {
        let new = Lying::new(profile.id, at);
        let room = &rooms[g];
        let blocks = |l: &&Lying| l.slices & new.slices != 0;
        let blocked = room.lying.iter().any(|l| blocks(&l));
        let lack = (!blocked)
            .then(|| room.lacks(profile, room.lying.iter()))
            .flatten();
        if !blocked && lack.is_none() {
            rooms[g].lying.push(new);
            let done = self.place(rooms, needs.to_vec(), budget);
            rooms[g].lying.pop();
            return done;
        }
        // Any one that is in the way has to go; of those that use up an engine, one or another.
        let going: Vec<usize> = if blocked {
            room.lying
                .iter()
                .position(|l| blocks(&l))
                .into_iter()
                .collect()
        } else {
            let helps = |i: &usize| lack.is_some_and(|l| room.frees(l, profile, &room.lying[*i]));
            (0..room.lying.len()).filter(helps).collect()
        };
        for i in going {
            let lying = rooms[g].lying[i];
            let Some(which) = lying.movable else { continue };
            let Some(budget) = budget.checked_sub(self.movable[which].containers) else {
                continue;
            };
            rooms[g].lying.remove(i);
            let moved = Moved {
                which,
                profile: rooms[g].name(lying.profile_id),
                gpu: rooms[g].gpu.index,
                gpu_uuid: rooms[g].gpu.uuid.clone(),
                from: lying.at,
            };
            self.moved.push(moved.clone());
            let mut more = needs.to_vec();
            let size = |n: &Need| match n {
                Need::Request => u32::MAX,
                Need::Moved(m) => m.from.size,
            };
            let place = more.partition_point(|n| size(n) <= lying.at.size);
            more.insert(place, Need::Moved(moved));
            let done = self.put(rooms, g, profile, at, &more, budget);
            self.moved.pop();
            rooms[g].lying.insert(i, lying);
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
