//! Several slices for one container: all of them or none, on GPUs of their own as far as possible.

use super::choose::choose_one;
use super::diagnosis;
use super::occupancy::Slot;
use super::plan::Decision;
use super::plan::{Constraints, fitting, usable};
use super::rejection::{Cause, Rejection};
use crate::model::{GpuUuid, Placement, Snapshot};
use crate::request::Alternative;

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
        let (evicted, left) = std::mem::take(&mut self.idle).into_iter().partition(goes);
        let evicted: Vec<Slot> = evicted;
        self.evicted.extend(evicted);
        self.idle = left;
        self.idle.retain(|r| *r != slot);
        self.own_gpus.push(slot.gpu.clone());
        self.reserved.push(slot);
    }
}

/// The rejection of a request, and the slots that were selected before one was missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub(crate) selection: Selection,
    /// The reason for which the request gets no slot.
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
    if let Some(rejection) = never_several(snapshot, request, constraints) {
        return Err(Box::new(Diagnosis {
            selection,
            rejection,
        }));
    }
    let mut found = Vec::new();
    for _ in 0..request.count {
        let one = selection.constraints(constraints);
        match choose_one(snapshot, &selection.reserved, &request.slice, &one) {
            Ok(decision) => {
                selection.add(decision.slot(), &decision.evicts);
                found.push(decision);
            }
            Err(obstacle) => {
                let cause = Cause {
                    request: request.clone(),
                    found: found.len(),
                    obstacle,
                };
                let rejection = cause.into();
                return Err(Box::new(Diagnosis {
                    selection,
                    rejection,
                }));
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
    let usable = usable(snapshot, constraints);
    let fitting = fitting(&usable, &request.slice, constraints);
    let most: u32 = fitting.iter().map(|(_, p)| p.max_instances).sum();
    // An unreadable GPU may hold the rest.
    let is_all = snapshot.unreadable.is_empty() && !fitting.is_empty();
    let never = request.count > 1 && is_all && most < request.count;
    never.then(|| {
        let cause = Cause {
            request: request.clone(),
            found: 0,
            obstacle: diagnosis::too_many(&fitting, most),
        };
        cause.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::rejection::Obstacle;
    use crate::placement::tests::{machine, named, take};

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
    fn prefers_a_gpu_for_each_slice() {
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
        let cause = |request: &Alternative, found, obstacle| Cause {
            request: request.clone(),
            found,
            obstacle,
        };
        let expected = Rejection::Unsatisfiable(vec![cause(&request, 0, too_many)]);
        assert_eq!(never.rejection, expected);
        let request = several("4g.40gb*2");
        let half = Slot {
            gpu: "GPU-0".into(),
            profile_id: 0,
            placement: Placement { start: 3, size: 1 },
        };
        let now = *choose_several(&m, &[half], &request, &Constraints::default()).unwrap_err();
        assert_eq!(now.selection.own_gpus, ["GPU-1".into()]);
        let [first] = now.rejection.causes() else {
            panic!("{now:?}");
        };
        assert_eq!((first.request.count, first.found), (2, 1));
        assert!(matches!(now.rejection, Rejection::NoCapacity(_)), "{now:?}");
    }

    /// An idle slice is handed out once.
    #[test]
    fn counts_idle_slice_once() {
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

    /// The idle slice that goes for the first slice makes room for the next too.
    #[test]
    fn evicted_slice_makes_room_for_all() {
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
