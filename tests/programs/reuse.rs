//! Slices that are not made but there already: kept after a container, made by an administrator, or another container's of the
//! pod. Sessions have the rest: idle, adopted and pods.

use testkit::prelude::*;

/// The driver calls of a command that change something.
fn changes(world: &World, during: impl FnOnce()) -> Vec<String> {
    let mut calls = world.driver_calls(during);
    calls.retain(|call| call.contains("Create") || call.contains("Destroy"));
    calls
}

/// A hook has marked the lease as *releasing* and is about to keep the slice; what is releasing is
/// anybody's to destroy, and somebody does.
#[test]
fn never_keeps_instance_being_destroyed() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.create("a");
    let lease = world.abandon("a");
    let (bundle, log) = (world.path("bundles").join("a"), world.path("log"));
    // Between the two it puts config.json back, which is its one rename in the bundle.
    let within = ["-o", log.to_str().unwrap(), "-P", bundle.to_str().unwrap()];
    let stops = ["-e", "inject=renameat:signal=STOP:when=1"];
    let hook = world.hook("a", &lease);
    let traced = strace::traced(&hook, &[&within[..], &stops].concat()).going();
    until("the hook stands still", || {
        let log = fs::read_to_string(&log);
        log.is_ok_and(|log| log.contains("--- stopped by SIGSTOP ---"))
    });
    assert_eq!(world.lease_of("a")["state"], "releasing");

    world.takes("nvmlComputeInstanceDestroy", 1000);
    let gc = going(&mut world.migctl(&["gc"]));
    until("one of them has the GPU", || {
        let lock = File::open(world.gpu_lock(0));
        lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    });
    strace::go_on(&traced);
    traced.end().ok();
    gc.end().ok();
    world.no_faults();
    let leases = world.leases();
    assert_eq!(leases.len(), world.instances().len(), "{leases:#?}");
    world.tidy_up(&[]);
}

/// Eight containers of two pods at once, and back at once: two instances, each made and destroyed once.
/// Failure: containers that share a slice come and go at once
#[test]
fn shares_among_concurrent_creates() {
    let world = World::small();
    // So that many come while the first is at it.
    world.takes("nvmlGpuInstanceCreateComputeInstance", 100);
    world.takes("nvmlGpuInstanceDestroy", 50);
    for round in 0..3 {
        let ids: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
        for (n, id) in ids.iter().enumerate() {
            world.bundle_in_pod(id, world.profile, &format!("p{}", n % 2));
        }
        let made = changes(&world, || {
            let (_, refused) = world.create_at_once(&ids);
            assert_eq!(refused, [""; 0]);
        });
        assert_eq!(made.len(), 4, "{round}: {made:?}");
        assert_eq!(world.instances().len(), 2);
        world.nothing_lost_nothing_given_twice().unwrap();
        let destroyed = changes(&world, || world.delete_at_once(&ids));
        assert_eq!(destroyed.len(), 4, "{round}: {destroyed:?}");
        world.as_if_nothing_had_been().unwrap();
    }
}

const STEPS: usize = 60;

/// All of it together, with who dies and who comes late; after every step nothing is lost and nothing given twice.
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
                world.bundle_in_pod(&id, world.profile, &pod);
                let made = said(&mut world.create_command(&id)).status.success();
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
