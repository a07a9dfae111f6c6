//! Shares of the memory of GPUs that are not in MIG mode.

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

fn gives_share(low: Low) {
    let setup = on(low, mixed());
    let one = setup.gives(&[(SHARE, "8Gi")]);
    let lease = setup.the_lease();
    assert_eq!(lease["gpuUUID"], setup.machine.gpu_uuid(1).as_str());
    assert_eq!(lease["memoryBytes"], 8u64 << 30);
    assert_eq!(lease["bookedBytes"], 8u64 << 30);
    setup
        .migctl(&["list"])
        .ok()
        .says("share 8192Mi")
        .says("none");

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

/// All parts of a GPU fit on it, and no more.
#[test]
fn parts_fill_gpu() {
    let setup = on(Low::Runc, Machine::with(&["--gpu", "L4"]));
    let ids: Vec<String> = (0..3).map(|_| setup.gives(&[(SHARE, "1/3")])).collect();
    let line = setup.refused(&setup.bundle_with(&[(SHARE, "1Gi")]));
    let free = L4 - L4 / 3 * 3;
    let start = "runmig: cannot allocate a share of 1Gi: no GPU has room for it (GPU 0:";
    begins_with(
        &line,
        &format!("{start} {free}Mi of {L4}Mi is free beside containers "),
    );
    let end = " and 1 more); hint: run migctl list to see who shares the GPUs, or set runmig.dev/wait to wait";
    ends_with(&line, end);
    assert_eq!(ids.iter().filter(|id| line.contains(*id)).count(), 2);
    setup.ends(&ids);
}

/// A share goes where it leaves the largest rest: best fit, and no GPU that could do MIG without need.
#[test]
fn chooses_best_fit() {
    let setup = on(Low::Runc, mixed());
    let large = setup.gives(&[(SHARE, "40Gi")]);
    let small = setup.gives(&[(SHARE, "16Gi")]);
    assert_eq!(shares(&setup), [(0, 40 << 10), (1, 16 << 10)]);
    let third = setup.gives(&[(SHARE, "5Gi")]);
    let fourth = setup.gives(&[(SHARE, "6Gi")]);
    let all = [(0, 6 << 10), (0, 40 << 10), (1, 5 << 10), (1, 16 << 10)];
    assert_eq!(shares(&setup), all);
    let inspected = setup.tells(&["inspect"]);
    has(&inspected, "46/79.1");
    has(&inspected, "21/21.9");
    let detail = setup.tells(&["inspect", "-d", "--unit", "MiB"]);
    let mut rows = { detail.lines() }.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.first() == Some(&&*small)).unwrap();
    assert_eq!(row[1..], ["-", "0", "16384"]);
    let json = setup.json(&["inspect", "-o", "json"]);
    assert_eq!(json["bookedBytes"], 67u64 << 30);
    assert_eq!(json["items"][1]["use"], "shared");
    setup.migctl(&["gpus"]).ok().says("in 2 shares");
    // A GPU with shares is nobody's alone.
    let why = "have shares of 21504Mi, level none";
    setup.refuses(&[("runmig.dev/gpu", "1")], why);
    setup.ends(&[&large, &small, &third, &fourth]);
}

#[test]
fn bad_requests_change_nothing() {
    let setup = on(Low::Runc, mixed());
    for bad in [
        "0Gi", "512Mi", "8", "1/1", "5/4", "1/0", "1/65", "0.25", "25%", "",
    ] {
        let named = format!("annotation {SHARE}: \"{bad}\" ");
        has(&setup.refuses(&[(SHARE, bad)], &named), "; hint: ");
    }
    let why = "GPU 0: it gives out 81079Mi; GPU 1: it gives out 22522Mi";
    setup.refuses(&[(SHARE, "100Gi"), ("runmig.dev/wait", "10m")], why);
    setup.configure("sharing.enforcement = [\"mps\"]");
    let line = setup.refused(&setup.bundle_with(&[(SHARE, "8Gi")]));
    let control = setup.machine.dir().join("usr/bin/nvidia-cuda-mps-control");
    let wanted = format!(
        "runmig: no permitted level can hold the memory limit of a share (mps: there is no control \
         program {}); hint: as the administrator, fix one of these causes, or add none to sharing.enforcement: then runmig books the memory, and \
         nothing limits it",
        control.display()
    );
    assert_eq!(line, wanted);
}

/// No level would help where each GPU is in MIG mode.
#[test]
fn names_mig_mode_before_levels() {
    for gpus in [1, 2] {
        let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", gpus));
        for levels in ["\"mps\"", "\"driver\", \"mps\""] {
            setup.configure(&format!("sharing.enforcement = [{levels}]"));
            let why = "a share of 8Gi: no GPU has room for it (GPU 0: in MIG mode";
            let line = setup.refuses(&[(SHARE, "8Gi")], why);
            let hint = "hint: ask for a slice of a GPU in MIG mode (runmig.dev/slice)";
            has(&line, hint);
        }
        setup.configure("sharing.enforcement = [\"mps\"]\npolicy.kinds = [\"slice\"]");
        setup.refuses(&[(SHARE, "8Gi")], "policy.kinds");
    }
}

#[test]
fn limits_shares_of_gpu() {
    let setup = on(Low::Runc, mixed());
    setup.configure(&format!("{NONE}\nsharing.shares_per_gpu = 1"));
    let ids = ["1Gi"; 2].map(|size| setup.gives(&[(SHARE, size)]));
    let words = "it has 1 share, as many as it takes (sharing.shares_per_gpu)";
    setup.refuses(&[(SHARE, "1Gi")], words);
    setup.ends(&ids);
}

#[test]
fn compute_modes_keep_shares_away() {
    for (mode, words) in [
        ("prohibited", "its compute mode is Prohibited"),
        ("exclusive-process", "its compute mode is Exclusive_Process"),
    ] {
        let setup = Setup::with(&format!("--gpu L4 --compute-mode {mode}"), NONE);
        setup.refuses(&[(SHARE, "8Gi"), ("runmig.dev/wait", "10m")], words);
    }
}

/// Memory of a process without a lease counts as taken on a shared GPU, and keeps an empty one from shares.
/// Failure: a process without a lease computes on a GPU, or the compute mode is Prohibited, on a GPU with shares
#[test]
fn foreign_memory_is_taken() {
    let setup = on(Low::Runc, Machine::with(&["--gpu", "L4"]));
    let id = setup.gives(&[(SHARE, "8Gi")]);
    let hold = setup.machine.hold(&["--gpu", "0", "--memory", "4Gi"]);
    let free = L4 - 8192 - 4096;
    let others = "and processes without a lease that use 4096Mi";
    let words = format!("GPU 0: {free}Mi of {L4}Mi is free beside container {id} {others}");
    setup.refuses(&[(SHARE, "12Gi")], &words);
    let foreign = || setup.items(&["gpus"])[0]["foreignBytes"].clone();
    assert_eq!(foreign(), 4u64 << 30);
    let second = setup.gives(&[(SHARE, "8Gi")]);
    setup.delete(&id);
    setup.delete(&second);
    setup.refuses(&[(SHARE, "1Gi")], "computes on it without a lease");
    hold.kill();
    let last = setup.gives(&[(SHARE, "12Gi")]);
    setup.ends(&[&last]);
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
