//! Whole GPUs for containers, on GPUs that are not in MIG mode.

use testkit::prelude::*;
use testkit::sharing::mixed;

const GPU: &str = "runmig.dev/gpu";

fn asking(setup: &Setup, count: &str, script: &str) -> Bundle {
    let bundle = setup.bundle(script);
    bundle.annotate(GPU, count);
    bundle
}

fn gives_gpu_alone(low: Low) {
    let setup = Setup::on(low, mixed());
    let (one, two) = (unique(), unique());
    let first = asking(&setup, "1", "exec sleep 1000");
    let before = first.bytes();
    setup.create(&first, &one);
    // The GPU without MIG comes first.
    let lease = setup.the_lease();
    assert_eq!(lease["kind"], "gpu");
    assert_eq!(lease["state"], "ready");
    assert_eq!(lease["gpuUUID"], setup.machine.gpu_uuid(1).as_str());
    assert_eq!(lease["request"], "1 GPU");
    assert!(lease["memoryBytes"].as_u64().unwrap() > 20 << 30, "{lease}");
    assert_eq!(lease["profile"], "gpu");
    for absent in [
        "migPlacement",
        "migUUID",
        "gpuInstanceID",
        "computeInstanceID",
    ] {
        assert_eq!(lease[absent], Value::Null, "{absent}");
    }
    setup.migctl(&["list"]).ok().says("gpu");

    let second = asking(&setup, "1", SHOW);
    let said = setup.runmig(&["run", "-b", second.as_str(), &two]).ok();
    let uuid = setup.machine.gpu_uuid(0);
    assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
    let seen: Vec<String> = nodes(&said.stdout).into_keys().collect();
    let gpus: Vec<&String> = seen
        .iter()
        .filter(|n| !n.contains('-') && *n != "nvidiactl")
        .collect();
    assert_eq!(gpus, ["nvidia0"], "{seen:?}");
    assert!(!seen.iter().any(|node| node.contains("caps")), "{seen:?}");

    let opens = asking(&setup, "1", OPEN);
    let said = setup.run(&opens);
    assert!(!said.stdout.contains("not permitted"), "{said:?}");
    setup.ends(&[&one]);
    assert_eq!(first.bytes(), before);
}

testkit::tests! {
    runc_gets_gpu_alone: gives_gpu_alone(Low::Runc);
    crun_gets_gpu_alone: gives_gpu_alone(Low::Crun);
}

#[test]
fn bad_requests_change_nothing() {
    let setup = Setup::on(Low::Runc, mixed());
    for bad in ["0", "-1", "+1", "all", "1.5", "65", ""] {
        setup.refuses(
            &[(GPU, bad)],
            &format!("annotation {GPU}: \"{bad}\" is not a number of GPUs from 1 to 64"),
        );
    }
    let both = setup.refused(&setup.bundle_with(&[(GPU, "1"), ("runmig.dev/slice", "1g.10gb")]));
    has(
        &both,
        "annotation runmig.dev/slice cannot stand beside runmig.dev/gpu: one container gets one kind",
    );
    let compute = setup.refused(&setup.bundle_with(&[(GPU, "1"), ("runmig.dev/compute", "2")]));
    has(&compute, "counts compute slices");
    let several = setup.refused(&setup.bundle_with(&[(GPU, "2")]));
    has(&several, "(policy.gpus_per_container)");
    setup.configure("policy.gpus_per_container = 9");
    let too_many = setup.refused(&setup.bundle_with(&[(GPU, "9")]));
    has(&too_many, "only 2 GPUs are free; hint: ask for at most 2");
    let none = setup.bundle("true");
    none.annotate(GPU, "none");
    setup.run(&none);
}

#[test]
fn prohibited_gpu_is_not_given() {
    let machine = Machine::with(&["--gpu", "L4", "--compute-mode", "prohibited"]);
    let setup = Setup::on(Low::Runc, machine);
    setup.refuses(&[(GPU, "1")], "its compute mode is Prohibited");
    setup.nothing_is_left();
}

#[test]
fn share_is_not_on_gpu_of_one_container() {
    let setup = Setup::on(Low::Runc, Machine::with(&["--gpu", "L4"]));
    setup.configure("sharing.enforcement = [\"none\"]");
    let whole = setup.gives(&[(GPU, "1")]);
    let line = setup.refuses(&[("runmig.dev/share", "1Gi")], "cannot allocate ");
    has(&line, &format!("container {}", whole));
    setup.ends(&[&whole]);
    let share = setup.gives(&[("runmig.dev/share", "1Gi")]);
    setup.refuses(&[(GPU, "1")], "cannot allocate ");
    setup.ends(&[&share]);
    setup.nothing_is_left();
}

#[test]
fn container_key_wins_over_other_kinds() {
    let setup = Setup::on(Low::Runc, mixed());
    let bundle = setup.asking("1g.10gb", SHOW);
    bundle.annotate("gpu.runmig.dev/web", "1");
    bundle.annotate("io.kubernetes.container.name", "web");
    let said = setup.run(&bundle);
    let uuid = setup.machine.gpu_uuid(1);
    assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
    setup.nothing_is_left();
}

/// A limit refuses at once what it will never allow, and chooses smaller GPUs where those fit.
#[test]
fn memory_limit_chooses_smaller_gpus() {
    let machine = Machine::with(&["--gpu", "L40S", "--gpu", "L4", "--gpu", "T4"]);
    let setup = Setup::on(Low::Runc, machine);
    let limit = |memory: &str| {
        let rule = format!("[[policy.limit]]\nmemory = \"{memory}\"");
        setup.configure(&format!("policy.gpus_per_container = 2\n{rule}"));
    };
    limit("50Gi");
    let id = unique();
    let bundle = asking(&setup, "2", "exec sleep 1000");
    setup.create(&bundle, &id);
    let mut given: Vec<Value> = setup
        .leases()
        .iter()
        .map(|l| l["gpuIndex"].clone())
        .collect();
    given.sort_by_key(Value::as_u64);
    assert_eq!(given, [1, 2]);
    limit("10Gi");
    let late = asking(&setup, "1", "true");
    late.annotate("runmig.dev/wait", "10m");
    has(&setup.refused(&late), "of 10Gi of memory");
    setup.ends(&[&id]);
}

/// An idle slice whose GPU has left MIG mode is a record alone.
#[test]
fn idle_record_gives_way() {
    let world = World::small();
    world.configure("keep_idle = \"10m\"");
    world.create("slice");
    let instance = world.the_instance();
    world.delete("slice");
    world.admin_destroys(instance.gpu, instance.gi);
    world.change(|machine, holds| {
        machine.set_mig_mode(0, Mode::Off, holds).unwrap();
        machine.reset_gpu(0, holds).unwrap();
    });
    world.bundle_saying("whole", &[(GPU, "1")]);
    world.create("whole");
    world.ends(&["whole"]);
}

/// Without the ledger nobody knows the holder of a GPU.
#[test]
fn unreadable_ledger_leaves_no_gpu_free() {
    let world = World::with_whole_gpus();
    world.bundle_saying("one", &[(GPU, "1")]);
    world.create("one");
    world.delete("one");
    world.damage_all();
    let gpus = said(&mut world.migctl(&["gpus", "-o", "json"]))
        .exits(1)
        .json();
    assert_eq!(gpus["items"][1]["use"], "unknown");
    let page = said(&mut world.migctl(&["top", "--once"])).exits(1);
    has(&page.stdout, "leases -, waiting -, ");
    for asked in [["--gpu=1", "--json"], ["1g.10gb", "--json"]] {
        let explain = [&["explain"], &asked[..]].concat();
        let explained = said(&mut world.migctl(&explain)).exits(1).json();
        assert_eq!(explained["fits"], false);
        has(explained["error"].as_str().unwrap(), "is damaged");
    }
}

/// No event tells that a process without a lease ends.
#[test]
fn waits_for_foreign_process() {
    let setup = Setup::on(Low::Runc, Machine::with(&["--gpu", "L4"]));
    let hold = setup.machine.hold(&["--gpu", "0"]);
    let words = format!(
        "GPU 0: process {} computes on it without a lease",
        hold.pid()
    );
    setup.refuses(&[(GPU, "1")], &words);
    let json = setup.json(&["gpus", "-o", "json"]);
    assert_eq!(json["items"][0]["use"], "foreign");
    let (id, waits) = setup.waits(&[(GPU, "1")]);
    hold.kill();
    waits.end().ok();
    setup.ends(&[&id]);
}

#[test]
fn container_gets_several_gpus() {
    let setup = Setup::on(Low::Runc, mixed());
    setup.configure("policy.gpus_per_container = 2");
    let bundle = asking(&setup, "2", SHOW);
    let said = setup.run(&bundle);
    let uuids = [1, 0].map(|n| setup.machine.gpu_uuid(n)).join(",");
    assert_eq!(visible(&said.stdout), Some(uuids.as_str()));
    let seen = nodes(&said.stdout);
    assert!(
        seen.contains_key("nvidia0") && seen.contains_key("nvidia1"),
        "{seen:?}"
    );
    setup.nothing_is_left();
}

/// A request that waits reserves every GPU that it could use.
/// Failure: a request for whole GPUs waits
#[test]
fn queue_serves_in_order() {
    let world = World::with_whole_gpus();
    let creates = |id: &str, count: &str, wait: &str| {
        world.bundle_saying(id, &[(GPU, count), ("runmig.dev/wait", wait)]);
        world.create_command(id)
    };
    world.configure("policy.gpus_per_container = 2");
    said(&mut creates("one", "1", "0s")).ok();
    let waits = |id: &str, count: &str| world.waits(id, &[(GPU, count)]);
    // One GPU is free, and both are wanted.
    let both = waits("both", "2");
    said(&mut creates("late", "1", "0s")).refused_for("GPU 2: reserved for an earlier request");
    let later = waits("later", "1");
    world.delete("one");
    both.end().ok();
    assert_eq!(world.queue(), ["later"]);
    world.delete("both");
    later.end().ok();
    world.ends(&["later"]);
}

#[test]
fn pod_shares_one_gpu() {
    let world = World::with_whole_gpus();
    let in_pod = |id: &str, key: &str, value: &str| {
        let asks = [
            (key, value),
            ("runmig.dev/scope", "pod"),
            ("io.kubernetes.cri.sandbox-id", "pod"),
        ];
        world.bundle_saying(id, &asks);
        world.create_command(id)
    };
    for id in ["one", "two"] {
        said(&mut in_pod(id, GPU, "1")).ok();
    }
    assert_eq!(world.uuids_in_bundle("one"), world.uuids_in_bundle("two"));
    world.nothing_lost_nothing_given_twice().unwrap();
    said(&mut in_pod("slice", "runmig.dev/slice", world.profile))
        .refused_for("of the same pod has GPU 1 for all of them, and this one asks for 1g.6gb");
    // If the GPU does not answer, no other one takes its place.
    world.lose(1, true);
    said(&mut in_pod("third", GPU, "1")).refused_for("which does not answer");
    world.lose(1, false);
    world.delete("one");
    // The GPU ends with the last container.
    world.has_its_slices("two").unwrap();
    world.bundle_saying("other", &[(GPU, "1")]);
    world.create("other");
    assert_ne!(world.uuids_in_bundle("other"), world.uuids_in_bundle("two"));
    for id in ["two", "other"] {
        world.delete(id);
    }
    world.as_if_nothing_had_been().unwrap();
}
