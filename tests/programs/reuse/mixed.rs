//! All of it together, at random, with who dies and who comes late; after every step nothing is lost
//! and nothing given twice.

use crate::reuse::create_in;
use testkit::prelude::*;

const STEPS: usize = 60;

fn walk(seed: u64) {
    let mut random = Random::new(seed);
    let world = World::small();
    world.configure("keep_idle = \"5m\"\nadopt = true");
    world.admin_leaves(0, world.profile, 0);
    let mut living: Vec<String> = Vec::new();
    let mut done = Vec::new();
    for next in 0..STEPS {
        let pick = random.below(10);
        let one = (!living.is_empty()).then(|| random.below(living.len() as u64) as usize);
        let step = match (pick, one) {
            (0..=2, _) => {
                let id = format!("c{next}");
                let profile = random.of(&["1g.6gb", "1g.6gb", "2g.12gb"]);
                world.bundle_asking(&id, profile);
                let made = said(&mut world.create_command(&id)).status.success();
                made.then(|| living.push(id.clone()));
                format!("create {id} {profile}: {made}")
            }
            (3..=4, _) => {
                let (id, pod) = (format!("c{next}"), format!("p{}", random.below(2)));
                let made = create_in(&world, &pod, &id).status.success();
                made.then(|| living.push(id.clone()));
                format!("create {id} in {pod}: {made}")
            }
            (5..=6, Some(one)) => {
                let id = living.swap_remove(one);
                world.delete(&id);
                format!("delete {id}")
            }
            (7, Some(one)) => {
                let id = living.swap_remove(one);
                world.abandon(&id);
                format!("abandon {id}")
            }
            (8, _) => {
                world.gc().ok();
                "gc".to_owned()
            }
            _ => {
                let keep = random.of(&["0s", "5m", "5m"]);
                world.configure(&format!("keep_idle = \"{keep}\"\nadopt = true"));
                format!("keep_idle = {keep}")
            }
        };
        done.push(step);
        if let Err(e) = world.nothing_lost_nothing_given_twice() {
            panic!("seed {seed}: {e}\nafter {done:#?}");
        }
        for id in &living {
            assert!(world.living_init(id).is_some());
            let uuid = world.uuid_in_bundle(id);
            let there = world.instances().into_iter().flat_map(|i| i.uuids);
            assert!(
                { there }.any(|u| Some(u) == uuid),
                "seed {seed}: {id} lost its slice: {done:#?}"
            );
        }
    }
    world.delete_all(&living);
    world.configure("");
    world.gc().ok();
    world
        .as_if_nothing_had_been()
        .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{done:#?}"));
}

#[test]
fn mixes_reuse_at_random() {
    for seed in 1..=4 {
        walk(seed * 7919);
    }
}
