//! Whole GPUs for containers, on GPUs that are not in MIG mode.

use nvml_sim::engine::Mode;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use testkit::bundle::{OPEN, SHOW, nodes, visible};
use testkit::faults::World;
use testkit::faults::check::names;
use testkit::process::until;
use testkit::sharing::{mixed, refusal};
use testkit::{Bundle, Going, Low, Machine, Setup, going, said, unique};

const GPU: &str = "runmig.dev/gpu";

fn asking(setup: &Setup, count: &str, script: &str) -> Bundle {
    let bundle = setup.bundle(script);
    bundle.annotate(GPU, count);
    bundle
}

fn gives_gpu_alone(low: Low) {
    let Some(setup) = Setup::on(low, mixed()) else {
        return;
    };
    let (one, two) = (unique(), unique());
    let first = asking(&setup, "1", "exec sleep 1000");
    let before = first.bytes();
    setup.runmig(&["create", "-b", first.as_str(), &one]).ok();
    // The GPU without MIG comes first.
    let lease = setup.the_lease();
    assert_eq!(
        (&lease["kind"], &lease["state"]),
        (&"gpu".into(), &"ready".into())
    );
    assert_eq!(lease["gpuUUID"], setup.machine.gpu_uuid(1).as_str());
    assert_eq!(lease["request"], "1 GPU");
    assert!(lease["memoryBytes"].as_u64().unwrap() > 20 << 30, "{lease}");
    assert_eq!(
        (&lease["profile"], &lease["migPlacement"]["size"]),
        (&"gpu".into(), &0.into())
    );
    for absent in ["migUUID", "gpuInstanceID", "computeInstanceID"] {
        assert_eq!(lease[absent], Value::Null, "{absent}");
    }
    let table = setup.migctl(&["list"]).ok().stdout;
    assert!(table.contains("gpu"), "{table}");

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
    let said = setup.runmig(&["run", "-b", opens.as_str(), &unique()]).ok();
    assert!(!said.stdout.contains("not permitted"), "{said:?}");
    setup.runmig(&["delete", "--force", &one]).ok();
    setup.nothing_is_left();
    assert_eq!(first.bytes(), before);
}

#[test]
fn runc_gets_gpu_alone() {
    gives_gpu_alone(Low::Runc);
}

#[test]
fn crun_gets_gpu_alone() {
    gives_gpu_alone(Low::Crun);
}

#[test]
fn full_machine_names_holders() {
    let Some(setup) = Setup::on(Low::Runc, mixed()) else {
        return;
    };
    let (one, two) = (unique(), unique());
    for id in [&one, &two] {
        let bundle = asking(&setup, "1", "exec sleep 1000");
        setup.runmig(&["create", "-b", bundle.as_str(), id]).ok();
    }
    let third = asking(&setup, "1", "true");
    let line = setup
        .runmig(&["create", "-b", third.as_str(), "third"])
        .refused();
    assert_eq!(
        line,
        format!(
            "runmig: cannot allocate 1 whole GPU: no GPU is free (GPU 0: container {two} has it; GPU 1: \
             container {one} has it); hint: run migctl list to see who holds the GPUs, or set \
             runmig.dev/wait to wait"
        )
    );
    let explained = setup.migctl(&["explain", "--gpu", "1"]).exits(1).stdout;
    assert!(
        explained.starts_with("full: cannot allocate 1 whole GPU"),
        "{explained}"
    );
    let gpus = setup.migctl(&["gpus"]).ok().stdout;
    assert!(gpus.contains(&format!("container {two} has it")), "{gpus}");
    for id in [&one, &two] {
        setup.runmig(&["delete", "--force", id]).ok();
    }
    setup.nothing_is_left();
    let explained = setup
        .migctl(&["explain", "--gpu", "1", "--json"])
        .ok()
        .json();
    assert_eq!(explained["alternatives"][0]["verdict"], "fits");
    assert_eq!(explained["alternatives"][0]["why"], "GPU 1 (NVIDIA L4)");
}

#[test]
fn slices_and_whole_gpus_live_together() {
    let machine = Machine::with(&["--gpu", "H100-80GB", "--count", "2", "--mig", "on"]);
    machine.sim("mig", &["--gpu", "1", "off"]);
    let Some(setup) = Setup::on(Low::Runc, machine) else {
        return;
    };
    let (slice, whole) = (unique(), unique());
    let bundle = setup.asking("1g.10gb", "exec sleep 1000");
    setup
        .runmig(&["create", "-b", bundle.as_str(), &slice])
        .ok();
    let bundle = asking(&setup, "1", "exec sleep 1000");
    setup
        .runmig(&["create", "-b", bundle.as_str(), &whole])
        .ok();
    let kinds: Vec<Value> = setup.leases().iter().map(|l| l["kind"].clone()).collect();
    assert!(kinds.contains(&"slice".into()) && kinds.contains(&"gpu".into()));
    let json = setup.migctl(&["gpus", "-o", "json"]).ok().json();
    assert_eq!(json["items"][0]["use"], "mig");
    assert_eq!(json["items"][1]["use"], "exclusive");
    let line = setup.migctl(&["explain", "--gpu", "1"]).exits(1).stdout;
    assert!(line.contains("GPU 0: in MIG mode"), "{line}");
    for id in [&slice, &whole] {
        setup.runmig(&["delete", "--force", id]).ok();
    }
    setup.nothing_is_left();
}

/// A GPU on which others compute is not given out. One that only draws is.
#[test]
fn foreign_process_keeps_gpu() {
    let machine = Machine::with(&["--gpu", "L4"]);
    let Some(setup) = Setup::on(Low::Runc, machine) else {
        return;
    };
    let mut hold = setup.machine.sim_command("hold");
    let mut hold = going(hold.args(["--gpu", "0"]).stdin(Stdio::null()));
    hold.until("holding");
    let line = refusal(&setup, &[(GPU, "1")]);
    let pid = hold.pid();
    assert!(
        line.contains(&format!(
            "GPU 0: process {pid} computes on it without a lease"
        )),
        "{line}"
    );
    let json = setup.migctl(&["gpus", "-o", "json"]).ok().json();
    assert_eq!(json["items"][0]["use"], "foreign");
    hold.kill();
    let bundle = asking(&setup, "1", "true");
    setup
        .runmig(&["run", "-b", bundle.as_str(), &unique()])
        .ok();
    setup.nothing_is_left();
}

#[test]
fn prohibited_compute_mode_is_unusable() {
    let machine = Machine::with(&["--gpu", "L4", "--compute-mode", "prohibited"]);
    let Some(setup) = Setup::on(Low::Runc, machine) else {
        return;
    };
    let line = refusal(&setup, &[(GPU, "1"), ("runmig.dev/wait", "10m")]);
    assert!(
        line.contains("GPU 0: its compute mode is Prohibited"),
        "{line}"
    );
}

#[test]
fn bad_requests_change_nothing() {
    let Some(setup) = Setup::on(Low::Runc, mixed()) else {
        return;
    };
    for bad in ["0", "-1", "+1", "all", "1.5", "65", ""] {
        let line = refusal(&setup, &[(GPU, bad)]);
        assert!(
            line.contains(&format!(
                "annotation {GPU}: \"{bad}\" is no number of GPUs from 1 to 64"
            )),
            "{line}"
        );
    }
    let both = refusal(&setup, &[(GPU, "1"), ("runmig.dev/slice", "1g.10gb")]);
    assert!(
        both.contains("annotation runmig.dev/slice cannot stand beside runmig.dev/gpu: one container gets one kind"),
        "{both}"
    );
    let compute = refusal(&setup, &[(GPU, "1"), ("runmig.dev/compute", "2")]);
    assert!(compute.contains("counts compute slices"), "{compute}");
    let several = refusal(&setup, &[(GPU, "2")]);
    assert!(several.contains("(policy.gpus_per_container)"), "{several}");
    setup.configure("policy.gpus_per_container = 9");
    let too_many = refusal(&setup, &[(GPU, "9")]);
    assert!(
        too_many.contains("only 2 GPUs are free; hint: ask for at most 2"),
        "{too_many}"
    );
    let none = setup.bundle("true");
    none.annotate(GPU, "none");
    setup.runmig(&["run", "-b", none.as_str(), &unique()]).ok();
}

#[test]
fn container_key_wins_over_other_kinds() {
    let Some(setup) = Setup::on(Low::Runc, mixed()) else {
        return;
    };
    let bundle = setup.asking("1g.10gb", SHOW);
    bundle.annotate("gpu.runmig.dev/web", "1");
    bundle.annotate("io.kubernetes.container.name", "web");
    let said = setup
        .runmig(&["run", "-b", bundle.as_str(), &unique()])
        .ok();
    let uuid = setup.machine.gpu_uuid(1);
    assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
    setup.nothing_is_left();
}

#[test]
fn policy_governs_whole_gpus() {
    let Some(setup) = Setup::on(Low::Runc, mixed()) else {
        return;
    };
    // An upgrade loosens nothing: whoever listed profiles allowed slices alone.
    setup.configure("policy.profiles = [\"*\"]");
    let line = refusal(&setup, &[(GPU, "1")]);
    assert!(
        line.contains("requests for a GPU are not allowed (policy.profiles without policy.kinds)"),
        "{line}"
    );
    setup.configure("policy.profiles = [\"*\"]\npolicy.kinds = [\"slice\"]");
    assert!(refusal(&setup, &[(GPU, "1")]).contains("(policy.kinds)"));
    setup.configure("policy.kinds = [\"gpu\"]");
    let line = refusal(&setup, &[("runmig.dev/slice", "1g.10gb")]);
    assert!(
        line.contains("requests for a slice are not allowed"),
        "{line}"
    );
    setup.configure("policy.exclude_gpus = [0, 1]");
    let line = refusal(&setup, &[(GPU, "1"), ("runmig.dev/wait", "10m")]);
    assert!(
        line.contains("GPU 1: excluded by policy.exclude_gpus"),
        "{line}"
    );

    // A limit that knows slices alone counts GPUs as slices.
    for (limit, words) in [
        ("slices = 1", "1 of 1 slices"),
        ("slices = 5\ngpus = 1", "1 of 1 GPUs"),
        ("memory = \"30Gi\"", "of 30Gi of memory"),
    ] {
        let id = unique();
        let bundle = asking(&setup, "1", "exec sleep 1000");
        setup.configure(&format!(
            "policy.gpus_per_container = 2\n[[policy.limit]]\n{limit}"
        ));
        setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
        let second = asking(&setup, "1", "true");
        let line = setup
            .runmig(&["create", "-b", second.as_str(), &unique()])
            .refused();
        assert!(line.contains(words), "{limit}: {line}");
        setup.runmig(&["delete", "--force", &id]).ok();
    }
    setup.nothing_is_left();
}

/// A limit refuses at once what it will never allow, and chooses smaller GPUs where those fit.
#[test]
fn memory_limit_chooses_smaller_gpus() {
    let machine = Machine::with(&["--gpu", "L40S", "--gpu", "L4", "--gpu", "T4"]);
    let Some(setup) = Setup::on(Low::Runc, machine) else {
        return;
    };
    let limit = |memory: &str| {
        let rule = format!("[[policy.limit]]\nmemory = \"{memory}\"");
        setup.configure(&format!("policy.gpus_per_container = 2\n{rule}"));
    };
    limit("50Gi");
    let id = unique();
    let bundle = asking(&setup, "2", "exec sleep 1000");
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
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
    let line = setup
        .runmig(&["create", "-b", late.as_str(), &unique()])
        .refused();
    assert!(line.contains("of 10Gi of memory"), "{line}");
    setup.runmig(&["delete", "--force", &id]).ok();
    setup.nothing_is_left();
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
    world.delete("whole");
    world.as_if_nothing_had_been().unwrap();
}

/// Without the ledger nobody knows the holder of a GPU.
#[test]
fn unreadable_ledger_leaves_no_gpu_free() {
    let world = World::with_whole_gpus();
    world.bundle_saying("one", &[(GPU, "1")]);
    world.create("one");
    world.delete("one");
    let leases = world.state().join("leases");
    std::fs::remove_dir_all(&leases).unwrap();
    std::fs::write(&leases, "").unwrap();
    let gpus = said(&mut world.migctl(&["gpus", "-o", "json"]))
        .exits(1)
        .json();
    assert_eq!(gpus["items"][1]["use"], "unknown");
    let explained = said(&mut world.migctl(&["explain", "--gpu", "1", "--json"])).exits(1);
    assert_eq!(explained.json()["fits"], false);
}

/// No event tells that a process without a lease ends.
#[test]
fn waits_for_foreign_process() {
    let Some(setup) = Setup::on(Low::Runc, Machine::with(&["--gpu", "L4"])) else {
        return;
    };
    let mut hold = setup.machine.sim_command("hold");
    let mut hold = going(hold.args(["--gpu", "0"]).stdin(Stdio::null()));
    hold.until("holding");
    let (bundle, id) = (asking(&setup, "1", "exec sleep 1000"), unique());
    bundle.annotate("runmig.dev/wait", "10m");
    let mut create = setup.command(&["create", "-b", bundle.as_str(), &id]);
    let create = going(create.stdin(Stdio::null()));
    until("it waits", || queue(&setup.state()) == [id.as_str()]);
    hold.kill();
    create.end().ok();
    setup.runmig(&["delete", "--force", &id]).ok();
    setup.nothing_is_left();
}

#[test]
fn container_gets_several_gpus() {
    let Some(setup) = Setup::on(Low::Runc, mixed()) else {
        return;
    };
    setup.configure("policy.gpus_per_container = 2");
    let bundle = asking(&setup, "2", SHOW);
    let said = setup
        .runmig(&["run", "-b", bundle.as_str(), &unique()])
        .ok();
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
#[test]
fn queue_serves_in_order() {
    let world = World::with_whole_gpus();
    let creates = |id: &str, count: &str, wait: &str| {
        world.bundle_saying(id, &[(GPU, count), ("runmig.dev/wait", wait)]);
        world.create_command(id)
    };
    world.configure("policy.gpus_per_container = 2");
    said(&mut creates("one", "1", "0s")).ok();
    let waits = |id: &str, count: &str| -> Going {
        let create = going(creates(id, count, "10m").stdin(Stdio::null()));
        until("it waits", || queue(&world.state()).iter().any(|w| w == id));
        create
    };
    // One GPU is free, and both are wanted.
    let both = waits("both", "2");
    let line = said(&mut creates("late", "1", "0s")).refused();
    assert!(
        line.contains("GPU 2: reserved for an earlier request"),
        "{line}"
    );
    let later = waits("later", "1");
    world.delete("one");
    both.end().ok();
    assert_eq!(queue(&world.state()), ["later"]);
    world.delete("both");
    later.end().ok();
    world.delete("later");
    world.as_if_nothing_had_been().unwrap();
}

/// Returns the waiting containers, in order.
fn queue(state: &Path) -> Vec<String> {
    let dir = state.join("queue");
    let read = |name: &String| -> Option<String> {
        let waiter: Value = serde_json::from_slice(&std::fs::read(dir.join(name)).ok()?).ok()?;
        Some(waiter["container"].as_str()?.to_owned())
    };
    names(&dir).iter().filter_map(read).collect()
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
    let line = said(&mut in_pod("slice", "runmig.dev/slice", world.profile)).refused();
    assert!(
        line.contains("of the same pod has GPU 1 for all of them, and this one asks for 1g.6gb"),
        "{line}"
    );
    // If the GPU does not answer, no other one takes its place.
    world.lose(1, true);
    let line = said(&mut in_pod("third", GPU, "1")).refused();
    assert!(line.contains("which does not answer"), "{line}");
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

/// A record that cannot be read keeps its GPU, until the operator releases it.
#[test]
fn damaged_record_keeps_gpu() {
    let world = World::with_whole_gpus();
    world.bundle_saying("one", &[(GPU, "1")]);
    let lease = world.abandoned("one");
    world.damage_all();
    world.bundle_saying("two", &[(GPU, "1")]);
    world.create("two");
    world.bundle_saying("three", &[(GPU, "1")]);
    let line = said(&mut world.create_command("three")).refused();
    assert!(
        line.contains("GPU 1: a record in the ledger holds it"),
        "{line}"
    );
    said(&mut world.migctl(&["release", &lease])).ok();
    world.create("three");
    for id in ["two", "three"] {
        world.delete(id);
    }
    let left = world.records();
    assert!(left.is_empty(), "{left:?}");
}
