//! The grant of a seat, from the create to the end of its slice.

use super::*;

fn gives_seat(low: Low) {
    let setup = on(low, "none");
    let first = asking(&setup, "3g.40gb", "1/4");
    let (before, one) = (first.bytes(), unique());
    setup.create(&first, &one);
    let made = setup.machine.the_instance();
    let seat = setup.the_lease();
    assert_eq!(seat["state"], "ready");
    assert_eq!(seat["profile"], "3g.40gb");
    assert_eq!(seat["migUUID"], made.uuid.as_str());
    assert_eq!(seat["memoryBytes"], (MEMORY / 4) << 20);
    assert_eq!(seat["bookedBytes"], (MEMORY / 4) << 20);
    assert_eq!(seat["migPlacement"]["size"], made.size);
    let table = setup.tells(&["list", "-o", "wide"]);
    has(&table, "10048Mi of 3g.40gb");
    has(&table, &made.uuid);

    // The next container gets a seat in the same slice.
    let second = setup.bundle(&format!("{SHOW}; env"));
    second.annotate(SLICE, "3g.40gb");
    second.annotate(SHARE, "10Gi");
    let said = setup.run(&second);
    assert_eq!(visible(&said.stdout), Some(made.uuid.as_str()));
    let seen: Vec<String> = nodes(&said.stdout).into_keys().collect();
    for node in setup.machine.nodes_of(&made).keys() {
        assert!(seen.contains(node), "{node}: {seen:?}");
    }
    said.says("RUNMIG_GPU_MEMORY=10737418240\n");
    let part = 10_240 * 10_000 / MEMORY;
    said.says(&format!("RUNMIG_GPU_MEMORY_FRACTION=0.{part}\n"));
    assert_eq!(setup.machine.the_instance(), made);
    setup.ends(&[&one]);
    assert_eq!(first.bytes(), before);
}

testkit::tests! {
    runc_gives_seat: gives_seat(Low::Runc);
    crun_gives_seat: gives_seat(Low::Crun);
}

/// The slice goes with the last seat, in any order, and is never kept idle.
#[test]
fn slice_ends_with_last_seat() {
    for level in ["none", "mps"] {
        let setup = with(level, "keep_idle = \"5m\"");
        let ids: Vec<String> = (0..3).map(|_| create(&setup, "3g.40gb", "1/4")).collect();
        let made = setup.machine.the_instance();
        for id in &ids {
            assert_eq!(setup.machine.the_instance(), made);
            setup.delete(id);
        }
        setup.nothing_is_left();
    }
}

/// Neither an idle slice nor one of an administrator becomes a slice for seats.
#[test]
fn idle_slices_take_no_seats() {
    let setup = with("none", "keep_idle = \"5m\"\nadopt = true");
    setup.sim("create", &["--gpu", "0", "--profile", "3g.40gb"]);
    let theirs = setup.machine.the_instance();
    let (_, id) = setup.made("2g.20gb", "exec sleep 1000");
    let idle = setup.lease(&id)["migUUID"].clone();
    setup.delete(&id);
    let kept = setup.machine.instances();
    let seat = create(&setup, "2g.20gb,3g.40gb", "1/2");
    let mine = setup.lease(&seat);
    let is_it =
        |i: &testkit::Instance| i.profile == "2g.20gb" && mine["migUUID"] == i.uuid.as_str();
    assert!(setup.machine.instances().iter().any(is_it), "{mine}");
    // There is room beside it, so the idle slice stays.
    assert_ne!(mine["migUUID"], idle);
    // There is no room for another of these, and theirs is not for seats.
    let asks = [(SLICE, "3g.40gb"), (SHARE, "1/2")];
    setup.refuses(&asks, "it needs a new slice");
    setup.delete(&seat);
    assert_eq!(setup.machine.instances(), kept);
    assert!(kept.contains(&theirs));
}

/// Plain slices, seats, shares and whole GPUs work on one machine at once.
#[test]
fn every_kind_works_together() {
    let machine = Machine::of("--gpu A100-80GB --gpu H100-80GB --gpu L4 --mig on --mps");
    machine.sim("mig", &["--gpu", "1", "off"]);
    let setup = Setup::on(Low::Runc, machine);
    setup.configure("sharing.enforcement = [\"mps\", \"none\"]");
    let asks: [&[(&str, &str)]; 6] = [
        &[(SLICE, "3g.40gb"), (SHARE, "1/4")],
        &[(SLICE, "3g.40gb"), (SHARE, "10Gi")],
        &[(SLICE, "2g.20gb")],
        &[(SHARE, "8Gi")],
        &[("runmig.dev/gpu", "1")],
        &[(SLICE, "1g.10gb"), (SHARE, "none")],
    ];
    let ids = asks.map(|asks| setup.gives(asks));
    let of = |key: &str| -> Vec<String> {
        let shown = |id: &String| setup.lease(id)[key].as_str().unwrap_or("-").to_owned();
        ids.iter().map(shown).collect()
    };
    let kinds = ["seat", "seat", "slice", "share", "gpu", "slice"];
    assert_eq!(of("kind"), kinds);
    assert_eq!(of("enforcement"), ["mps", "mps", "mig", "mps", "-", "mig"]);
    let gpus = ids.each_ref().map(|id| setup.lease(id)["gpuIndex"].clone());
    assert_eq!(gpus, [0, 0, 0, 2, 1, 0]);
    let inspected = setup.json(&["inspect", "-o", "json"]);
    assert_eq!(inspected["items"][0]["leases"].as_array().unwrap().len(), 4);
    let gpus = setup.tells(&["gpus"]);
    assert!(gpus.contains(&ids[0]) && gpus.contains(&ids[1]), "{gpus}");
    setup.migctl(&["gc"]).ok();
    assert_eq!(setup.leases().len(), 6);
    ids.iter().rev().for_each(|id| setup.delete(id));
    setup.nothing_is_left();
}
