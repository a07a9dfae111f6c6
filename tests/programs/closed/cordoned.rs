//! A cordoned GPU gives nothing new of any kind, and keeps what lives.

use super::*;

fn cordon(world: &World) {
    world.tells(&["cordon", "0", "--reason", "fan fails"]);
}

#[test]
fn refuses_every_kind_and_says_why() {
    let setup = Setup::with("--gpu A100-80GB --gpu L4", NONE);
    for gpu in ["0", "1"] {
        setup.migctl(&["cordon", gpu, "--reason", "fan fails"]).ok();
    }
    let requests: [&[(&str, &str)]; 5] = [
        &[(SLICE, "1g.10gb")],
        &[(SLICE, "1g.10gb,20Gi")],
        &[(SLICE, "1g.10gb"), ("runmig.dev/share", "2Gi")],
        &[("runmig.dev/share", "2Gi")],
        &[("runmig.dev/gpu", "1")],
    ];
    for asks in requests {
        let line = setup.refuses(asks, "cordoned since 20");
        has(&line, "(fan fails)");
        has(&line, "run migctl uncordon ");
        has(&line, ", or set runmig.dev/wait to wait");
    }
    for request in ["1g.10gb", "--share=2Gi", "--gpu=1"] {
        let explained = setup.migctl(&["explain", request]).exits(1);
        explained.says("(fan fails)");
    }
    setup.nothing_is_left();
}

#[test]
fn views_name_it_and_history_has_it() {
    let world = World::small();
    cordon(&world);
    // Again, it changes nothing.
    world.tells(&["cordon", "0"]);
    let closed = gpu(&world)["closed"].clone();
    assert_eq!(closed["reasons"], json!(["cordoned"]));
    assert_eq!(closed["remedy"], "run migctl uncordon 0");
    for (verb, words) in testkit::rows! {
        &["gpus"][..] => "gives nothing new: cordoned since 20";
        &["metrics"] => "gpu=\"0\",reason=\"cordoned\"} 1";
        &["doctor", "--only", "driver"] => "warn  driver.gpus              GPU 0 gives nothing new: cordoned";
        &["doctor", "--only", "driver"] => "repair: run migctl uncordon 0";
        &["uncordon", "0"] => "GPU 0 is open again";
        &["uncordon", "0"] => "GPU 0 was not cordoned";
    } {
        world.ctl(verb).ok().says(words);
    }
    let uuid = &world.engine().gpus[0].uuid;
    let events = world.tells(&["events"]);
    let told = { events.lines() }.filter_map(|line| line.split_once(' '));
    let told: Vec<&str> = told.map(|(_, what)| what).collect();
    let wanted = [
        format!("cordoned {uuid}, fan fails"),
        format!("uncordoned {uuid}"),
    ];
    assert_eq!(told, wanted);
    world.create("a");
    world.all_go(&["a"]);
}

#[test]
fn json_has_the_leases_that_stay() {
    let world = World::small();
    world.create("a");
    let id = world.lease_of("a")["id"].clone();
    for arguments in [&["cordon", "0"][..], &["drain", "0"], &["uncordon", "0"]] {
        let list = world.json(&[arguments, &["-o", "json"]].concat());
        assert_eq!(list["kind"], "LeaseList");
        let stay = list["items"].as_array().unwrap();
        assert_eq!((stay.len(), &stay[0]["id"]), (1, &id), "{arguments:?}");
    }
    world.all_go(&["a"]);
}

/// Reuse and adoption are new leases, too.
#[test]
fn hands_out_no_instance_that_is_there() {
    let (world, _) = World::with_idle_slice();
    cordon(&world);
    world.refuses("b", "cordoned");
    world.tells(&["uncordon", "0"]);
    world.configure("");
    world.gc().ok();
    world.configure("adopt = true");
    world.admin_creates(0, world.profile, 0, true);
    cordon(&world);
    world.refuses("c", "cordoned");
    world.tells(&["uncordon", "0"]);
    world.create("c");
    assert_eq!(world.instances().len(), 1);
    world.delete("c").ok();
}

/// A slice with seats takes no more, and a slice of a pod serves its other containers.
#[test]
fn seats_are_new_and_pods_go_on() {
    let world = World::small();
    world.configure(NONE);
    let seat = [(SLICE, "4g.24gb"), ("runmig.dev/share", "2Gi")];
    world.create_saying("seat", &seat);
    cordon(&world);
    world.refuses_saying("late", &seat, "cordoned");
    world.tells(&["uncordon", "0"]);
    world.delete("seat");
    world.create_in_pod("first", "pod");
    cordon(&world);
    world.create_in_pod("second", "pod");
    assert_eq!(world.instances().len(), 1);
    world.refuses("other", "cordoned");
    world.tells(&["uncordon", "0"]);
    world.all_go(&["first", "second"]);
}

/// A pod goes on beside a cordon, and not on a sick GPU.
#[test]
fn pod_gets_no_more_of_a_sick_gpu() {
    let world = World::small();
    world.create_in_pod("first", "pod");
    health(&world, 0, sick());
    world.bundle_in_pod("second", world.profile, "pod");
    let words = "of the same pod has its slice on GPU 0, which is sick: ";
    let line = world.refuses("second", words);
    has(&line, "hint: run migctl drain 0 --wait");
    world.all_go(&["first"]);
}

/// What an open GPU would not have is not worth a wait for a closed one.
#[test]
fn refuses_at_once_what_never_fits() {
    let verdict = |world: &World, asked: &str| {
        let told = world.ctl(&["explain", "-o", "json", asked]);
        told.exits(1).json()["alternatives"][0]["verdict"].clone()
    };
    let world = World::small();
    cordon(&world);
    assert_eq!(verdict(&world, "7g.80gb"), "unsatisfiable");
    assert_eq!(verdict(&world, "--gpu=1"), "unsatisfiable");
    assert_eq!(verdict(&world, world.profile), "full");
    let world = World::with_whole_gpus();
    world.configure(NONE);
    for n in 0..world.items(&["gpus"]).len() {
        world.tells(&["cordon", &n.to_string()]);
    }
    assert_eq!(verdict(&world, "--share=1000Gi"), "unsatisfiable");
    assert_eq!(verdict(&world, "--share=2Gi"), "full");
}

/// Failure: a reboot, and a repair of the ledger, of a machine with a cordoned GPU
#[test]
fn survives_reboot_and_repair() {
    let world = World::small();
    world.create("a");
    cordon(&world);
    fs::write(world.state().join("ledger.json"), "").unwrap();
    world.repair();
    world.refuses("b", "(fan fails)");
    world.delete("a");
    world.reboot();
    fs::remove_dir_all(world.state()).unwrap();
    world.refuses("b", "(fan fails)");
    world.tells(&["uncordon", "0"]);
    world.create("b");
    world.all_go(&["b"]);
}

/// Failure: another user may write the cordons, or they are damaged
#[test]
fn unreadable_cordons_close_every_gpu() {
    let world = World::small();
    cordon(&world);
    let file = world.path("data").join("cordons.json");
    let unreadable = "cannot read the cordons in";
    chmod(&file, 0o666);
    let line = world.refuses("a", unreadable);
    has(&line, "users other than root can write to it (mode 0666)");
    let hint = "hint: make the file and its folder writable by root alone, or mend the file";
    has(&line, hint);
    world.ctl(&["uncordon", "0"]).refused();
    chmod(&file, 0o600);
    fs::write(&file, "{").unwrap();
    world.refuses("b", unreadable);
    assert_eq!(gpu(&world)["closed"]["reasons"], json!(["cordoned"]));
    // Who can write to the folder may have removed the file.
    fs::remove_file(&file).unwrap();
    chmod(world.path("data"), 0o777);
    world.refuses("b", unreadable);
    chmod(world.path("data"), 0o700);
    world.create("c");
    world.all_go(&["c"]);
}

/// Failure: the GPU to cordon fell off the bus
#[test]
fn lost_gpu_is_cordoned_by_its_uuid() {
    let world = World::small();
    let uuid = world.engine().gpus[0].uuid.clone();
    world.lose(0, true);
    world
        .ctl(&["cordon", "0"])
        .refused_for("hint: name it by its full UUID");
    world.tells(&["cordon", &uuid]);
    world.lose(0, false);
    world.refuses("a", "cordoned");
    world.tells(&["uncordon", "0"]);
    world.create("a");
    world.all_go(&["a"]);
}

#[test]
fn waiter_goes_on_at_uncordon_and_keeps_its_turn() {
    let world = World::small();
    cordon(&world);
    let first = world.waits("first", &[(SLICE, "4g.24gb")]);
    let second = world.waits("second", &[(SLICE, "4g.24gb")]);
    world.tells(&["uncordon", "0"]);
    first.end().ok();
    assert_eq!(world.queue(), ["second"]);
    world.delete("first");
    second.end().ok();
    world.all_go(&["second"]);
}

/// A create that has looked before has the lock of the choice until its lease is on record.
#[test]
fn no_create_chooses_by_a_look_before_the_cordon() {
    let world = World::small();
    world.takes("nvmlDeviceGetFieldValues", 300);
    let mut create = world.creating("a");
    let held = || {
        let plan = fs::read_to_string(world.state().join("plan.lock"));
        plan.is_ok_and(|text| !text.is_empty())
    };
    until("it looks", || held() || create.ended().is_some());
    world.no_faults();
    let leases = world.items(&["cordon", "0"]);
    let ended = create.end();
    // The create was past its look, or it was not.
    assert_eq!(
        ended.status.success(),
        leases.len() == 1,
        "{leases:?} {ended:?}"
    );
}

#[test]
fn reason_has_a_limit() {
    let world = World::small();
    let cordon = |reason: &str| world.ctl(&["cordon", "0", "--reason", reason]).exits(2);
    cordon(&"x".repeat(257)).warns("it has 257 characters, more than 256");
    cordon("").warns("it is empty");
}
