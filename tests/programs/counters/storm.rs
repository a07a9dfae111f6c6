//! Many creates and deletes at once, some killed.

use crate::counters::{creates, get};
use runmig_lease::counters::{Actor, Counter, LeaseKind, Outcome};
use runmig_lease::events::{Event, History};
use testkit::prelude::*;

fn start(mut command: Command) -> Going {
    going(command.stdin(Stdio::null()))
}

fn all_releases(world: &World) -> u64 {
    let of = |by: &Actor| get(world, Counter::Releases(LeaseKind::Slice, *by));
    Actor::ALL.iter().map(of).sum()
}

/// The events of creates and releases, which equal the counters.
fn written(world: &World) -> Vec<(&'static str, u64)> {
    let mut history = History::new(&world.state().join("events.jsonl"));
    let mut counts = [("ready", 0), ("refused", 0), ("released", 0)];
    let mut count = |event: Event| {
        let word = event.event_type.word();
        for (_, n) in counts.iter_mut().filter(|(of, _)| *of == word) {
            *n += 1;
        }
    };
    history.read(true, &mut count).unwrap();
    assert_eq!(history.unreadable(), 0);
    counts.into_iter().filter(|(_, n)| *n > 0).collect()
}

#[test]
fn counts_are_exact_under_200_creates() {
    let world = World::of(BIG, 8);
    // On a busy machine the last one waits for long.
    world.configure("lock_timeout = \"120s\"");
    let ids: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    let all: Vec<Going> = ids
        .iter()
        .map(|id| start(world.create_command(id)))
        .collect();
    let ended = all.into_iter().map(Going::end);
    let (made, refused): (Vec<Said>, Vec<Said>) = ended.partition(|said| said.status.success());
    for said in refused {
        said.refused_for("memory slices are free");
    }
    let made = made.len() as u64;
    let expected = [(Outcome::Created, made), (Outcome::Full, 200 - made)];
    assert_eq!(creates(&world, LeaseKind::Slice), expected);
    assert_eq!(written(&world), [("ready", made), ("refused", 200 - made)]);
    let alive = ids.iter().filter(|id| world.living_init(id).is_some());
    let all: Vec<Going> = { alive }
        .map(|id| start(world.runmig(&["delete", "--force", id])))
        .collect();
    all.into_iter().for_each(|one| drop(one.end().ok()));
    assert_eq!(all_releases(&world), made);
    assert_eq!(written(&world).last(), Some(&("released", made)));
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
        let creates: Vec<Going> = ids
            .iter()
            .map(|id| start(world.create_command(id)))
            .collect();
        for (n, create) in creates.into_iter().enumerate() {
            if n % 10 == 9 {
                // At any moment of its work.
                std::thread::sleep(std::time::Duration::from_micros(random.below(60_000)));
                create.signal(Signal::SIGKILL);
                create.end();
                killed += 1;
            } else {
                create.end().ok();
                ended += 1;
            }
        }
        let alive = ids.iter().filter(|id| world.living_init(id).is_some());
        let deletes: Vec<Going> = { alive }
            .map(|id| start(world.runmig(&["delete", "--force", id])))
            .collect();
        deletes.into_iter().for_each(|one| drop(one.end()));
        world.gc();
    }
    let all = creates(&world, LeaseKind::Slice);
    let counted: u64 = all.iter().map(|(_, n)| n).sum();
    assert!(
        (ended..=ended + killed).contains(&counted),
        "{counted} of {ended} + {killed}"
    );
    let released = all_releases(&world);
    assert!(
        (ended..=ended + killed).contains(&released),
        "{released} of {ended} + {killed}"
    );
}
