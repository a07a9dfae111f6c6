//! Shares of the memory of GPUs that are not in MIG mode.

use nvml_sim::engine::Mode;
use runmig_lease::model::InstanceId;
use runmig_lease::store::{LeaseState, Store};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use testkit::bundle::{SHOW, nodes, visible};
use testkit::faults::World;
use testkit::process::{move_beside, until};
use testkit::sharing::{self, delete, mixed, refusal, refused, shares};
use testkit::{Bundle, Going, Low, Machine, Setup, going, said, unique};

const SHARE: &str = "runmig.dev/share";
const NONE: &str = "sharing.enforcement = [\"none\"]";
/// The memory that an L4 gives out, in MiB.
const L4: u64 = 22_522;

fn on(low: Low, machine: Machine) -> Option<Setup> {
    let setup = Setup::on(low, machine)?;
    setup.configure(NONE);
    Some(setup)
}

fn asking(setup: &Setup, size: &str, script: &str) -> Bundle {
    let bundle = setup.bundle(script);
    bundle.annotate(SHARE, size);
    bundle
}

/// Creates a container with a share, and returns its id.
fn create(setup: &Setup, size: &str) -> String {
    sharing::create(setup, SHARE, size)
}

fn gives_share(low: Low) {
    let Some(setup) = on(low, mixed()) else {
        return;
    };
    let first = asking(&setup, "8Gi", "exec sleep 1000");
    let (before, one) = (first.bytes(), unique());
    setup.runmig(&["create", "-b", first.as_str(), &one]).ok();
    let lease = setup.the_lease();
    assert_eq!(
        (&lease["kind"], &lease["state"]),
        (&"share".into(), &"ready".into())
    );
    assert_eq!(lease["gpuUUID"], setup.machine.gpu_uuid(1).as_str());
    assert_eq!(lease["request"], "share of 8Gi");
    assert_eq!(lease["memoryBytes"], 8u64 << 30);
    assert_eq!(lease["bookedBytes"], 8u64 << 30);
    assert_eq!(lease["enforcement"], "none");
    let table = setup.migctl(&["list"]).ok().stdout;
    assert!(
        table.contains("share 8192Mi") && table.contains("none"),
        "{table}"
    );

    // The next container shares the GPU, and sees its share.
    let second = asking(&setup, "1/4", &format!("{SHOW}; env"));
    let process = |json: &mut Value| {
        let env = json["process"]["env"].as_array_mut().unwrap();
        for entry in [
            "CUDA_MPS_PIPE_DIRECTORY=/x",
            "NVIDIA_GPU_MEMORY_LIMIT=9",
            "RUNMIG_GPU_MEMORY=1",
        ] {
            env.push(entry.into());
        }
    };
    second.edit(process);
    let said = setup
        .runmig(&["run", "-b", second.as_str(), &unique()])
        .ok();
    let uuid = setup.machine.gpu_uuid(1);
    assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
    let seen: Vec<String> = nodes(&said.stdout).into_keys().collect();
    assert!(seen.contains(&"nvidia1".to_owned()) && !seen.contains(&"nvidia0".to_owned()));
    assert!(!seen.iter().any(|node| node.contains("caps")), "{seen:?}");
    let bytes = format!("RUNMIG_GPU_MEMORY={}\n", (L4 / 4) << 20);
    assert!(said.stdout.contains(&bytes), "{}", said.stdout);
    assert!(
        said.stdout.contains("RUNMIG_GPU_MEMORY_FRACTION=0.2499\n"),
        "{}",
        said.stdout
    );
    for gone in [
        "CUDA_MPS_PIPE_DIRECTORY",
        "NVIDIA_GPU_MEMORY_LIMIT",
        "RUNMIG_GPU_MEMORY=1\n",
    ] {
        assert!(!said.stdout.contains(gone), "{gone}: {}", said.stdout);
    }
    assert_eq!(shares(&setup), [(1, 8192)]);
    delete(&setup, &one);
    setup.nothing_is_left();
    assert_eq!(first.bytes(), before);
}

#[test]
fn runc_gives_share() {
    gives_share(Low::Runc);
}

#[test]
fn crun_gives_share() {
    gives_share(Low::Crun);
}

/// All parts of a GPU fit on it, and no more.
#[test]
fn parts_fill_gpu() {
    let Some(setup) = on(Low::Runc, Machine::with(&["--gpu", "L4"])) else {
        return;
    };
    let ids: Vec<String> = (0..3).map(|_| create(&setup, "1/3")).collect();
    let line = refused(&setup, &[(SHARE, "1Gi")]);
    let free = L4 - L4 / 3 * 3;
    let start = format!(
        "runmig: cannot allocate a share of 1Gi: no GPU has room for it (GPU 0: {free}Mi of {L4}Mi is free beside \
         containers "
    );
    assert!(line.starts_with(&start), "{line}");
    let end = " and 1 more); hint: run migctl list to see who shares the GPUs, or set runmig.dev/wait to wait";
    assert!(line.ends_with(end), "{line}");
    assert_eq!(ids.iter().filter(|id| line.contains(*id)).count(), 2);
    let explained = setup.migctl(&["explain", "--share", "1Gi"]).exits(1).stdout;
    assert!(
        explained.starts_with("full: cannot allocate a share of 1Gi"),
        "{explained}"
    );
    for id in &ids {
        delete(&setup, id);
    }
    setup.nothing_is_left();
}

/// A share goes where it leaves the largest rest: best fit, and no GPU that could do MIG without need.
#[test]
fn chooses_best_fit() {
    let Some(setup) = on(Low::Runc, mixed()) else {
        return;
    };
    let large = create(&setup, "40Gi");
    let small = create(&setup, "16Gi");
    assert_eq!(shares(&setup), [(0, 40 << 10), (1, 16 << 10)]);
    let third = create(&setup, "5Gi");
    let fourth = create(&setup, "6Gi");
    let all = [(0, 6 << 10), (0, 40 << 10), (1, 5 << 10), (1, 16 << 10)];
    assert_eq!(shares(&setup), all);
    let inspected = setup.migctl(&["inspect"]).ok().stdout;
    assert!(
        inspected.contains("46/79.1") && inspected.contains("21/21.9"),
        "{inspected}"
    );
    let detail = setup
        .migctl(&["inspect", "-d", "--unit", "MiB"])
        .ok()
        .stdout;
    let row = detail.lines().find(|l| l.starts_with(&small)).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>()[1..],
        ["-", "0", "16384"]
    );
    let json = setup.migctl(&["inspect", "-o", "json"]).ok().json();
    assert_eq!(json["bookedBytes"], 67u64 << 30);
    assert_eq!(json["items"][1]["use"], "shared");
    let gpus = setup.migctl(&["gpus"]).ok().stdout;
    assert!(gpus.contains("in 2 shares"), "{gpus}");
    // A GPU with shares is nobody's alone.
    let whole = refused(&setup, &[("runmig.dev/gpu", "1")]);
    assert!(
        whole.contains("have shares of 21504Mi, level none"),
        "{whole}"
    );
    for id in [&large, &small, &third, &fourth] {
        delete(&setup, id);
    }
    setup.nothing_is_left();
}

#[test]
fn whole_gpu_takes_no_shares() {
    let Some(setup) = on(Low::Runc, Machine::with(&["--gpu", "L4"])) else {
        return;
    };
    let (bundle, id) = (setup.bundle("exec sleep 1000"), unique());
    bundle.annotate("runmig.dev/gpu", "1");
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    let line = refused(&setup, &[(SHARE, "1Gi")]);
    assert!(
        line.contains(&format!("GPU 0: container {id} has it")),
        "{line}"
    );
    delete(&setup, &id);
    setup.nothing_is_left();
}

#[test]
fn bad_requests_change_nothing() {
    let Some(setup) = on(Low::Runc, mixed()) else {
        return;
    };
    for bad in [
        "0Gi", "512Mi", "8", "1/1", "5/4", "1/0", "1/65", "0.25", "25%", "",
    ] {
        let line = refusal(&setup, &[(SHARE, bad)]);
        let named = format!("annotation {SHARE}: \"{bad}\" ");
        assert!(line.contains(&named) && line.contains("; hint: "), "{line}");
    }
    let huge = refusal(&setup, &[(SHARE, "100Gi"), ("runmig.dev/wait", "10m")]);
    assert!(
        huge.contains("GPU 0: it gives out 81079Mi; GPU 1: it gives out 22522Mi"),
        "{huge}"
    );
    setup.configure("policy.kinds = [\"slice\", \"gpu\"]");
    let line = refusal(&setup, &[(SHARE, "8Gi")]);
    assert!(
        line.contains("requests for a share are not allowed (policy.kinds)"),
        "{line}"
    );
    // An upgrade loosens nothing: whoever listed profiles allowed slices alone.
    setup.configure("policy.profiles = [\"*\"]");
    let line = refusal(&setup, &[(SHARE, "8Gi")]);
    assert!(
        line.contains("(policy.profiles without policy.kinds)"),
        "{line}"
    );
    setup.configure("sharing.enforcement = [\"mps\"]");
    let line = refusal(&setup, &[(SHARE, "8Gi")]);
    let control = setup.machine.dir().join("usr/bin/nvidia-cuda-mps-control");
    let wanted = format!(
        "runmig: no permitted level can hold the memory limit of a share (mps: there is no control \
         program {}); hint: the administrator may add none to sharing.enforcement: then runmig books the memory, and \
         nothing limits it",
        control.display()
    );
    assert_eq!(line, wanted);
}

#[test]
fn limits_count_shares() {
    let Some(setup) = on(Low::Runc, mixed()) else {
        return;
    };
    for (limit, words) in [
        // A limit that knows slices alone counts shares as slices.
        ("slices = 1", "1 of 1 slices"),
        ("slices = 5\nshares = 1", "1 of 1 shares"),
        (
            "memory = \"10Gi\"",
            "8192Mi of 10Gi of memory, and 8192Mi are asked for",
        ),
    ] {
        setup.configure(&format!("{NONE}\n[[policy.limit]]\n{limit}"));
        let id = create(&setup, "8Gi");
        let line = refused(&setup, &[(SHARE, "8Gi"), ("runmig.dev/wait", "10m")]);
        assert!(line.contains(words), "{limit}: {line}");
        delete(&setup, &id);
    }
    setup.configure(&format!("{NONE}\nsharing.shares_per_gpu = 1"));
    let ids = [create(&setup, "1Gi"), create(&setup, "1Gi")];
    let line = refused(&setup, &[(SHARE, "1Gi")]);
    assert!(
        line.contains("it has 1 share, as many as it takes (sharing.shares_per_gpu)"),
        "{line}"
    );
    for id in &ids {
        delete(&setup, id);
    }
    setup.nothing_is_left();
}

#[test]
fn compute_modes_keep_shares_away() {
    for (mode, words) in [
        ("prohibited", "its compute mode is Prohibited"),
        ("exclusive-process", "its compute mode is Exclusive_Process"),
    ] {
        let machine = Machine::with(&["--gpu", "L4", "--compute-mode", mode]);
        let Some(setup) = on(Low::Runc, machine) else {
            return;
        };
        let line = refusal(&setup, &[(SHARE, "8Gi"), ("runmig.dev/wait", "10m")]);
        assert!(line.contains(words), "{line}");
    }
}

/// Memory of a process without a lease counts as taken on a shared GPU, and keeps an empty one from shares.
#[test]
fn foreign_memory_is_taken() {
    let Some(setup) = on(Low::Runc, Machine::with(&["--gpu", "L4"])) else {
        return;
    };
    let id = create(&setup, "8Gi");
    let mut hold = setup.machine.sim_command("hold");
    let mut hold = going(
        hold.args(["--gpu", "0", "--memory", "4Gi"])
            .stdin(Stdio::null()),
    );
    hold.until("holding");
    let line = refused(&setup, &[(SHARE, "12Gi")]);
    assert!(
        line.contains(&format!(
            "GPU 0: {}Mi of {L4}Mi is free beside container {id} and processes without a lease that use 4096Mi",
            L4 - 8192 - 4096
        )),
        "{line}"
    );
    let gpus = setup.migctl(&["gpus", "-o", "json"]).ok().json();
    assert_eq!(gpus["items"][0]["foreignBytes"], 4u64 << 30);
    let second = create(&setup, "8Gi");
    delete(&setup, &id);
    delete(&setup, &second);
    let line = refusal(&setup, &[(SHARE, "1Gi")]);
    assert!(line.contains("computes on it without a lease"), "{line}");
    hold.kill();
    let last = create(&setup, "12Gi");
    delete(&setup, &last);
    setup.nothing_is_left();
}

/// Memory of the container's own processes is not taken twice, and the list shows it.
#[test]
fn own_memory_is_not_foreign() {
    let Some(setup) = on(Low::Runc, Machine::with(&["--gpu", "L4"])) else {
        return;
    };
    let id = create(&setup, "8Gi");
    let init = setup.the_lease()["initPid"].as_u64().unwrap();
    let hold = |memory: &str| {
        let mut hold = setup.machine.sim_command("hold");
        let mut hold = going(
            hold.args(["--gpu", "0", "--memory", memory])
                .stdin(Stdio::null()),
        );
        hold.until("holding");
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
    let gpus = setup.migctl(&["gpus", "-o", "json"]).ok().json();
    assert_eq!(gpus["items"][0]["foreignBytes"], 0);
    let second = hold("7Gi");
    assert_eq!(used(), [Some(10), Some(2)]);
    let table = setup.migctl(&["list"]).ok().stdout;
    assert!(table.contains("10240Mi"), "{table}");
    let other = create(&setup, "12Gi");
    first.kill();
    second.kill();
    delete(&setup, &other);
    delete(&setup, &id);
    setup.nothing_is_left();
}

/// A request that waits gets its room when a share ends, and no later one passes it.
#[test]
fn waits_for_share() {
    let Some(setup) = on(Low::Runc, Machine::with(&["--gpu", "L4"])) else {
        return;
    };
    let first = create(&setup, "16Gi");
    let (bundle, id) = (asking(&setup, "8Gi", "exec sleep 1000"), unique());
    bundle.annotate("runmig.dev/wait", "10m");
    let mut create_it = setup.command(&["create", "-b", bundle.as_str(), &id]);
    let waits: Going = going(create_it.stdin(Stdio::null()));
    until("it waits", || {
        let list = setup.migctl(&["list", "-o", "json"]).ok().json();
        list["waiting"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    let line = refused(&setup, &[(SHARE, "1Gi")]);
    assert!(
        line.contains("GPU 0: reserved for an earlier request")
            && line.contains("1 earlier request waits"),
        "{line}"
    );
    let explained = setup
        .migctl(&["explain", "--share", "1Gi", "--json"])
        .exits(1)
        .json();
    assert_eq!(explained["alternatives"][0]["verdict"], "queued");
    delete(&setup, &first);
    waits.end().ok();
    assert_eq!(shares(&setup), [(0, 8 << 10)]);
    delete(&setup, &id);
    setup.nothing_is_left();
}

/// A record that cannot be read still books its memory, and frees it with its container.
#[test]
fn damaged_share_stays_booked() {
    let world = World::with_whole_gpus();
    world.configure(NONE);
    let asks = |id: &str, size: &str| world.bundle_saying(id, &[(SHARE, size)]);
    asks("one", "1/2");
    world.create("one");
    asks("two", "1/2");
    let lease = world.abandoned("two");
    let records = world.records();
    let record = records
        .iter()
        .find(|file| file.to_str().unwrap().contains(&lease));
    std::fs::write(record.unwrap(), "{").unwrap();
    // Nobody knows whether its container lives, whatever its neighbour's does.
    world.gc().ok();
    asks("three", "1/2");
    world.create("three");
    // It found no room beside the damaged one.
    assert_ne!(world.uuids_in_bundle("three"), world.uuids_in_bundle("one"));
    said(&mut world.migctl(&["release", &lease])).ok();
    asks("four", "1/2");
    world.create("four");
    assert_eq!(world.uuids_in_bundle("four"), world.uuids_in_bundle("one"));
    for id in ["one", "three", "four"] {
        world.delete(id);
    }
    let left = world.records();
    assert!(left.is_empty(), "{left:?}");
}

/// An instance whose last lease is on its way out takes no new one, and its memory stays booked until then.
#[test]
fn joins_no_instance_that_goes() {
    let world = World::with_whole_gpus();
    world.configure(NONE);
    let asks = |id: &str| world.bundle_saying(id, &[(SHARE, "1/4")]);
    asks("one");
    world.abandoned("one");
    let store = Store::open(&world.state(), Duration::from_secs(10)).unwrap();
    let going = store.list().unwrap().held().next().unwrap().lease.clone();
    let ledger = store.lock("test").unwrap();
    ledger
        .update_lease(&going, |lease| lease.state = LeaseState::Releasing)
        .unwrap();
    drop(ledger);
    asks("two");
    world.create("two");
    let listing = store.list().unwrap();
    let instances: Vec<InstanceId> = { listing.held() }
        .map(|held| held.instance.id.clone())
        .collect();
    assert_eq!(instances.len(), 2);
    assert_ne!(instances[0], instances[1]);
    world.nothing_lost_nothing_given_twice().unwrap();
    world.gc().ok();
    world.has_its_slices("two").unwrap();
    world.delete("two");
    let left = world.records();
    assert!(left.is_empty(), "{left:?}");
}

/// Creates at once book no memory twice: nine shares of 8Gi fit on an H100.
#[test]
fn serves_200_creates_on_72_shares() {
    let world = World::of(("H100-80GB", "1g.10gb", 7), 8);
    world.change(|machine, holds| {
        for gpu in 0..8 {
            machine.set_mig_mode(gpu, Mode::Off, holds).unwrap();
            machine.reset_gpu(gpu, holds).unwrap();
        }
    });
    world.configure(NONE);
    let ids: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    for id in &ids {
        world.bundle_saying(id, &[(SHARE, "8Gi")]);
    }
    let creates: Vec<Going> = { ids.iter() }
        .map(|id| going(world.create_command(id).stdin(Stdio::null())))
        .collect();
    let (mut made, mut refused) = (0, Vec::new());
    for create in creates {
        let said = create.end();
        match said.status.success() {
            true => made += 1,
            false => refused.push(said.refused()),
        }
    }
    let is_clear = |line: &String| {
        line.contains("no GPU has room for it (GPU 0: 7351Mi of 81079Mi is free beside")
    };
    let unclear: Vec<&String> = refused.iter().filter(|line| !is_clear(line)).collect();
    assert!(unclear.is_empty(), "made {made}: {unclear:#?}");
    assert_eq!((made, refused.len()), (72, 128));
    world.nothing_lost_nothing_given_twice().unwrap();
    for gpu in &world.engine().gpus {
        let leases = world.leases();
        let here = leases.iter().filter(|l| l["gpuUUID"] == gpu.uuid.as_str());
        assert_eq!(here.count(), 9);
    }
    // And back, all at once.
    let deletes: Vec<Going> = { ids.iter() }
        .filter(|id| world.living_init(id).is_some())
        .map(|id| {
            going(
                world
                    .runmig(&["delete", "--force", id])
                    .stdin(Stdio::null()),
            )
        })
        .collect();
    deletes.into_iter().for_each(|one| drop(one.end().ok()));
    let left = world.records();
    assert!(left.is_empty(), "{left:?}");
}
