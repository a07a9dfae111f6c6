//! The instances whose end would give a profile a place on a GPU: the fewest, and first those that end one day.

use super::occupancy::{Occupancy, Occupant};
use crate::model::{Placement, Profile};
use std::cmp::Reverse;

/// Returns them, by their places. Empty if no end of others makes room. `ends`: whether an occupant ends without an
/// administrator.
pub(super) fn in_the_way(
    occupancy: &Occupancy<'_>,
    profile: &Profile,
    ends: impl Fn(&Occupant) -> bool,
) -> Vec<Occupant> {
    let rank = |l: &Occupant| (!ends(l), Reverse(l.at.size), l.at.start);
    let of_place = |at: &Placement| {
        let none = std::iter::empty();
        let mut going = occupancy.in_the_way(profile, *at, none, occupancy.taken(), rank)?;
        going.sort_by_key(|l| l.at.start);
        Some(going)
    };
    let found = profile.placements.iter().filter_map(of_place);
    let cost = |going: &Vec<Occupant>| {
        let stays = going.iter().filter(|l| !ends(l)).count();
        let size: u32 = going.iter().map(|l| l.at.size).sum();
        (stays, going.len(), size)
    };
    found.min_by_key(cost).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::tests::gpu;
    use proptest::prelude::*;
    use proptest::sample::Index;

    proptest! {
        /// Over random contents of a GPU the answer makes room, and no other set of occupants does so that has fewer
        /// which stay, or as many of these and fewer in all.
        #[test]
        fn names_fewest(
            asked in any::<Index>(),
            filling in prop::collection::vec((any::<Index>(), any::<Index>()), 0..12),
            foreign in any::<u8>(),
        ) {
            let gpu = gpu(0);
            let mut on = Occupancy::empty(&gpu);
            for (profile, place) in filling {
                let profile = profile.get(&gpu.profiles);
                let places: Vec<Placement> = on.places(profile).collect();
                if !places.is_empty() {
                    on = on.with(profile, *place.get(&places));
                }
            }
            let profile = asked.get(&gpu.profiles);
            let ends = |l: &Occupant| foreign >> l.at.start & 1 == 0;
            let has_room = |goes: &dyn Fn(&Occupant) -> bool| {
                let mut without = on.clone();
                without.occupants.retain(|l| !goes(l));
                without.places(profile).next().is_some()
            };
            let cost = |set: &[Occupant]| (set.iter().filter(|l| !ends(l)).count(), set.len());
            let sets = 0u32..1 << on.occupants.len();
            let members = |set: u32| -> Vec<Occupant> {
                let all = on.occupants.iter().enumerate();
                all.filter(|(n, _)| set >> n & 1 == 1).map(|(_, l)| *l).collect()
            };
            let enough = sets.map(members).filter(|set| has_room(&|l| set.contains(l)));
            let best = enough.map(|set| cost(&set)).min().unwrap();
            let found = in_the_way(&on, profile, ends);
            prop_assert!(has_room(&|l| found.contains(l)), "{found:?}");
            prop_assert_eq!(cost(&found), best);
        }
    }
}
