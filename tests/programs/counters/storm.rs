//! Many creates and deletes at once, some killed.

use crate::counters::{creates, get};
use runmig_lease::counters::{Actor, Counter, LeaseKind};
use testkit::prelude::*;

pub fn all_releases(world: &World) -> u64 {
    let of = |by: &Actor| get(world, Counter::Releases(LeaseKind::Slice, *by));
    Actor::ALL.iter().map(of).sum()
}

/// A killed process loses its own count at most, and no other's.
#[test]
fn kills_lose_their_own_counts_only() {
    let mut random = Random::new(7);
    let world = World::of(BIG, 8);
    world.configure("lock_timeout = \"120s\"");
    let (mut ended, mut killed) = (0, 0);
    for round in 0..5 {
        let ids: Vec<String> = (0..20).map(|n| format!("r{round}n{n}")).collect();
        let creates: Vec<Going> = ids.iter().map(|id| world.creating(id)).collect();
        for (n, create) in creates.into_iter().enumerate() {
            if n % 10 == 9 {
                // At any moment of its work.
                std::thread::sleep(Duration::from_micros(random.below(60_000)));
                create.signal(Signal::SIGKILL);
                create.end();
                killed += 1;
            } else {
                create.end().ok();
                ended += 1;
            }
        }
        let alive = ids.iter().filter(|id| world.living_init(id).is_some());
        let delete = |id| {
            let mut delete = world.runmig(&["delete", "--force", id]);
            going(delete.stdin(Stdio::null()))
        };
        let deletes: Vec<Going> = alive.map(|id| delete(id)).collect();
        deletes.into_iter().for_each(|one| drop(one.end()));
        world.gc();
    }
    let all = creates(&world, LeaseKind::Slice);
    let counted: u64 = all.iter().map(|(_, n)| n).sum();
    for n in [counted, all_releases(&world)] {
        let is_right = (ended..=ended + killed).contains(&n);
        assert!(is_right, "{n} of {ended} + {killed}");
    }
}
