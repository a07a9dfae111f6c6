//! Which slices would have to lie elsewhere for a request to fit: the smallest set, by exact search
//! as far as patience goes.

use super::pack::Packer;
use super::room::{Lying, Reserved, Room};
use super::several::choose_several;
use super::{Decision, Wanted};
use crate::model::{Gpu, GpuInstance, Placement, Profile, Snapshot};
use crate::request::{Alternative, Slice};

/// A slice that lies elsewhere after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movable {
    pub place: Reserved,
    /// That have to be restarted for it: those of a pod may have it together.
    pub containers: usize,
}

/// Where all that is asked for would lie, after the moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub sites: Vec<Site>,
    pub moves: Vec<Move>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub gpu_uuid: String,
    pub gpu_index: u32,
    pub profile: String,
    pub placement: Placement,
}

impl From<&Decision<'_>> for Site {
    fn from(found: &Decision<'_>) -> Site {
        Site {
            gpu_uuid: found.gpu.uuid.clone(),
            gpu_index: found.gpu.index,
            profile: found.profile.name.clone(),
            placement: found.placement,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Which of the movable ones.
    pub which: usize,
    pub profile: String,
    pub from_gpu: u32,
    pub from: Placement,
    pub to_gpu: u32,
    pub to: Placement,
}

/// What came of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing has to move if `moves` is empty.
    Plan(Plan),
    /// Not even if everything movable lay elsewhere.
    Impossible,
    /// It takes more moves than this, or cannot be done.
    Beyond(usize),
}

/// Steps of a search: some tens of milliseconds.
pub const PATIENCE: u32 = 200_000;

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
    let usable = super::usable(snapshot, wanted);
    let mut rooms: Vec<Room<'_>> = usable
        .iter()
        .map(|gpu| Room::new(gpu, reserved, wanted.idle))
        .collect();
    for room in &mut rooms {
        room.lying.retain(|l| !l.idle);
        for lying in &mut room.lying {
            let is = |m: &Movable| m.place.gpu == room.gpu.uuid && m.place.placement == lying.at;
            lying.movable = movable.iter().position(is);
        }
    }
    let mine: Vec<Option<&Profile>> = usable
        .iter()
        .map(|gpu| wanted.profile_on(gpu, &asked.slice))
        .collect();
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

struct World<'a> {
    snapshot: &'a Snapshot,
    reserved: &'a [Reserved],
    wanted: &'a Wanted<'a>,
    asked: &'a Alternative,
}

/// What waits for a place.
#[derive(Clone, Debug)]
enum Need {
    Request,
    Moved(Moved),
}

#[derive(Clone, Debug)]
struct Moved {
    which: usize,
    profile: String,
    gpu: u32,
    gpu_uuid: String,
    from: Placement,
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
            if (0..g).any(|other| rooms[other].is_like(&rooms[g])) {
                continue;
            }
            let gpu: &'a Gpu = rooms[g].gpu;
            let profile = match &need {
                Need::Request => self.mine[g],
                Need::Moved(m) => gpu.profiles.iter().find(|p| p.name == m.profile),
            };
            let Some(profile) = profile else { continue };
            for &at in &profile.placements {
                self.put(rooms, g, profile, at, &needs, budget)?;
            }
        }
        Some(())
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
        let plan = orders(in_order).find_map(|order| self.world.play(&order));
        if let Some(plan) = plan {
            self.best = Some((memory, plan));
        }
    }
}

impl World<'_> {
    /// Takes them down, lets the request in, and lets them come again.
    fn play(&self, moved: &[&Moved]) -> Option<Plan> {
        let gone =
            |gpu: &str, at: Placement| moved.iter().any(|m| m.gpu_uuid == gpu && m.from == at);
        let mut snapshot = self.snapshot.clone();
        for gpu in &mut snapshot.gpus {
            let uuid = gpu.uuid.clone();
            gpu.instances.retain(|i| !gone(&uuid, i.placement));
        }
        let mut reserved = self.reserved.to_vec();
        reserved.retain(|r| !gone(&r.gpu, r.placement));
        let mut come = |asked: &Alternative, wanted: &Wanted<'_>| {
            let found = choose_several(&snapshot, &reserved, asked, wanted).ok()?;
            let sites: Vec<Site> = found.iter().map(Site::from).collect();
            let places: Vec<Reserved> = found.iter().map(Decision::place).collect();
            for place in places {
                let instance = GpuInstance {
                    id: u32::MAX,
                    profile_id: place.profile_id,
                    placement: place.placement,
                    compute_instances: Vec::new(),
                };
                let gpu = snapshot.gpus.iter_mut().find(|g| g.uuid == place.gpu)?;
                gpu.instances.push(instance);
                reserved.retain(|r| r.gpu != place.gpu || !r.placement.overlaps(place.placement));
            }
            Some(sites)
        };
        let sites = come(self.asked, self.wanted)?;
        let mut moves = Vec::new();
        for m in moved {
            let again = Alternative {
                slice: Slice::Profile(m.profile.clone()),
                count: 1,
            };
            let anywhere = Wanted {
                min_compute: 0,
                ..*self.wanted
            };
            let to = come(&again, &anywhere)?.pop()?;
            moves.push(Move {
                which: m.which,
                profile: m.profile.clone(),
                from_gpu: m.gpu,
                from: m.from,
                to_gpu: to.gpu_index,
                to: to.placement,
            });
        }
        Some(Plan { sites, moves })
    }
}

/// The order given, then what comes of exchanging two: enough where the order matters at all.
fn orders(given: Vec<&Moved>) -> impl Iterator<Item = Vec<&Moved>> {
    let n = given.len();
    let pairs = (0..n).flat_map(move |a| (a + 1..n).map(move |b| (a, b)));
    let first = given.clone();
    let exchanged = pairs.map(move |(a, b)| {
        let mut order = given.clone();
        order.swap(a, b);
        order
    });
    std::iter::once(first).chain(exchanged)
}
