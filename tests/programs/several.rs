//! Several slices for one container, where the configuration allows it: all of them or none.

use testkit::prelude::*;

const ALLOWED: &str = "[policy]\nslices_per_container = 4\n";

fn machine(gpus: u32) -> World {
    let world = World::of(SMALL, gpus);
    world.configure(ALLOWED);
    world
}

fn create(world: &World, id: &str, slice: &str) -> Said {
    world.bundle_asking(id, slice);
    said(&mut world.create_command(id))
}

fn two_models() -> Setup {
    let machine = Machine::of("--gpu A30-24GB --gpu A100-80GB --mig on");
    Setup::on(Low::Runc, machine)
}

/// The GPUs of a container's slices, in order.
fn gpus(world: &World, id: &str) -> Vec<u64> {
    let leases = world.leases_of(id).into_iter();
    let mut gpus: Vec<u64> = leases.map(|l| l["gpuIndex"].as_u64().unwrap()).collect();
    gpus.sort();
    gpus
}

/// The output says the same of both slices.
#[test]
fn warns_once_for_living_container() {
    let world = machine(1);
    create(&world, "two", "1g.6gb*2").ok();
    let line = world.ctl(&["release", "two"]).exits(1).stderr;
    let words = "container two lives: ";
    assert_eq!(line.matches(words).count(), 1, "{line}");
    assert_eq!(line.matches("hint: ").count(), 1, "{line}");
    world.ends(&["two"]);
}

#[test]
fn container_on_runc_has_two() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb*2", SHOW);
    setup.configure("policy.slices_per_container = 2");
    let id = unique();
    let created = setup.create(&bundle, &id);
    let there = setup.machine.instances();
    let open = there
        .iter()
        .flat_map(|i| setup.machine.nodes_of(i))
        .collect();
    setup.finishes(&id);
    let saw = created.stdout_now();
    let uuids = visible(&saw).unwrap().split(',');
    assert_eq!(uuids.clone().count(), 2);
    assert_eq!(
        uuids.collect::<BTreeSet<_>>(),
        there.iter().map(|i| &*i.uuid).collect()
    );
    assert_eq!((there.len(), nodes(&saw)), (2, open));
    setup.runmig(&["delete", &id]).ok();
    assert!(setup.machine.instances().is_empty() && setup.leases().is_empty());
    assert_eq!(bundle.names(), ["config.json", "rootfs"]);
}

#[test]
fn spreads_over_gpus_first() {
    let world = machine(2);
    create(&world, "one", "2g.12gb*2").ok();
    assert_eq!(gpus(&world, "one"), [0, 1]);
    world.ends(&["one"]);
    create(&world, "three", "1g.6gb*3").ok();
    let three = gpus(&world, "three");
    assert_eq!((three.len(), three[0], three[2]), (3, 0, 1));
    // No GPU of its own is left: beside one another.
    create(&world, "whole", "4g.24gb").refused();
    create(&world, "two", "2g.12gb*2,1g.6gb*2").ok();
    world.ends(&["three", "two"]);
    create(&world, "filler", "4g.24gb").ok();
    create(&world, "both", "2g.12gb*2").ok();
    let free = 1 - gpus(&world, "filler")[0];
    assert_eq!(gpus(&world, "both"), [free, free]);
    world.ends(&["filler", "both"]);
}

#[test]
fn creates_all_or_none() {
    let world = machine(1);
    create(&world, "two", "2g.12gb").ok();
    create(&world, "one", "1g.6gb").ok();
    let (before, leases) = (world.instances(), world.leases());
    let why =
        "cannot allocate 1g.6gb*2: after 1 of 2 slices, too few memory slices are free (0 of 4";
    world.refuses_asking("both", "1g.6gb*2", why);
    assert_eq!((world.instances(), world.leases()), (before, leases));
    // The next alternative, if not the first.
    create(&world, "list", "1g.6gb*2,1g.6gb").ok();
    assert_eq!(gpus(&world, "list"), [0]);
    world.ends(&["two", "one", "list"]);
}

/// Returns the profiles of a container's slices, in order.
fn profiles(world: &World, id: &str) -> Vec<String> {
    let leases = world.leases_of(id).into_iter();
    let mut profiles: Vec<String> = leases
        .map(|l| l["profile"].as_str().unwrap().to_owned())
        .collect();
    profiles.sort();
    profiles
}

#[test]
fn creates_different_slices_or_none() {
    let world = machine(1);
    create(&world, "both", "1g.6gb&2g.12gb").ok();
    assert_eq!(profiles(&world, "both"), ["1g.6gb", "2g.12gb"]);
    let request = |lease: &Value| lease["request"] == "2g.12gb&1g.6gb";
    assert!(world.leases().iter().all(request));
    let (before, leases) = (world.instances(), world.leases());
    for (id, slice, words) in testkit::rows! {
        "more", "2g.12gb&1g.6gb" =>
            "cannot allocate 2g.12gb&1g.6gb: none for 2g.12gb: too few memory slices are free (1 of 4";
        "most", "1g.6gb*2 & 5000Mi" => "after 1 of 3 slices, none for 1g.6gb: too few";
        "all", "4g.24gb&1g.6gb" =>
            "cannot allocate 4g.24gb&1g.6gb: 1 GPU cannot hold 4g.24gb&1g.6gb together; hint: request fewer";
        "unknown", "3g.24gb&1g.6gb" =>
            "cannot allocate 3g.24gb&1g.6gb: none for 3g.24gb: no GPU offers the profile";
    } {
        world.refuses_asking(id, slice, words);
    }
    assert_eq!((world.instances(), world.leases()), (before, leases));
    let said = world.ctl(&["explain", "1g.6gb&2g.12gb", "-o", "json"]);
    let answer = &said.exits(1).json()["alternatives"][0];
    assert_eq!(answer["request"], "2g.12gb&1g.6gb");
    assert_eq!(answer["verdict"], "full");
    assert_eq!(answer["gpus"][0]["profile"], "2g.12gb");
    // The next alternative, if not the first.
    create(&world, "list", "2g.12gb&1g.6gb,1g.6gb").ok();
    world.ends(&["both", "list"]);
    let words = "fits: 2g.12gb at 2:2 on GPU 0 and 1g.6gb at 1:1 on GPU 0 and 1g.6gb at 0:1";
    has(&world.tells(&["explain", "1g.6gb*2&2g.12gb"]), words);
}

/// Each slice of a list counts, and must be allowed.
#[test]
fn policy_counts_different_slices() {
    let world = World::of(SMALL, 2);
    const LIMIT: &str = "policy.slices_per_container = 4\n[[policy.limit]]\n";
    for (rules, slice, words) in testkit::rows! {
        "", "1g.6gb*2" => "1g.6gb*2 asks for several slices, and CUDA uses one MIG device in a process";
        "", "1g.6gb&2g.12gb" => "2g.12gb&1g.6gb asks for several slices, and CUDA uses one MIG device in a process";
        "policy.slices_per_container = 2", "1g.6gb*2&2g.12gb" =>
            "2g.12gb&1g.6gb*2 asks for more than 2 slices (policy.slices_per_container)";
        &format!("{LIMIT}slices = 2"), "1g.6gb*2&2g.12gb" => "the machine has 0 of 2 slices, and 3 are asked for";
        &format!("{LIMIT}memory = \"14Gi\""), "1g.6gb&2g.12gb" => "of memory, and ";
        "[policy]\nslices_per_container = 4\nprofiles = [\"1g.*\"]", "1g.6gb&2g.12gb" =>
            "2g.12gb&1g.6gb is not allowed (policy.profiles)";
    } {
        world.configure(rules);
        world.refuses_asking(&unique(), slice, words);
    }
    world.configure(&format!("{LIMIT}slices = 3\nmemory = \"24Gi\""));
    create(&world, "a", "1g.6gb*2&2g.12gb").ok();
    create(&world, "b", "1g.6gb").refused_for("has 3 of 3 slices");
    world.ends(&["a"]);
}

/// A queued list holds nothing before there is room for all of it.
#[test]
fn holds_none_while_waiting_for_different_ones() {
    let world = machine(1);
    create(&world, "half", "2g.12gb").ok();
    create(&world, "rest", "1g.6gb").ok();
    let both = world.waits_asking("both", "1g.6gb&2g.12gb");
    create(&world, "third", "1g.6gb").refused_for("reserved for 1 earlier request");
    assert!(gpus(&world, "both").is_empty());
    world.delete("half");
    both.end().ok();
    assert_eq!(profiles(&world, "both"), ["1g.6gb", "2g.12gb"]);
    world.ends(&["rest", "both"]);
}

/// No wait makes a machine larger.
#[test]
fn refuses_more_than_machine_has() {
    let world = World::of(SMALL, 2);
    world.configure("wait = \"10m\"\npolicy.slices_per_container = 64\n");
    let why = "cannot allocate 4g.24gb*3: 2 GPUs hold at most 2 of 4g.24gb; hint: request fewer";
    world.refuses_asking("a", "4g.24gb*3", why);
    world.configure("policy.slices_per_container = 64\n[[policy.limit]]\nslices = 1\n");
    let why = "the machine has 0 of 1 slices, and 2 are asked for ([[policy.limit]] 1)";
    world.refuses_asking("b", "1g.6gb*2", why);
    world.as_if_nothing_had_been().unwrap();
}

/// A request that waits for two takes none before there are two, and none behind it takes the
/// first.
#[test]
fn holds_none_while_waiting_for_two() {
    let world = machine(1);
    world.create_all(&["a", "b", "c", "d"]);
    let both = world.waits_asking("both", "1g.6gb*2");
    let behind = world.waits_asking("behind", "1g.6gb");
    world.delete("a");
    let why = "cannot allocate 1g.6gb: the free slots are reserved for 2 earlier requests";
    world.refuses("third", why);
    assert!(gpus(&world, "both").is_empty() && gpus(&world, "behind").is_empty());
    world.delete("b");
    both.end().ok();
    assert_eq!(gpus(&world, "both"), [0, 0]);
    world.delete("c");
    behind.end().ok();
    world.ends(&["d", "both", "behind"]);
}

/// A container lives on whose front was killed while it was made, with all that it has.
#[test]
fn keeps_both_while_runtime_works() {
    let world = machine(2);
    world.bundle_asking("a", "1g.6gb*2");
    let (front, mut pipe) = world.halted("a", "create-waits");
    front.kill();
    world.gc().ok();
    assert_eq!(world.leases().len(), 2);
    pipe.write_all(b"\n").unwrap();
    until("it is made", || world.living_init("a").is_some());
    world.behave("");
    world.ends(&["a"]);
}

/// An administrator's second slice on one GPU, or a new one on another.
#[test]
fn prefers_own_gpu_to_idle_slice() {
    let world = machine(2);
    world.configure(&format!("adopt = true\n{ALLOWED}"));
    for start in [0, 1] {
        world.admin_leaves(1, world.profile, start);
    }
    create(&world, "a", "1g.6gb*2").ok();
    assert_eq!(gpus(&world, "a"), [0, 1]);
    world.ends(&["a"]);
}

/// Models differ in what an amount of memory means.
#[test]
fn limits_memory_of_all() {
    let setup = two_models();
    let gpus = |most: &str| {
        setup.configure(&format!("{ALLOWED}[[policy.limit]]\nmemory = \"{most}\"\n"));
        let id = unique();
        let made = setup.try_create(&setup.asking("10Gi*2", SHOW), &id);
        let mut gpus: Vec<u32> = setup.machine.instances().iter().map(|i| i.gpu).collect();
        gpus.sort();
        setup.runmig(&["delete", "--force", &id]);
        (made, gpus)
    };
    // 2g.12gb of the A30 has 11968 MiB, 1g.20gb of the A100 19968.
    assert_eq!(gpus("31936Mi").1, [0, 1]);
    assert_eq!(gpus("31935Mi").1, [0, 0]);
    let (made, none) = gpus("23935Mi");
    made.refused_for("the machine has 0Mi of 23935Mi of memory, and 23936Mi");
    assert!(none.is_empty() && setup.machine.instances().is_empty());
}

/// A request that is too much on the only GPU with room need not be too much on one that has none
/// now.
#[test]
fn waits_within_a_limit() {
    let setup = two_models();
    // 1g.10gb of the A100 has 9728 MiB, and 2g.12gb of the A30 11968.
    let limit = "[[policy.limit]]\nnamespace = \"*\"\nmemory = \"9728Mi\"\n";
    setup.configure(limit);
    let (_, first) = setup.made("7g.80gb", SHOW);
    let bundle = setup.asking("9Gi", SHOW);
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", "team-a");
    has(&setup.refused(&bundle), "cannot allocate 9Gi (1g.10gb): ");
    bundle.annotate("runmig.dev/wait", "10m");
    let id = unique();
    let waits = going(&mut setup.command(&["create", "-b", bundle.as_str(), &id]));
    until("it waits", || {
        let list = setup.migctl(&["list", "-o", "json"]).json();
        list["waiting"].as_array().is_some_and(|w| !w.is_empty())
    });
    setup.delete(&first);
    waits.end().ok();
    assert_eq!(setup.the_lease()["profile"], "1g.10gb");
    setup.delete(&id);
    setup.configure(&limit.replace("9728", "9727"));
    has(&setup.refused(&bundle), "9728Mi are asked for");
}

/// Places have room where the limit does not reach: nothing that moves would help.
#[test]
fn limit_counts_as_no_fragmentation() {
    let setup = two_models();
    let limit = "[[policy.limit]]\nnamespace = \"*\"\nmemory = \"31936Mi\"\n";
    setup.configure(&format!("{ALLOWED}{limit}"));
    let (_, first) = setup.made("4g.24gb", SHOW);
    let bundle = setup.asking("10Gi*2", SHOW);
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", "team-a");
    let line = setup.refused(&bundle);
    let explain = ["explain", "10Gi*2", "--namespace", "team-a", "-ojson"];
    let told = setup.migctl(&explain).exits(1).json();
    ends_with(&line, told["error"].as_str().unwrap());
    assert_eq!(told["alternatives"][0]["verdict"], "full", "{told:#}");
    setup.delete(&first);
}

/// One idle slice goes, and is room for all of them; who asks is told the same.
#[test]
fn several_fit_over_idle_slice() {
    let world = World::of(BIG, 1);
    world.configure(&format!("keep_idle = \"10m\"\n{ALLOWED}"));
    create(&world, "idle", "3g.40gb").ok();
    create(&world, "half", "4g.40gb").ok();
    world.delete("idle");
    world.ctl(&["explain", "1g.10gb*2"]).ok();
    create(&world, "two", "1g.10gb*2").ok();
    world.has_its_slices("two").unwrap();
    world.has_its_slices("half").unwrap();
    // Nothing is kept any more.
    world.configure(ALLOWED);
    world.ends(&["two", "half"]);
}

/// Each is there already, or is made.
#[test]
fn reuses_idle_and_adopted_slices() {
    let world = machine(2);
    world.configure(&format!("keep_idle = \"10m\"\nadopt = true\n{ALLOWED}"));
    create(&world, "before", "1g.6gb").ok();
    world.delete("before");
    world.admin_leaves(1, world.profile, 3);
    create(&world, "three", "1g.6gb*3").ok();
    let of_it = world.leases();
    assert_eq!(of_it.len(), 3, "{of_it:?}");
    let adopted = of_it.iter().filter(|l| l["adopted"] == true);
    assert_eq!(adopted.count(), 1);
    world.delete("three");
    assert_eq!(world.states(), ["idle", "idle"]);
    world.tidy_up(&[]);
}

/// An administrator's instance in the second's place, while the first is refused, is foreign.
#[test]
fn destroys_nothing_it_never_tried() {
    let world = machine(1);
    world.comes_and_goes("before");
    let lock = world.lock_gpu(0);
    world.bundle_asking("a", "1g.6gb*2");
    let creates = world.creating("a");
    until("both are on record", || world.leases().len() == 2);
    for lease in world.leases() {
        let start = lease["migPlacement"]["start"].as_u64().unwrap();
        world.admin_creates(0, world.profile, start as u32, false);
    }
    let theirs = world.instances();
    drop(lock);
    creates.end().ok();
    assert_eq!(gpus(&world, "a").len(), 2);
    world.delete("a");
    assert_eq!(world.instances(), theirs);
    theirs.iter().for_each(|i| world.admin_destroys(0, i.gi));
    world.as_if_nothing_had_been().unwrap();
}

/// Each way in which a container goes releases both.
#[test]
fn every_release_frees_both() {
    type Way = fn(&World);
    let ways: [(&str, Way); 5] = [
        ("delete", |w| drop(w.delete("a"))),
        ("the hook", |w| {
            said(&mut w.bare(&["delete", "--force", "a"])).ok();
        }),
        ("gc", |w| {
            w.vanish("a");
            w.gc().ok();
        }),
        ("migctl release", |w| {
            w.vanish("a");
            let told = w.tells(&["release", "a"]);
            assert_eq!(told.matches("released 1g.6gb").count(), 2, "{told}");
        }),
        ("a hook of hooks.d", |w| {
            w.vanish("a");
            let mut hook = w.hook("a", "");
            hook.command = w.program("runmig-hook");
            settled(&hook).ok();
        }),
    ];
    for (name, way) in ways {
        let world = machine(2);
        create(&world, "a", "1g.6gb*2").ok();
        assert_eq!(world.states(), ["ready"; 2], "{name}");
        way(&world);
        assert_eq!(world.leases().len(), 0, "{name}");
        world.as_if_nothing_had_been().unwrap();
    }
}

/// The low-level runtime fails; the driver makes the first and not the second.
#[test]
fn failed_create_leaves_none() {
    let world = machine(2);
    for how in ["create-fails-early", "create-fails-late"] {
        world.behave(how);
        world.refuses_asking("a", "1g.6gb*2", "");
        world.as_if_nothing_had_been().unwrap();
    }
    world.behave("");
    let place = "nvmlDeviceCreateGpuInstanceWithPlacement";
    for call in [place, "nvmlGpuInstanceCreateComputeInstance"] {
        world.fault(call, 2, Some(2), Outcome::Return(999));
        world.refuses_asking("a", "1g.6gb*2", "");
        world.no_faults();
        world.as_if_nothing_had_been().unwrap();
    }
    // Another place will do.
    world.fault(place, 2, Some(2), Outcome::Return(23));
    world.create_asking("a", "1g.6gb*2");
    assert_eq!(gpus(&world, "a").len(), 2);
    world.no_faults();
    world.ends(&["a"]);
}
