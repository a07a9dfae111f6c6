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
    let one = unique();
    let first = asking(&setup, "1", "exec sleep 1000");
    let before = first.bytes();
    setup.create(&first, &one);
    // The GPU without MIG comes first.
    let lease = setup.the_lease();
    assert_eq!(lease["gpuUUID"], setup.machine.gpu_uuid(1).as_str());
    assert!(lease["memoryBytes"].as_u64().unwrap() > 20 << 30, "{lease}");
    assert_eq!(lease["state"], "ready");
    assert_eq!(lease["profile"], "gpu");
    for absent in "migPlacement migUUID gpuInstanceID computeInstanceID".split(' ') {
        assert_eq!(lease[absent], Value::Null, "{absent}");
    }
    setup.migctl(&["list"]).ok().says("gpu");

    let said = setup.run(&asking(&setup, "1", SHOW));
    let uuid = setup.machine.gpu_uuid(0);
    assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
    let seen: Vec<String> = nodes(&said.stdout).into_keys().collect();
    let is_gpu = |n: &&String| !n.contains('-') && *n != "nvidiactl";
    assert!(seen.iter().filter(is_gpu).eq(["nvidia0"]), "{seen:?}");
    assert!(!seen.iter().any(|node| node.contains("caps")), "{seen:?}");

    let said = setup.run(&asking(&setup, "1", OPEN));
    lacks(&said.stdout, "not permitted");
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
        let why = format!("annotation {GPU}: \"{bad}\" is not a number of GPUs from 1 to 64");
        setup.refuses(&[(GPU, bad)], &why);
    }
    for (asks, words) in testkit::rows! {
        &[(GPU, "1"), ("runmig.dev/slice", "1g.10gb")][..] =>
            "annotation runmig.dev/slice cannot stand beside runmig.dev/gpu: one container gets one kind";
        &[(GPU, "1"), ("runmig.dev/compute", "2")] => "counts compute slices";
        &[(GPU, "2")] => "(policy.gpus_per_container)";
    } {
        setup.refuses(asks, words);
    }
    setup.configure("policy.gpus_per_container = 9");
    let too_many = "only 2 GPUs are free; hint: ask for at most 2";
    setup.refuses(&[(GPU, "9")], too_many);
    setup.run(&asking(&setup, "none", "true"));
}

#[test]
fn prohibited_gpu_is_not_given() {
    let setup = Setup::with("--gpu L4 --compute-mode prohibited", "");
    setup.refuses(&[(GPU, "1")], "its compute mode is Prohibited");
    setup.nothing_is_left();
}

#[test]
fn share_is_not_on_gpu_of_one_container() {
    let setup = Setup::with("--gpu L4", "sharing.enforcement = [\"none\"]");
    let kinds = [(GPU, "1"), ("runmig.dev/share", "1Gi")];
    for (first, second) in [(0, 1), (1, 0)] {
        let id = setup.gives(&[kinds[first]]);
        let line = setup.refuses(&[kinds[second]], "cannot allocate ");
        has(&line, &format!("container {id}"));
        setup.ends(&[&id]);
    }
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
    let setup = Setup::with("--gpu L40S --gpu L4 --gpu T4", "");
    let limit = |memory: &str| {
        let rule = format!("[[policy.limit]]\nmemory = \"{memory}\"");
        setup.configure(&format!("policy.gpus_per_container = 2\n{rule}"));
    };
    limit("50Gi");
    let id = setup.gives(&[(GPU, "2")]);
    let index = |lease: &Value| lease["gpuIndex"].as_u64();
    let mut given: Vec<_> = setup.leases().iter().map(index).collect();
    given.sort();
    assert_eq!(given, [1, 2].map(Some));
    limit("10Gi");
    let patient = [(GPU, "1"), ("runmig.dev/wait", "10m")];
    setup.refuses(&patient, "of 10Gi of memory");
    setup.ends(&[&id]);
}

/// An idle slice whose GPU has left MIG mode is a record alone.
#[test]
fn idle_record_gives_way() {
    let world = World::small();
    world.configure("keep_idle = \"10m\"");
    world.comes_and_goes("slice");
    world.switch_mig_off(0);
    world.create_saying("whole", &[(GPU, "1")]);
    world.ends(&["whole"]);
}

/// Without the ledger nobody knows the holder of a GPU.
#[test]
fn unreadable_ledger_leaves_no_gpu_free() {
    let world = World::with_whole_gpus();
    world.create_saying("one", &[(GPU, "1")]);
    world.delete("one");
    world.damage_all();
    let gpus = world.ctl(&["gpus", "-o", "json"]).exits(1).json();
    assert_eq!(gpus["items"][1]["use"], "unknown");
    let page = world.ctl(&["top", "--once"]).exits(1);
    page.says("leases -, waiting -, ");
    for asked in ["--gpu=1", "1g.10gb"] {
        let explained = world.ctl(&["explain", asked, "-ojson"]).exits(1);
        explained.refused_for("is damaged");
    }
}

/// No event tells that a process without a lease ends.
#[test]
fn waits_for_foreign_process() {
    let setup = Setup::with("--gpu L4", "");
    let hold = setup.machine.hold(&["--gpu", "0"]);
    let pid = hold.pid();
    let words = format!("GPU 0: process {pid} computes on it without a lease");
    setup.refuses(&[(GPU, "1")], &words);
    assert_eq!(setup.items(&["gpus"])[0]["use"], "foreign");
    let (id, waits) = setup.waits(&[(GPU, "1")]);
    hold.kill();
    waits.end().ok();
    setup.ends(&[&id]);
}

#[test]
fn container_gets_several_gpus() {
    let setup = Setup::on(Low::Runc, mixed());
    setup.configure("policy.gpus_per_container = 2");
    let said = setup.run(&asking(&setup, "2", SHOW));
    let uuids = [1, 0].map(|n| setup.machine.gpu_uuid(n)).join(",");
    assert_eq!(visible(&said.stdout), Some(uuids.as_str()));
    let seen = nodes(&said.stdout);
    for node in ["nvidia0", "nvidia1"] {
        assert!(seen.contains_key(node), "{seen:?}");
    }
    setup.nothing_is_left();
}

/// A request that waits reserves every GPU that it could use.
/// Failure: a request for whole GPUs waits
#[test]
fn queue_serves_in_order() {
    let world = World::with_whole_gpus();
    world.configure("policy.gpus_per_container = 2");
    world.create_saying("one", &[(GPU, "1")]);
    let waits = |id: &str, count: &str| world.waits(id, &[(GPU, count)]);
    // One GPU is free, and both are wanted.
    let both = waits("both", "2");
    let why = "GPU 2: reserved for an earlier request";
    world.refuses_saying("late", &[(GPU, "1"), ("runmig.dev/wait", "0s")], why);
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
        said(&mut world.create_command(id))
    };
    for id in ["one", "two"] {
        in_pod(id, GPU, "1").ok();
    }
    assert_eq!(world.uuids_in_bundle("one"), world.uuids_in_bundle("two"));
    world.nothing_lost_nothing_given_twice().unwrap();
    let why = "of the same pod has GPU 1 for all of them, and this one asks for 1g.6gb";
    in_pod("slice", "runmig.dev/slice", world.profile).refused_for(why);
    // If the GPU does not answer, no other one takes its place.
    world.lose(1, true);
    in_pod("third", GPU, "1").refused_for("which does not answer");
    world.lose(1, false);
    world.delete("one");
    // The GPU ends with the last container.
    world.has_its_slices("two").unwrap();
    world.create_saying("other", &[(GPU, "1")]);
    assert_ne!(world.uuids_in_bundle("other"), world.uuids_in_bundle("two"));
    world.ends(&["two", "other"]);
}
