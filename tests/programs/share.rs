//! Shares of the memory of GPUs that are not in MIG mode, in containers and at once. The session shares has the rest.

use runmig_lease::store::{LeaseState, Store};
use testkit::prelude::*;
use testkit::sharing::{mixed, shares};

const SHARE: &str = "runmig.dev/share";
const NONE: &str = "sharing.enforcement = [\"none\"]";
/// The memory that an L4 gives out, in MiB.
const L4: u64 = 22_522;

fn on(low: Low, machine: Machine) -> Setup {
    let setup = Setup::on(low, machine);
    setup.configure(NONE);
    setup
}

/// A container has the nodes of its GPU alone, and the share in its environment.
fn gives_share(low: Low) {
    let setup = on(low, mixed());
    let one = setup.gives(&[(SHARE, "8Gi")]);

    // The next container shares the GPU, and sees its share.
    let second = setup.bundle(&format!("{SHOW}; env"));
    second.annotate(SHARE, "1/4");
    second.set_env(&[
        "CUDA_MPS_PIPE_DIRECTORY=/x",
        "NVIDIA_GPU_MEMORY_LIMIT=9",
        "RUNMIG_GPU_MEMORY=1",
    ]);
    let said = setup.run(&second);
    let uuid = setup.machine.gpu_uuid(1);
    assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
    let seen: Vec<String> = nodes(&said.stdout).into_keys().collect();
    assert!(seen.contains(&"nvidia1".to_owned()) && !seen.contains(&"nvidia0".to_owned()));
    assert!(!seen.iter().any(|node| node.contains("caps")), "{seen:?}");
    said.says(&format!("RUNMIG_GPU_MEMORY={}\n", (L4 / 4) << 20));
    said.says("RUNMIG_GPU_MEMORY_FRACTION=0.2499\n");
    for gone in [
        "CUDA_MPS_PIPE_DIRECTORY",
        "NVIDIA_GPU_MEMORY_LIMIT",
        "RUNMIG_GPU_MEMORY=1\n",
    ] {
        lacks(&said.stdout, gone);
    }
    assert_eq!(shares(&setup), [(1, 8192)]);
    setup.ends(&[&one]);
}

testkit::tests! {
    runc_gives_share: gives_share(Low::Runc);
    crun_gives_share: gives_share(Low::Crun);
}

/// Memory of the container's own processes is not taken twice, and the list shows it.
#[test]
fn own_memory_is_not_foreign() {
    let setup = on(Low::Runc, Machine::with(&["--gpu", "L4"]));
    let id = setup.gives(&[(SHARE, "8Gi")]);
    let init = setup.the_lease()["initPid"].as_u64().unwrap();
    let hold = |memory: &str| {
        let hold = setup.machine.hold(&["--gpu", "0", "--memory", memory]);
        move_beside(hold.pid(), init);
        hold
    };
    let used = || {
        let lease = setup.the_lease();
        ["usedBytes", "overBytes"].map(|key| lease[key].as_u64().map(|bytes| bytes >> 30))
    };
    assert_eq!(used(), [Some(0), Some(0)]);
    let first = hold("3Gi");
    assert_eq!(used(), [Some(3), Some(0)]);
    assert_eq!(setup.items(&["gpus"])[0]["foreignBytes"], 0);
    let second = hold("7Gi");
    assert_eq!(used(), [Some(10), Some(2)]);
    setup.migctl(&["list"]).ok().says("10240Mi");
    let other = setup.gives(&[(SHARE, "12Gi")]);
    first.kill();
    second.kill();
    setup.ends(&[&other, &id]);
}

/// An instance whose last lease is on its way out takes no new one, and its memory stays booked until then.
#[test]
fn joins_no_instance_that_goes() {
    let world = World::with_whole_gpus();
    world.configure(NONE);
    let creates = |id: &str| drop(world.create_saying(id, &[(SHARE, "1/4")]));
    creates("one");
    world.abandon("one");
    let store = Store::open(&world.state(), Duration::from_secs(10)).unwrap();
    let going = store.list().unwrap().held().next().unwrap().lease.clone();
    let ledger = store.lock("test").unwrap();
    let released = ledger.update_lease(&going, |lease| lease.state = LeaseState::Releasing);
    released.unwrap();
    drop(ledger);
    creates("two");
    let listing = store.list().unwrap();
    let instances: BTreeSet<_> = listing
        .held()
        .map(|held| held.instance.id.to_string())
        .collect();
    assert_eq!((instances.len(), world.leases().len()), (2, 2));
    world.nothing_lost_nothing_given_twice().unwrap();
    world.gc().ok();
    world.has_its_slices("two").unwrap();
    world.delete("two");
    let left = world.records();
    assert!(left.is_empty(), "{left:?}");
}

/// Creates at once book no memory twice: nine shares of 8Gi fit on an H100.
/// Failure: creates of shares at once
#[test]
fn serves_200_creates_on_72_shares() {
    let world = World::of(("H100-80GB", "1g.10gb", 7), 8);
    (0..8).for_each(|gpu| world.switch_mig_off(gpu));
    // A busy machine serves them for long.
    world.configure(&format!("lock_timeout = \"120s\"\n{NONE}"));
    let ids: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    for id in &ids {
        world.bundle_saying(id, &[(SHARE, "8Gi")]);
    }
    let (made, refused) = world.create_at_once(&ids);
    let why = "no GPU has room for it (GPU 0: 7351Mi of 81079Mi is free beside";
    refused.iter().for_each(|line| has(line, why));
    assert_eq!((made.len(), refused.len()), (72, 128));
    world.nothing_lost_nothing_given_twice().unwrap();
    for gpu in &world.engine().gpus {
        let leases = world.leases();
        let here = leases.iter().filter(|l| l["gpuUUID"] == gpu.uuid.as_str());
        assert_eq!(here.count(), 9);
    }
    // And back, all at once.
    world.delete_at_once(&made);
    let left = world.records();
    assert!(left.is_empty(), "{left:?}");
}
