//! A cordoned GPU gives nothing new of any kind, and keeps what lives.

use super::*;

fn cordon(world: &World) {
    world.tells(&["cordon", "0", "--reason", "fan fails"]);
}

#[test]
fn refuses_every_kind_and_says_why() {
    let setup = Setup::on(
        Low::Runc,
        Machine::with(&["--gpu", "A100-80GB", "--gpu", "L4"]),
    );
    setup.configure("[sharing]\nenforcement = [\"none\"]\n");
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
    for arguments in [
        &["explain", "1g.10gb"][..],
        &["explain", "--share", "2Gi"],
        &["explain", "--gpu", "1"],
    ] {
        has(&setup.migctl(arguments).exits(1).stdout, "(fan fails)");
    }
    setup.nothing_is_left();
}

#[test]
fn views_name_it_and_history_has_it() {
    let world = World::small();
    cordon(&world);
    // Again, it changes nothing.
    world.tells(&["cordon", "0"]);
    has(
        &world.tells(&["gpus"]),
        "gives nothing new: cordoned since 20",
    );
    let closed = gpu(&world)["closed"].clone();
    assert_eq!(closed["reasons"], json!(["cordoned"]));
    assert_eq!(closed["remedy"], "run migctl uncordon 0");
    has(
        &world.tells(&["metrics"]),
        "gpu=\"0\",reason=\"cordoned\"} 1",
    );
    let doctor = said(&mut world.migctl(&["doctor", "--only", "driver"])).stdout;
    has(
        &doctor,
        "warn  driver.gpus              GPU 0 gives nothing new: cordoned",
    );
    has(&doctor, "repair: run migctl uncordon 0");
    has(&world.tells(&["uncordon", "0"]), "GPU 0 is open again");
    has(&world.tells(&["uncordon", "0"]), "GPU 0 was not cordoned");
    let uuid = &world.engine().gpus[0].uuid;
    let events = world.tells(&["events"]);
    let told: Vec<&str> = events
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, what)| what)
        .collect();
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
    let stay = |arguments: &[&str]| {
        let list = world.json(&[arguments, &["-o", "json"]].concat());
        assert_eq!(list["kind"], "LeaseList");
        list["items"].as_array().unwrap().clone()
    };
    let id = world.lease_of("a")["id"].clone();
    for arguments in [&["cordon", "0"][..], &["drain", "0"], &["uncordon", "0"]] {
        let stay = stay(arguments);
        assert_eq!((stay.len(), &stay[0]["id"]), (1, &id), "{arguments:?}");
    }
    world.all_go(&["a"]);
}

/// Reuse and adoption are new leases, too.
#[test]
fn hands_out_no_instance_that_is_there() {
    let (world, _) = World::with_idle_slice();
    cordon(&world);
    has(&refused(&world, "b", &[(SLICE, world.profile)]), "cordoned");
    world.tells(&["uncordon", "0"]);
    world.configure("");
    world.gc().ok();
    world.configure("adopt = true");
    world.admin_creates(0, world.profile, 0, true);
    cordon(&world);
    has(&refused(&world, "c", &[(SLICE, world.profile)]), "cordoned");
    world.tells(&["uncordon", "0"]);
    world.create("c");
    assert_eq!(world.instances().len(), 1);
    world.delete("c").ok();
}

/// A slice with seats takes no more, and a slice of a pod serves its other containers.
#[test]
fn seats_are_new_and_pods_go_on() {
    let world = World::small();
    world.configure("[sharing]\nenforcement = [\"none\"]\n");
    let seat = [(SLICE, "4g.24gb"), ("runmig.dev/share", "2Gi")];
    world.bundle_saying("seat", &seat);
    world.create("seat");
    cordon(&world);
    has(&refused(&world, "late", &seat), "cordoned");
    world.tells(&["uncordon", "0"]);
    world.delete("seat");
    world.bundle_in_pod("first", world.profile, "pod");
    world.create("first");
    cordon(&world);
    world.bundle_in_pod("second", world.profile, "pod");
    world.create("second").ok();
    assert_eq!(world.instances().len(), 1);
    has(
        &refused(&world, "other", &[(SLICE, world.profile)]),
        "cordoned",
    );
    world.tells(&["uncordon", "0"]);
    world.all_go(&["first", "second"]);
}

/// A pod goes on beside a cordon, and not on a sick GPU.
#[test]
fn pod_gets_no_more_of_a_sick_gpu() {
    let world = World::small();
    world.bundle_in_pod("first", world.profile, "pod");
    world.create("first");
    health(&world, 0, sick());
    world.bundle_in_pod("second", world.profile, "pod");
    let line = said(&mut world.create_command("second")).refused();
    has(
        &line,
        "of the same pod has its slice on GPU 0, which is sick: ",
    );
    has(&line, "hint: run migctl drain 0 --wait");
    world.all_go(&["first"]);
}

/// What an open GPU would not have is not worth a wait for a closed one.
#[test]
fn refuses_at_once_what_never_fits() {
    let world = World::small();
    cordon(&world);
    let verdict = |asked: &[&str]| {
        let words = [&["explain", "-o", "json"], asked].concat();
        let told = said(&mut world.migctl(&words)).exits(1).json();
        let one = told["alternatives"][0]["verdict"].as_str().unwrap();
        one.to_owned()
    };
    assert_eq!(verdict(&["7g.80gb"]), "unsatisfiable");
    assert_eq!(verdict(&["--gpu", "1"]), "unsatisfiable");
    assert_eq!(verdict(&[world.profile]), "full");
    let world = World::with_whole_gpus();
    world.configure("[sharing]\nenforcement = [\"none\"]\n");
    let gpus = world.json(&["gpus", "-o", "json"]);
    for n in 0..gpus["items"].as_array().unwrap().len() {
        world.tells(&["cordon", &n.to_string()]);
    }
    let share = |size: &str| {
        let told = said(&mut world.migctl(&["explain", "--share", size, "-o", "json"]));
        let told = told.exits(1).json();
        told["alternatives"][0]["verdict"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(share("1000Gi"), "unsatisfiable");
    assert_eq!(share("2Gi"), "full");
}

/// Failure: a reboot, and a repair of the ledger, of a machine with a cordoned GPU
#[test]
fn survives_reboot_and_repair() {
    let world = World::small();
    world.create("a");
    cordon(&world);
    fs::write(world.state().join("ledger.json"), "").unwrap();
    said(&mut world.migctl(&["gc", "--repair"])).ok();
    has(
        &refused(&world, "b", &[(SLICE, world.profile)]),
        "(fan fails)",
    );
    world.delete("a");
    world.reboot();
    fs::remove_dir_all(world.state()).unwrap();
    has(
        &refused(&world, "b", &[(SLICE, world.profile)]),
        "(fan fails)",
    );
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
    let asks = [(SLICE, world.profile)];
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    let line = refused(&world, "a", &asks);
    has(&line, "cannot read the cordons in");
    has(&line, "users other than root can write to it (mode 0666)");
    has(
        &line,
        "hint: make the file and its folder writable by root alone, or mend the file",
    );
    said(&mut world.migctl(&["uncordon", "0"])).refused();
    mode(0o600);
    fs::write(&file, "{").unwrap();
    has(&refused(&world, "b", &asks), "cannot read the cordons in");
    assert_eq!(gpu(&world)["closed"]["reasons"], json!(["cordoned"]));
    // Who can write to the folder may have removed the file.
    fs::remove_file(&file).unwrap();
    let folder = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(world.path("data"), permissions).unwrap();
    };
    folder(0o777);
    has(&refused(&world, "b", &asks), "cannot read the cordons in");
    folder(0o700);
    world.create("c");
    world.all_go(&["c"]);
}

/// Failure: the GPU to cordon fell off the bus
#[test]
fn lost_gpu_is_cordoned_by_its_uuid() {
    let world = World::small();
    let uuid = world.engine().gpus[0].uuid.clone();
    world.lose(0, true);
    said(&mut world.migctl(&["cordon", "0"])).refused_for("hint: name it by its full UUID");
    world.tells(&["cordon", &uuid]);
    world.lose(0, false);
    has(&refused(&world, "a", &[(SLICE, world.profile)]), "cordoned");
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
    world.bundle_asking("a", world.profile);
    let mut create = going(world.create_command("a").stdin(Stdio::null()));
    let held = |world: &World| {
        let plan = fs::read_to_string(world.state().join("plan.lock"));
        plan.is_ok_and(|text| !text.is_empty())
    };
    until("it looks", || held(&world) || create.ended().is_some());
    world.no_faults();
    let listed = world.json(&["cordon", "0", "-o", "json"]);
    let leases = listed["items"].as_array().unwrap().len();
    let ended = create.end();
    // The create was past its look, or it was not.
    assert_eq!(ended.status.success(), leases == 1, "{listed} {ended:?}");
}

#[test]
fn reason_has_a_limit() {
    let world = World::small();
    let long = "x".repeat(257);
    let said = said(&mut world.migctl(&["cordon", "0", "--reason", &long])).exits(2);
    has(&said.stderr, "it has 257 characters, more than 256");
    let said = testkit::process::said(&mut world.migctl(&["cordon", "0", "--reason="])).exits(2);
    has(&said.stderr, "it is empty");
}
