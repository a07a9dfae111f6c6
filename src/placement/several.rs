//! Several slices for one container: all of them or none, on GPUs of their own as far as possible.

use super::choose::choose;
use super::constraints::{Wanted, fitting, usable};
use super::diagnosis;
use super::occupancy::Reserved;
use super::plan::Decision;
use super::rejection::NoRoom;
use crate::model::{Placement, Snapshot};
use crate::request::Alternative;

/// What one after the other has taken of the room that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub reserved: Vec<Reserved>,
    /// Of the idle slices, those that are left, and those that have to be destroyed.
    pub idle: Vec<Reserved>,
    pub gone: Vec<Reserved>,
    /// The GPUs.
    pub beside: Vec<String>,
}

impl Taken {
    pub fn before(reserved: &[Reserved], idle: &[Reserved]) -> Self {
        Taken {
            reserved: reserved.to_vec(),
            idle: idle.to_vec(),
            gone: Vec::new(),
            beside: Vec::new(),
        }
    }

    pub fn wanted<'a>(&'a self, wanted: &Wanted<'a>) -> Wanted<'a> {
        Wanted {
            idle: &self.idle,
            gone: &self.gone,
            beside: &self.beside,
            ..*wanted
        }
    }

    /// A place, and those of the idle slices on its GPU that go for it.
    pub fn take(&mut self, place: Reserved, evicts: &[Placement]) {
        let goes = |r: &Reserved| r.gpu == place.gpu && evicts.contains(&r.placement);
        let (gone, left) = std::mem::take(&mut self.idle).into_iter().partition(goes);
        let gone: Vec<Reserved> = gone;
        self.gone.extend(gone);
        self.idle = left;
        self.idle.retain(|r| *r != place);
        self.beside.push(place.gpu.clone());
        self.reserved.push(place);
    }
}

/// A place for each, chosen one after the other; else what there was before the one that has none,
/// and why it has none.
pub fn choose_several<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Reserved],
    asked: &Alternative,
    wanted: &Wanted<'_>,
) -> Result<Vec<Decision<'a>>, Box<(Taken, NoRoom)>> {
    let mut taken = Taken::before(reserved, wanted.idle);
    if let Some(never) = never_several(snapshot, asked, wanted) {
        return Err(Box::new((taken, never)));
    }
    let mut found = Vec::new();
    for _ in 0..asked.count {
        let one = Wanted {
            alternatives: std::slice::from_ref(&asked.slice),
            ..taken.wanted(wanted)
        };
        match choose(snapshot, &taken.reserved, &one) {
            Ok(decision) => {
                taken.take(decision.place(), &decision.evicts);
                found.push(decision);
            }
            Err(no) => {
                let no = diagnosis::of_several(no, asked, found.len());
                return Err(Box::new((taken, no)));
            }
        }
    }
    Ok(found)
}

/// Why this machine never has so many, however empty.
pub fn never_several(
    snapshot: &Snapshot,
    asked: &Alternative,
    wanted: &Wanted<'_>,
) -> Option<NoRoom> {
    let usable = usable(snapshot, wanted);
    let fitting = fitting(&usable, &asked.slice, wanted);
    let most: u32 = fitting.iter().map(|(_, p)| p.max_instances).sum();
    // A GPU that does not answer now may hold the rest.
    let is_all = snapshot.unreadable.is_empty() && !fitting.is_empty();
    let never = asked.count > 1 && is_all && most < asked.count;
    never.then(|| diagnosis::never_so_many(&fitting, asked, most))
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

    fn places(snapshot: &Snapshot, reserved: &[Reserved], text: &str) -> Vec<(u32, u32)> {
        let found = choose_several(snapshot, reserved, &several(text), &Wanted::default()).unwrap();
        { found.iter() }
            .map(|d| (d.gpu.index, d.placement.start))
            .collect()
    }

    #[test]
    fn several_lie_on_gpus_of_their_own_first() {
        let m = machine(2);
        let five = places(&m, &[], "1g.10gb*5");
        assert_ne!(five[0].0, five[1].0, "{five:?}");
        let full = Reserved {
            gpu: "GPU-0".into(),
            profile_id: 0,
            placement: Placement { start: 0, size: 8 },
        };
        assert_eq!(places(&m, &[full], "3g.40gb*2"), [(1, 4), (1, 0)]);
    }

    #[test]
    fn several_or_none() {
        let m = machine(2);
        let asked = several("4g.40gb*3");
        let (taken, never) = *choose_several(&m, &[], &asked, &Wanted::default()).unwrap_err();
        assert!(matches!(never, NoRoom::Never { .. }) && taken.beside.is_empty());
        assert_eq!(
            words(never),
            "4g.40gb*3: 2 GPUs hold 2 of 4g.40gb at most; hint: ask for fewer"
        );
        let asked = several("4g.40gb*2");
        let half = Reserved {
            gpu: "GPU-0".into(),
            profile_id: 0,
            placement: Placement { start: 3, size: 1 },
        };
        let (taken, no) = *choose_several(&m, &[half], &asked, &Wanted::default()).unwrap_err();
        assert_eq!(taken.beside, ["GPU-1"]);
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
        let idle = [Reserved {
            gpu: "GPU-0".into(),
            profile_id: m.gpus[0].instances[0].profile_id,
            placement: at,
        }];
        let wanted = Wanted {
            idle: &idle,
            ..Wanted::default()
        };
        let found = choose_several(&m, &[], &several("2g.20gb*3"), &wanted).unwrap();
        let mut starts: Vec<u32> = found.iter().map(|d| d.placement.start).collect();
        assert!(starts[0] == at.start && found.iter().all(|d| d.evicts.is_empty()));
        starts.sort();
        assert_eq!(starts, [0, 2, 4]);
    }

    /// What goes for the first makes room for the next too.
    #[test]
    fn an_idle_slice_that_goes_is_room_for_all_of_them() {
        let mut m = machine(1);
        let idle = [("3g.40gb", true), ("4g.40gb", false)].map(|(name, is_idle)| {
            let (_, _, placement) = take(&mut m, &named(name)).unwrap();
            let profile_id = m.gpus[0].instances.last().unwrap().profile_id;
            let gpu = "GPU-0".into();
            let place = Reserved {
                gpu,
                profile_id,
                placement,
            };
            is_idle.then_some(place)
        });
        let idle: Vec<Reserved> = idle.into_iter().flatten().collect();
        let wanted = Wanted {
            idle: &idle,
            ..Wanted::default()
        };
        let found = choose_several(&m, &[], &several("1g.10gb*3"), &wanted).unwrap();
        assert_eq!(found[0].evicts, [idle[0].placement]);
        assert!(found[1..].iter().all(|d| d.evicts.is_empty()));
        let mut starts: Vec<u32> = found.iter().map(|d| d.placement.start).collect();
        starts.sort();
        starts.dedup();
        assert!(starts.len() == 3 && starts[0] >= 4, "{starts:?}");
    }
}
