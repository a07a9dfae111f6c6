//! Several slices for one container: all of them or none, on GPUs of their own as far as possible.

use super::choose::choose_one;
use super::diagnosis;
use super::occupancy::{Occupancy, Slot};
use super::plan::{Constraints, Decision, MAX_STEPS, fitting, usable};
use super::rejection::{Obstacle, Rejection};
use crate::model::{Gpu, GpuUuid, Placement, Snapshot};
use crate::request::{Alternative, Slice};
use std::collections::{HashMap, HashSet};

/// The slots selected so far for one request, and what they leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    pub reserved: Vec<Slot>,
    /// Idle slices that are left.
    pub idle: Vec<Slot>,
    /// Idle slices that runmig has to destroy.
    pub evicted: Vec<Slot>,
    /// UUIDs of the GPUs that hold the selected slots.
    pub own_gpus: Vec<GpuUuid>,
}

impl Selection {
    pub(crate) fn new(reserved: &[Slot], idle: &[Slot]) -> Self {
        Selection {
            reserved: reserved.to_vec(),
            idle: idle.to_vec(),
            evicted: Vec::new(),
            own_gpus: Vec::new(),
        }
    }

    /// Returns the constraints of the next slice.
    pub(crate) fn constraints<'a>(&'a self, constraints: &Constraints<'a>) -> Constraints<'a> {
        Constraints {
            idle: &self.idle,
            evicted: &self.evicted,
            own_gpus: &self.own_gpus,
            ..*constraints
        }
    }

    /// Adds a slot, and the idle slices on its GPU that go for it.
    pub(crate) fn add(&mut self, slot: Slot, evicts: &[Placement]) {
        let goes = |r: &Slot| r.gpu == slot.gpu && evicts.contains(&r.placement);
        self.evicted.extend(self.idle.extract_if(.., |r| goes(r)));
        self.idle.retain(|r| *r != slot);
        self.own_gpus.push(slot.gpu.clone());
        self.reserved.push(slot);
    }
}

/// The rejection of a request, and the slots that were selected before one was missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub(crate) selection: Selection,
    /// Why the request gets no slot.
    pub rejection: Rejection,
}

/// Chooses a slot for each slice of a request, one after the other.
pub(crate) fn choose_several<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Slot],
    request: &Alternative,
    constraints: &Constraints<'_>,
) -> Result<Vec<Decision<'a>>, Box<Diagnosis>> {
    let mut selection = Selection::new(reserved, constraints.idle);
    let no = |selection, rejection| {
        Err(Box::new(Diagnosis {
            selection,
            rejection,
        }))
    };
    if let Some(never) = never_several(snapshot, request, constraints) {
        return no(selection, never);
    }
    let mut found = Vec::new();
    for slice in request.all() {
        let one = selection.constraints(constraints);
        match choose_one(snapshot, &selection.reserved, slice, &one) {
            Ok(decision) => {
                selection.add(decision.slot(), &decision.evicts);
                found.push(decision);
            }
            Err(obstacle) => {
                let found = found.len();
                return no(selection, Rejection::of(request, found, obstacle));
            }
        }
    }
    Ok(found)
}

/// Returns the rejection where even the empty machine does not hold all slices of a request.
pub(crate) fn never_several(
    snapshot: &Snapshot,
    request: &Alternative,
    constraints: &Constraints<'_>,
) -> Option<Rejection> {
    // An unreadable GPU may hold the rest, and so may one that gives nothing new now.
    let closed = diagnosis::closed(snapshot, constraints);
    let offers = |gpu: &&Gpu| {
        let mut slices = request.all();
        slices.any(|slice| constraints.profile_on(gpu, slice).is_some())
    };
    let is_unsure = !snapshot.unreadable.is_empty() || closed.iter().any(offers);
    if request.others.is_empty() || is_unsure {
        return None;
    }
    let never = |obstacle| Some(Rejection::of(request, 0, obstacle));
    let usable = usable(snapshot, constraints);
    let (all, mut names): (Vec<&Slice>, _) = (request.all().collect(), Vec::new());
    for alike in all.chunk_by(|a, b| a == b) {
        let fitting = fitting(&usable, alike[0], constraints);
        let name = &fitting.first()?.1.name;
        let most: u32 = fitting.iter().map(|(_, p)| p.max_instances).sum();
        if most < alike.len() as u32 {
            return never(Obstacle::TooMany {
                gpus: fitting.len(),
                profile: name.clone(),
                most,
            });
        }
        if fitting.iter().all(|(_, p)| p.name == *name) {
            names.extend(std::iter::repeat_n(name.as_str(), alike.len()));
        }
    }
    // What an amount of memory means may depend on the GPU.
    let is_sure = request.is_mixed() && names.len() == all.len();
    let empty: Vec<Occupancy<'_>> = usable.iter().map(|gpu| Occupancy::empty(gpu)).collect();
    // The packer first looks for all ways to fill each model.
    if !is_sure || fit_in_turn(empty.clone(), &names) {
        return None;
    }
    if Packer::new(&empty, MAX_STEPS).holds(names.into_iter()) != Some(false) {
        return None;
    }
    never(Obstacle::TooMany {
        gpus: usable.len(),
        profile: request.to_string(),
        most: 0,
    })
}

/// Says whether slices of these profiles fit one after the other, each on the first GPU that has a place. If not, another order
/// may do.
fn fit_in_turn(mut gpus: Vec<Occupancy<'_>>, names: &[&str]) -> bool {
    let mut takes = |name: &&str| {
        gpus.iter_mut().any(|on| {
            let profile = on.gpu.profiles.iter().find(|p| p.name == **name);
            let found = profile.and_then(|p| Some((p, on.places(p).next()?)));
            if let Some((profile, at)) = found {
                *on = on.with(profile, at);
            }
            found.is_some()
        })
    };
    names.iter().all(&mut takes)
}

/// How many of each profile, in the order of `Packer::names`.
type Counts = Vec<u32>;

/// A search for a way to pack slices on GPUs.
pub struct Packer {
    names: Vec<String>,
    /// The memory slices of each profile, on the model where it needs the fewest.
    sizes: Vec<u32>,
    /// The kind of each GPU. Equal GPUs are together, and the most common come last.
    bins: Vec<usize>,
    kinds: Vec<Kind>,
    /// Known answers, by the first of the remaining GPUs and the slices that they should hold.
    known: HashMap<(usize, Counts), bool>,
    /// The steps that one question may take.
    steps: u32,
}

struct Kind {
    free: u32,
    /// The sets to which no slice can be added.
    fills: Vec<Counts>,
}

impl Packer {
    /// Creates a packer for these GPUs, whose occupants stay. `steps` bounds the work of each `holds`.
    pub fn new(occupancies: &[Occupancy<'_>], steps: u32) -> Self {
        let (mut names, mut sizes): (Vec<String>, Vec<u32>) = Default::default();
        for p in occupancies.iter().flat_map(|r| &r.gpu.profiles) {
            match names.iter().position(|n| *n == p.name) {
                Some(at) => sizes[at] = sizes[at].min(p.memory_slices()),
                None => {
                    names.push(p.name.clone());
                    sizes.push(p.memory_slices());
                }
            }
        }
        let mut alike: Vec<(&Occupancy<'_>, usize)> = Vec::new();
        for occupancy in occupancies {
            let is_like = |other: &Occupancy<'_>| occupancy.is_like(other, |a, b| a == b);
            match alike.iter_mut().find(|(other, _)| is_like(other)) {
                Some((_, count)) => *count += 1,
                None => alike.push((occupancy, 1)),
            }
        }
        alike.sort_by_key(|(_, count)| *count);
        let bins = alike.iter().enumerate();
        let kind = |(occupancy, _): &(&Occupancy<'_>, usize)| Kind {
            free: occupancy.free_slices(),
            fills: fills(occupancy, &names),
        };
        Packer {
            bins: bins.flat_map(|(k, (_, n))| vec![k; *n]).collect(),
            kinds: alike.iter().map(kind).collect(),
            names,
            sizes,
            known: HashMap::new(),
            steps,
        }
    }

    /// Says whether slices of these profiles fit on the GPUs together. Returns none if the answer takes
    /// more steps than allowed.
    pub fn holds<'n>(&mut self, profiles: impl Iterator<Item = &'n str>) -> Option<bool> {
        let mut counts = vec![0; self.names.len()];
        for profile in profiles {
            let Some(at) = self.names.iter().position(|n| n == profile) else {
                return Some(false);
            };
            counts[at] += 1;
        }
        let mut left = self.steps;
        self.from(0, counts, &mut left)
    }

    fn from(&mut self, bin: usize, counts: Counts, left: &mut u32) -> Option<bool> {
        if counts.iter().all(|n| *n == 0) {
            return Some(true);
        }
        let free = |kind: &usize| u64::from(self.kinds[*kind].free);
        let occupancy: u64 = self.bins[bin..].iter().map(free).sum();
        let need = |counts: &Counts| -> u64 {
            let each = counts.iter().zip(&self.sizes);
            each.map(|(n, size)| u64::from(*n) * u64::from(*size)).sum()
        };
        if need(&counts) > occupancy {
            return Some(false);
        }
        let key = (bin, counts);
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        *left = left.checked_sub(1)?;
        let counts = &key.1;
        let kind = self.bins[bin];
        // If the remaining GPUs are equal, the largest slice goes on the first.
        let largest = self.bins[bin..].iter().all(|k| *k == kind).then(|| {
            let left = (0..counts.len()).filter(|p| counts[*p] > 0);
            left.max_by_key(|p| self.sizes[*p])
        });
        let mut tries: Vec<Counts> = self.kinds[kind]
            .fills
            .iter()
            .map(|fill| fill.iter().zip(counts).map(|(f, c)| *f.min(c)).collect())
            .filter(|fill: &Counts| largest.flatten().is_none_or(|p| fill[p] > 0))
            .collect();
        tries.sort_by_key(|fill| (std::cmp::Reverse(need(fill)), fill.clone()));
        tries.dedup();
        let mut found = false;
        for (i, fill) in tries.iter().enumerate() {
            if tries[..i].iter().any(|more| is_within(fill, more)) {
                continue;
            }
            let rest = counts.iter().zip(fill).map(|(c, f)| c - f).collect();
            found = match bin + 1 < self.bins.len() {
                true => self.from(bin + 1, rest, left)?,
                false => rest.iter().all(|n| *n == 0),
            };
            if found {
                break;
            }
        }
        self.known.insert(key, found);
        Some(found)
    }
}

fn is_within(a: &Counts, b: &Counts) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b)
}

fn fills(occupancy: &Occupancy<'_>, names: &[String]) -> Vec<Counts> {
    let of = |name: &str| names.iter().position(|n| n == name).expect("all are named");
    let mut seen = HashSet::new();
    let mut full = HashSet::new();
    let mut open = vec![(occupancy.clone(), vec![0; names.len()])];
    while let Some((occupancy, counts)) = open.pop() {
        let mut more = false;
        for profile in &occupancy.gpu.profiles {
            for at in occupancy.places(profile) {
                more = true;
                let mut next = counts.clone();
                next[of(&profile.name)] += 1;
                let with = occupancy.with(profile, at);
                if seen.insert((with.free(), next.clone())) {
                    open.push((with, next));
                }
            }
        }
        if !more {
            full.insert(counts);
        }
    }
    let is_most = |a: &&Counts| !full.iter().any(|b| b != *a && is_within(a, b));
    let mut most: Vec<Counts> = full.iter().filter(is_most).cloned().collect();
    most.sort();
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::tests::{machine, named, slot, take};

    fn several(text: &str) -> Alternative {
        crate::request::alternatives(text).unwrap().remove(0)
    }

    fn places(snapshot: &Snapshot, reserved: &[Slot], text: &str) -> Vec<(u32, u32)> {
        let found =
            choose_several(snapshot, reserved, &several(text), &Constraints::default()).unwrap();
        { found.iter() }
            .map(|d| (d.gpu.index, d.placement.start))
            .collect()
    }

    #[test]
    fn prefers_a_gpu_for_each_slice() {
        let m = machine(2);
        let five = places(&m, &[], "1g.10gb*5");
        assert_ne!(five[0].0, five[1].0, "{five:?}");
        let full = slot(0, 0, 0, 8);
        assert_eq!(places(&m, &[full], "3g.40gb*2"), [(1, 4), (1, 0)]);
    }

    #[test]
    fn selects_all_slices_or_none() {
        let m = machine(2);
        let request = several("4g.40gb*3");
        let never = *choose_several(&m, &[], &request, &Constraints::default()).unwrap_err();
        assert!(never.selection.own_gpus.is_empty());
        let too_many = Obstacle::TooMany {
            gpus: 2,
            profile: "4g.40gb".into(),
            most: 2,
        };
        assert_eq!(never.rejection, Rejection::of(&request, 0, too_many));
        let request = several("4g.40gb*2");
        let half = slot(0, 0, 3, 1);
        let now = *choose_several(&m, &[half], &request, &Constraints::default()).unwrap_err();
        assert_eq!(now.selection.own_gpus, ["GPU-1".into()]);
        let [first] = now.rejection.causes() else {
            panic!("{now:?}");
        };
        assert_eq!((first.request.count(), first.found), (2, 1));
        assert!(now.rejection.may_pass(), "{now:?}");
    }

    #[test]
    fn selects_different_slices() {
        let m = machine(2);
        let starts = places(&m, &[], "1g.10gb&3g.40gb*2");
        assert_ne!(starts[0].0, starts[1].0, "{starts:?}");
        let full = slot(0, 0, 0, 8);
        let look = |text: &str| {
            let request = several(text);
            let wanted = Constraints::default();
            choose_several(&m, std::slice::from_ref(&full), &request, &wanted)
        };
        assert_eq!(look("2g.20gb&4g.40gb&1g.10gb").unwrap().len(), 3);
        let now = look("4g.40gb&3g.40gb&1g.10gb").unwrap_err().rejection;
        let [cause] = now.causes() else {
            panic!("{now:?}");
        };
        assert_eq!((cause.found, cause.slice()), (2, &named("1g.10gb")));
        assert!(now.may_pass(), "{now:?}");
        // Each kind fits on the empty machine, and not all together.
        for text in ["7g.80gb*2&1g.10gb", "7g.80gb&4g.40gb&4g.40gb"] {
            let never = look(text).unwrap_err().rejection;
            assert!(!never.may_pass(), "{never:?}");
        }
        let unknown = look("4g.40gb&1g.5gb").unwrap_err().rejection;
        assert!(!unknown.may_pass(), "{unknown:?}");
        assert_eq!(unknown.causes()[0].slice(), &named("1g.5gb"));
    }

    /// An idle slice is handed out once.
    #[test]
    fn counts_idle_slice_once() {
        let mut m = machine(1);
        let (_, _, at) = take(&mut m, &named("2g.20gb")).unwrap();
        let idle = [slot(0, 14, at.start, at.size)];
        let constraints = Constraints {
            idle: &idle,
            ..Constraints::default()
        };
        let found = choose_several(&m, &[], &several("2g.20gb*3"), &constraints).unwrap();
        let mut starts: Vec<u32> = found.iter().map(|d| d.placement.start).collect();
        assert!(starts[0] == at.start && found.iter().all(|d| d.evicts.is_empty()));
        starts.sort();
        assert_eq!(starts, [0, 2, 4]);
    }

    /// The idle slice that goes for the first slice makes room for the next too.
    #[test]
    fn evicted_slice_makes_room_for_all() {
        let mut m = machine(1);
        let (_, _, at) = take(&mut m, &named("3g.40gb")).unwrap();
        take(&mut m, &named("4g.40gb")).unwrap();
        let idle = [slot(0, 9, at.start, at.size)];
        let constraints = Constraints {
            idle: &idle,
            ..Constraints::default()
        };
        let found = choose_several(&m, &[], &several("1g.10gb*3"), &constraints).unwrap();
        assert_eq!(found[0].evicts, [idle[0].placement]);
        assert!(found[1..].iter().all(|d| d.evicts.is_empty()));
        let mut starts: Vec<u32> = found.iter().map(|d| d.placement.start).collect();
        starts.sort();
        starts.dedup();
        assert!(starts.len() == 3 && starts[0] >= 4, "{starts:?}");
    }

    #[test]
    fn counts_more_than_255_slices() {
        let machine = machine(40);
        let occupancies: Vec<Occupancy<'_>> = { machine.gpus.iter() }
            .map(|gpu| Occupancy::new(gpu, &[], &[]))
            .collect();
        let holds = |occupancies: &[Occupancy<'_>], count| {
            Packer::new(occupancies, 10_000).holds(std::iter::repeat_n("1g.10gb", count))
        };
        assert_eq!(holds(&occupancies, 280), Some(true));
        assert_eq!(holds(&occupancies, 281), Some(false));
        // A count of 256 wrapped to 0 once.
        assert_eq!(holds(&occupancies[..1], 256), Some(false));
    }
}
