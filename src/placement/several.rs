//! Several slices for one container: all of them or none, on GPUs of their own as far as possible.

use super::choose::choose;
use super::constraints::{Constraints, fitting, usable};
use super::diagnosis;
use super::occupancy::Slot;
use super::plan::Decision;
use super::rejection::Rejection;
use crate::model::{Placement, Snapshot};
use crate::request::Alternative;

/// The room that one slot after the other has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub reserved: Vec<Slot>,
    /// The idle slices that are left, and those that have to be destroyed.
    pub idle: Vec<Slot>,
    pub evicted: Vec<Slot>,
    /// The GPUs.
    pub own_gpus: Vec<String>,
}

impl Selection {
    pub fn before(reserved: &[Slot], idle: &[Slot]) -> Self {
        Selection {
            reserved: reserved.to_vec(),
            idle: idle.to_vec(),
            evicted: Vec::new(),
            own_gpus: Vec::new(),
        }
    }

    pub fn constraints<'a>(&'a self, constraints: &Constraints<'a>) -> Constraints<'a> {
        Constraints {
            idle: &self.idle,
            evicted: &self.evicted,
            own_gpus: &self.own_gpus,
            ..*constraints
        }
    }

    /// A place, and those of the idle slices on its GPU that go for it.
    pub fn take(&mut self, place: Slot, evicts: &[Placement]) {
        let goes = |r: &Slot| r.gpu == place.gpu && evicts.contains(&r.placement);
        let (evicted, left) = std::mem::take(&mut self.idle).into_iter().partition(goes);
        let evicted: Vec<Slot> = evicted;
        self.evicted.extend(evicted);
        self.idle = left;
        self.idle.retain(|r| *r != place);
        self.own_gpus.push(place.gpu.clone());
        self.reserved.push(place);
    }
}

/// A place for each, chosen one after the other; else what there was before the one that has none,
/// and why it has none.
pub fn choose_several<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Slot],
    request: &Alternative,
    constraints: &Constraints<'_>,
) -> Result<Vec<Decision<'a>>, Box<(Selection, Rejection)>> {
    let mut taken = Selection::before(reserved, constraints.idle);
    if let Some(never) = never_several(snapshot, request, constraints) {
        return Err(Box::new((taken, never)));
    }
    let mut found = Vec::new();
    for _ in 0..request.count {
        let one = Constraints {
            alternatives: std::slice::from_ref(&request.slice),
            ..taken.constraints(constraints)
        };
        match choose(snapshot, &taken.reserved, &one) {
            Ok(decision) => {
                taken.take(decision.slot(), &decision.evicts);
                found.push(decision);
            }
            Err(no) => {
                let no = diagnosis::of_several(no, request, found.len());
                return Err(Box::new((taken, no)));
            }
        }
    }
    Ok(found)
}

/// Why this machine never has so many, however empty.
pub fn never_several(
    snapshot: &Snapshot,
    request: &Alternative,
    constraints: &Constraints<'_>,
) -> Option<Rejection> {
    let usable = usable(snapshot, constraints);
    let fitting = fitting(&usable, &request.slice, constraints);
    let most: u32 = fitting.iter().map(|(_, p)| p.max_instances).sum();
    // A GPU that does not answer now may hold the rest.
    let is_all = snapshot.unreadable.is_empty() && !fitting.is_empty();
    let never = request.count > 1 && is_all && most < request.count;
    never.then(|| diagnosis::never_so_many(&fitting, request, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::tests::{machine, named, take, words};

    fn several(text: &str) -> Alternative {
        crate::request::alternatives(text)
            .unwrap()
            .unwrap()
            .remove(0)
    }

    fn places(snapshot: &Snapshot, reserved: &[Slot], text: &str) -> Vec<(u32, u32)> {
        let found =
            choose_several(snapshot, reserved, &several(text), &Constraints::default()).unwrap();
        { found.iter() }
            .map(|d| (d.gpu.index, d.placement.start))
            .collect()
    }

    #[test]
    fn several_lie_on_gpus_of_their_own_first() {
        let m = machine(2);
        let five = places(&m, &[], "1g.10gb*5");
        assert_ne!(five[0].0, five[1].0, "{five:?}");
        let full = Slot {
            gpu: "GPU-0".into(),
            profile_id: 0,
            placement: Placement { start: 0, size: 8 },
        };
        assert_eq!(places(&m, &[full], "3g.40gb*2"), [(1, 4), (1, 0)]);
    }

    #[test]
    fn several_or_none() {
        let m = machine(2);
        let request = several("4g.40gb*3");
        let (taken, never) =
            *choose_several(&m, &[], &request, &Constraints::default()).unwrap_err();
        assert!(matches!(never, Rejection::Unsatisfiable { .. }) && taken.own_gpus.is_empty());
        assert_eq!(
            words(never),
            "4g.40gb*3: 2 GPUs hold 2 of 4g.40gb at most; hint: ask for fewer"
        );
        let request = several("4g.40gb*2");
        let half = Slot {
            gpu: "GPU-0".into(),
            profile_id: 0,
            placement: Placement { start: 3, size: 1 },
        };
        let (taken, no) =
            *choose_several(&m, &[half], &request, &Constraints::default()).unwrap_err();
        assert_eq!(taken.own_gpus, ["GPU-1"]);
        let line = words(no);
        assert!(
            line.starts_with(
                "4g.40gb*2: there is room for 1 of 2, and then no room for 4g.40gb on 2 GPUs: "
            ),
            "{line}"
        );
    }

    /// One idle slice is not handed out twice.
    #[test]
    fn an_idle_slice_is_one_of_several() {
        let mut m = machine(1);
        let (_, _, at) = take(&mut m, &named("2g.20gb")).unwrap();
        let idle = [Slot {
            gpu: "GPU-0".into(),
            profile_id: m.gpus[0].instances[0].profile_id,
            placement: at,
        }];
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

    /// A slice that goes for the first makes room for the next too.
    #[test]
    fn an_idle_slice_that_goes_is_room_for_all_of_them() {
        let mut m = machine(1);
        let idle = [("3g.40gb", true), ("4g.40gb", false)].map(|(name, is_idle)| {
            let (_, _, placement) = take(&mut m, &named(name)).unwrap();
            let profile_id = m.gpus[0].instances.last().unwrap().profile_id;
            let gpu = "GPU-0".into();
            let place = Slot {
                gpu,
                profile_id,
                placement,
            };
            is_idle.then_some(place)
        });
        let idle: Vec<Slot> = idle.into_iter().flatten().collect();
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
}
