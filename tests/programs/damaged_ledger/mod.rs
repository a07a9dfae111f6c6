//! A ledger that is damaged, or that cannot be written: never a wrong destroy, never a place given twice, nothing lost in
//! silence, and one line that says what to do.

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
