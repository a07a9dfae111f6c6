//! A ledger that is damaged, or that cannot be written: never a wrong destroy, never a place given twice, nothing lost in
//! silence, and one line that says what to do.

mod lost;
mod under_load;

use testkit::prelude::*;

const ID: &str = "victim";

fn ledger(world: &World) -> PathBuf {
    world.state().join("ledger.json")
}

fn before(world: &World) -> PathBuf {
    world.state().join("ledger.json.1")
}

/// A way to damage the ledger.
type Damage = fn(&World);

fn write(world: &World, bytes: impl AsRef<[u8]>) {
    fs::write(ledger(world), bytes).unwrap();
}

/// Ways to damage a ledger whose generation before is whole, with a word of the reason.
const DAMAGES: &[(&str, Damage)] = &[
    ("it is missing", |w| fs::remove_file(ledger(w)).unwrap()),
    ("it is cut off", |w| write(w, "")),
    ("it is cut off", |w| write(w, [0; 4096])),
    ("it is not text", |w| {
        let bytes = (0..5000).map(|n| (n * 7919 % 251) as u8);
        write(w, bytes.collect::<Vec<_>>());
    }),
    ("its hash is wrong", |w| {
        let mut bytes = fs::read(ledger(w)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        write(w, bytes);
    }),
    ("longer than", |w| {
        let file = fs::OpenOptions::new().write(true).open(ledger(w)).unwrap();
        file.set_len(1 << 30).unwrap();
    }),
    ("it is a link", |w| {
        let _ = fs::remove_file(w.path("elsewhere"));
        fs::hard_link(ledger(w), w.path("elsewhere")).unwrap();
        symlink(w.path("elsewhere"), w.path("link")).unwrap();
        fs::rename(w.path("link"), ledger(w)).unwrap();
    }),
    ("not a regular file", |w| {
        // A writer at work may put its file there in between.
        until("a folder is in its place", || {
            fs::remove_file(ledger(w)).unwrap();
            fs::create_dir(ledger(w)).is_ok()
        });
    }),
    ("and the ledger was at", |w| {
        fs::remove_file(ledger(w)).unwrap();
        fs::rename(before(w), ledger(w)).unwrap();
    }),
];

/// A container with its slice, and its lease.
fn running(world: &World) -> String {
    world.create(ID);
    world.lease_id(ID)
}

/// Every verb that would read or change the ledger says why it does not, and changes nothing.
#[track_caller]
fn is_refused(world: &World, why: &str) {
    let there = world.instances();
    for line in [
        world.refuses("other", ""),
        world.ctl(&["list"]).refused(),
        world.ctl(&["gc"]).refused(),
        world.ctl(&["explain", world.profile]).refused(),
        world.ctl(&["inspect"]).refused(),
        world.ctl(&["release", ID]).refused(),
        world.ctl(&["gpus"]).exits(1).stderr,
    ] {
        for words in ["is damaged: ", why, "hint: run migctl gc --repair as root"] {
            has(&line, words);
        }
    }
    assert_eq!(world.instances(), there);
    assert!(!world.bundle_is_edited("other"));
}

/// Failure: the ledger is missing, cut off, changed, too large, older, a link or a folder
#[test]
fn repairs_under_living_container() {
    let world = World::small();
    for (why, damage) in DAMAGES {
        let lease = running(&world);
        damage(&world);
        is_refused(&world, why);
        world.repair().warns(why).says("in the generation before");
        assert_eq!(world.lease_id(ID), lease, "{why}");
        world.gc().ok();
        world.has_its_slices(ID).unwrap();
        world.nothing_lost_nothing_given_twice().unwrap();
        world.delete(ID);
        { world.as_if_nothing_had_been() }.unwrap_or_else(|e| panic!("{why}: {e}"));
        world.repair().says("the ledger is whole");
    }
}

/// Failure: a container ends while the ledger is damaged
#[test]
fn hook_releases_beside_damaged_ledger() {
    let world = World::small();
    for (why, damage) in DAMAGES {
        eprintln!("{why}");
        running(&world);
        damage(&world);
        world.delete(ID);
        assert_eq!(world.instances(), [], "{why}");
        assert!(!world.bundle_is_edited(ID), "{why}");
        // Nobody else gets its place before the repair, after which its lease is collected.
        is_refused(&world, why);
        world.repair();
        world.gc().ok();
        { world.as_if_nothing_had_been() }.unwrap_or_else(|e| panic!("{why}: {e}"));
    }
}

/// Without the hook nobody knows the bundle, and the slice waits for the repair.
#[test]
fn delete_without_hook_leaves_slice_to_repair() {
    let world = World::small();
    running(&world);
    world.damage_all();
    world.behave("no-hooks");
    world.delete(ID);
    world.behave("");
    assert_eq!(world.instances().len(), 1);
    world.repair();
    world.nobody_is_left();
}

/// A delete of a container without a lease is none of runmig's business.
#[test]
fn passes_other_containers_on() {
    let world = World::small();
    for (_, damage) in DAMAGES {
        running(&world);
        damage(&world);
        for verb in [&["delete", "--force", "nobody"][..], &["state", ID]] {
            let passed = said(&mut world.runmig(verb));
            lacks(&passed.stderr, "is damaged");
        }
        world.repair();
        world.delete(ID);
    }
    world.as_if_nothing_had_been().unwrap();
}

fn damage_both(world: &World) {
    world.damage_all();
    fs::write(before(world), "").unwrap();
}

/// Failure: the ledger and the generation before are damaged
#[test]
fn repairs_by_accounts_alone() {
    let world = World::small();
    let lease = running(&world);
    damage_both(&world);
    is_refused(&world, "it is cut off");
    world.repair().says("by its account");
    assert_eq!(world.lease_id(ID), lease);
    assert_eq!(world.lease_of(ID)["state"], "ready");
    world.gc().ok();
    world.has_its_slices(ID).unwrap();
    world.ends(&[ID]);
}

/// The accounts are gone too: the slice of the container counts as an administrator's, and its hook brings it back.
#[test]
fn repairs_without_any_account() {
    let world = World::small();
    let lease = running(&world);
    let ours = world.the_instance();
    damage_both(&world);
    let gpus = world.ctl(&["gpus"]).exits(1);
    gpus.says("unknown: the ledger cannot be read");
    fs::remove_dir_all(world.state().join("accounts")).unwrap();
    let repaired = world.repair();
    let (gi, gpu) = (ours.gi, &ours.gpu_uuid);
    for words in [
        "neither a whole copy nor an account told of a lease; hint: end all containers",
        &format!("GPU instance {gi} ("),
        "has no owner on record",
        &format!("nvidia-smi mig -i {gpu} -gi {gi} -dci"),
    ] {
        repaired.warns(words);
    }
    let others: Vec<String> = (1..world.slots).map(|n| format!("other-{n}")).collect();
    world.create_all(&others);
    world.refuses("one-too-many", "");
    assert!(world.instances().contains(&ours));
    world.delete_all(&others);
    settled(&world.hook(ID, &lease)).ok();
    world.ends(&[ID]);
}

/// An account that cannot be read is named: its container may have a GPU.
#[test]
fn repair_names_account_that_tells_nothing() {
    let world = World::with_whole_gpus();
    world.bundle_saying(ID, &[("runmig.dev/gpu", "1")]);
    let lease = running(&world);
    damage_both(&world);
    fs::write(world.state().join("accounts").join(&lease), "{").unwrap();
    let living = format!("lease {lease} may have a living container");
    world.repair().warns(&living);
    world.all_go(&[ID]);
}

/// What a repair reads from is there until the new ledger is.
/// Failure: the disk is full during a repair
#[test]
fn failed_repair_loses_nothing() {
    let world = World::small();
    let disk = Mounted::tmpfs(&world.state(), "size=64k,mode=700");
    let lease = running(&world);
    fs::write(ledger(&world), vec![b'x'; 3000]).unwrap();
    let ballast = disk.fill(0);
    let failed = world.ctl(&["gc", "--repair"]);
    failed.refused_for("No space left on device");
    fs::remove_file(ballast).unwrap();
    world.repair();
    assert_eq!(world.lease_id(ID), lease);
    world.all_go(&[ID]);
}

/// Runs the hook of a container that ended beside a damaged ledger. Its slice is in use until this is done.
fn hook_with_slice_in_use(meanwhile: fn(&World)) -> World {
    let world = World::small();
    let lease = world.abandoned(ID);
    world.damage_all();
    let instance = world.the_instance();
    let held = world.hold(instance.gpu, instance.gi, None);
    nvml_sim::trace::on(&world.machine()).unwrap();
    let hook = world.hook(ID, &lease);
    std::thread::scope(|scope| {
        let hook = scope.spawn(|| settled(&hook));
        until("the driver refuses", || world.refusals() > 0);
        meanwhile(&world);
        drop(held);
        hook.join().unwrap().ok();
    });
    world
}

/// After the repair the place may be another's, so the hook releases by the ledger.
/// Failure: a repair comes between two tries of a hook
#[test]
fn hook_goes_on_by_repaired_ledger() {
    let world = hook_with_slice_in_use(|world| drop(world.repair()));
    world.as_if_nothing_had_been().unwrap();
}

/// Failure: the slice of a container that ends beside a damaged ledger is in use
#[test]
fn hook_waits_for_slice_in_use() {
    let world = hook_with_slice_in_use(|_| ());
    assert_eq!(world.instances(), []);
    world.repair();
    world.nobody_is_left();
}

/// Others of its pod may use the slice.
#[test]
fn hook_spares_shared_slice() {
    let world = World::small();
    for id in [ID, "other"] {
        world.create_in_pod(id, "pod");
    }
    let ours = world.the_instance();
    world.damage_all();
    let deleted = said(&mut world.bare(&["delete", "--force", ID]));
    deleted.warns("other containers may use the slice");
    assert_eq!(world.the_instance(), ours);
    world.repair();
    world.has_its_slices("other").unwrap();
    world.all_go(&["other"]);
}

/// An administrator's instance outlives its leases, on record or not.
#[test]
fn hook_spares_adopted_slice() {
    let world = World::small();
    world.configure("adopt = true\n");
    world.admin_leaves(0, world.profile, 0);
    running(&world);
    world.damage_all();
    said(&mut world.bare(&["delete", "--force", ID])).ok();
    assert_eq!(world.instances().len(), 1);
    world.repair();
    world.nobody_is_left();
}

/// Its instances ended with the boot, and nothing there now is its own.
/// Failure: the ledger is damaged, and of an earlier boot
#[test]
fn repairs_ledger_of_earlier_boot() {
    let world = World::small();
    running(&world);
    world.damage_all();
    world.reboot();
    world.admin_creates(0, world.profile, 0, true);
    let theirs = world.instances();
    world.repair();
    world.gc().ok();
    assert!(world.records().is_empty());
    assert_eq!(world.instances(), theirs);
}

/// A program of another version would lose what it does not know, and repairs nothing.
/// Failure: the ledger is of another version
#[test]
fn refuses_ledger_of_another_version() {
    let world = World::small();
    running(&world);
    let whole = fs::read(ledger(&world)).unwrap();
    for version in ["runmig.dev/v3", "runmig.dev/v5"] {
        testkit::faults::check::rewrite(&world.state(), |header, _| {
            header["apiVersion"] = version.into();
        });
        for verb in [&["list"][..], &["gc"], &["gc", "--repair"]] {
            let line = world.ctl(verb).refused();
            has(&line, &format!("the ledger is a Ledger of {version}"));
            has(&line, "hint: use the runmig that wrote it");
        }
        world.refuses("other", "");
        fs::write(ledger(&world), &whole).unwrap();
    }
    world.ends(&[ID]);
}

/// The generation before is there, and the accounts. A verb that only reads makes nothing anew.
#[test]
fn repairs_what_a_removal_in_part_leaves() {
    let world = World::small();
    let lease = running(&world);
    for file in ["ledger.json", "ledger.lock"] {
        fs::remove_file(world.state().join(file)).unwrap();
    }
    fs::remove_dir_all(world.state().join("operations")).unwrap();
    has(&world.ctl(&["list"]).refused(), "it is missing");
    world.ctl(&["gc", "--repair"]).ok();
    assert_eq!(world.lease_id(ID), lease);
    world.ends(&[ID]);
}

/// Two creates race with the repair: none gets the place of the living container.
#[test]
fn creates_race_with_repair() {
    let world = World::with_whole_gpus();
    world.create_saying(ID, &[("runmig.dev/gpu", "1")]);
    let has = world.uuids_in_bundle(ID);
    fs::write(before(&world), "").unwrap();
    world.damage_all();
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for id in ids {
        world.bundle_saying(id, &[("runmig.dev/gpu", "1")]);
    }
    let repairing = going(&mut world.migctl(&["gc", "--repair"]));
    let creates = ids.map(|id| going(&mut world.create_command(id)));
    let ended = creates.map(|create| create.end().status.success());
    repairing.end().ok();
    world.nothing_lost_nothing_given_twice().unwrap();
    for (id, is_made) in ids.into_iter().zip(ended) {
        assert!(!is_made || world.uuids_in_bundle(id) != has, "{id}");
    }
}

/// Failure: the disk is full during a release
/// Failure: the disk is full during a create
#[test]
fn survives_full_disk_at_every_write() {
    let world = World::small();
    let disk = Mounted::tmpfs(&world.state(), "size=64k,mode=700");
    // The history of all rounds would fill this disk by itself.
    let events = world.path("events.jsonl");
    world.configure(&format!("events.file = {events:?}"));
    let (mut made, mut refused) = (0, 0);
    for free in 0..12 {
        eprintln!("{free} free");
        // While it is made: all that was begun is undone, or all of it is there.
        world.comes_and_goes("warm-up");
        // A writer without room takes that of the generation before.
        let without_before = || fs::remove_file(before(&world)).unwrap();
        without_before();
        let ballast = disk.fill(free);
        let create = said(&mut world.create_command(ID));
        if create.status.success() {
            made += 1;
            assert!(world.living_init(ID).is_some());
        } else {
            refused += 1;
            create.refused_for("No space left on device");
        }
        world.nothing_lost_nothing_given_twice().unwrap();
        fs::remove_file(&ballast).unwrap();
        if world.living_init(ID).is_some() {
            world.delete(ID);
        }
        world.nobody_is_left();
        // While it is released: a full disk keeps no slice.
        world.create(ID);
        let has_before = free % 2 == 0;
        if !has_before {
            without_before();
        }
        let ballast = disk.fill(free);
        let failed = || world.log().matches("write the ledger").count();
        let until_now = failed();
        world.delete(ID);
        assert_eq!(world.instances(), [], "{free} pages free");
        if has_before {
            assert!(world.records().is_empty(), "{free} pages free");
            assert_eq!(failed(), until_now, "{free} pages free");
        }
        fs::remove_file(&ballast).unwrap();
        world.nobody_is_left();
    }
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
}

/// Failure: log and history would fill the small disk of the ledger
#[test]
fn logs_leave_room_on_a_small_disk() {
    let sizes = |world: &World, name: &str| {
        [name.to_owned(), format!("{name}.1")]
            .map(|name| fs::metadata(world.state().join(name)).map_or(0, |m| m.len()))
    };
    for small in [false, true] {
        let world = World::small();
        fs::create_dir(world.state()).unwrap();
        let disk = small.then(|| Mounted::tmpfs(&world.state(), "size=2m,mode=700"));
        // A sixteenth of the small disk is 128 KiB.
        let line = "{}\n".repeat(50_000);
        for name in ["runmig.log", "events.jsonl"] {
            fs::write(world.state().join(name), &line).unwrap();
        }
        world.create(ID);
        for name in ["runmig.log", "events.jsonl"] {
            let [now, before] = sizes(&world, name);
            let old = line.len() as u64;
            let is_rotated = (now > 0 && now < old, before == old);
            assert_eq!(is_rotated, (small, small), "{name}: {now}, {before}");
        }
        world.all_go(&[ID]);
        drop(disk);
    }
}

/// Failure: the state directory is read-only
#[test]
fn reports_read_only_state_directory() {
    let world = World::small();
    let disk = Mounted::tmpfs(&world.state(), "size=64k,mode=700");
    world.create(ID);
    disk.remount("ro");
    let line = world.refuses("other", "Read-only file system");
    has(&line, "hint: mount it writable, or set state_dir");
    let doctor = world.ctl(&["doctor", "--only", "state.folder"]).exits(1);
    doctor.says("Read-only file system");
    doctor.says("mount it writable, or set state_dir");
    // The container goes, its slice stays on record.
    world.delete(ID);
    world.nothing_lost_nothing_given_twice().unwrap();
    assert_eq!(world.instances().len(), 1);
    disk.remount("rw");
    world.nobody_is_left();
}
