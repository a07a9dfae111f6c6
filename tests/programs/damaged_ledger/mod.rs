//! A ledger that is damaged, or that cannot be written: never a wrong destroy, never a place given
//! twice, and what is left of a record is enough to release its slice.

mod in_use;
mod lost;
#[path = "names.rs"]
mod names_that_tell;
mod unfinished;

use runmig::bundles;
use runmig::spec::bundle::Bundle;
use runmig_lease::config::Config;
use runmig_lease::{LeaseManager, Outcome};
use std::io::Write;
use testkit::faults::strace::settled;
use testkit::prelude::*;

const ID: &str = "victim";

/// The records of the only container: its lease, and its instance.
fn records(world: &World) -> [PathBuf; 2] {
    let records = world.records();
    records.try_into().unwrap_or_else(|all| panic!("{all:?}"))
}

fn config(world: &World) -> Config {
    Config::read(&world.path("config.toml")).unwrap()
}

/// A container with its slice; its lease, and the files of its lease and its instance.
fn running(world: &World) -> (String, [PathBuf; 2]) {
    world.create(ID);
    let lease = world.lease_of(ID)["id"].as_str().unwrap().to_owned();
    (lease, records(world))
}

/// A collector leaves the instance of an unreadable record alone, and says so. A readable lease tells that
/// the container lives.
fn is_kept(world: &World, leases: &LeaseManager<'_>, what: &str) {
    let found = leases.gc(false).unwrap();
    let outcomes: Vec<&Outcome> = found.damaged.iter().map(|(_, o)| o).collect();
    let says = |why: &str| why.contains("migctl release") || why.contains("its init, process");
    assert!(
        matches!(outcomes.as_slice(), [Outcome::Kept(why)] if says(why)),
        "{what}: {outcomes:?}"
    );
    assert_eq!(world.instances().len(), 1, "{what}");
}

/// Failure: the record of a lease or of an instance is cut off at any byte
#[test]
fn truncated_at_every_byte() {
    let world = World::small();
    let (_, files) = running(&world);
    let config = config(&world);
    let leases = bundles::existing_or_new(&config, runmig_lease::counters::Actor::Hook)
        .unwrap()
        .0;
    for file in &files {
        let whole = fs::read(file).unwrap();
        for length in 0..whole.len() {
            fs::write(file, &whole[..length]).unwrap();
            is_kept(
                &world,
                &leases,
                &format!("{} at {length} bytes", file.display()),
            );
            // Its place is not given to anyone else, not even when the driver does not show it.
            if length % 200 == 0 {
                for n in 1..world.slots {
                    world.create(&format!("other-{n}"));
                }
                said(&mut world.create_command("one-too-many")).refused();
                for n in 1..world.slots {
                    world.delete(&format!("other-{n}"));
                }
            }
        }
        let _ = writeln!(
            std::io::stderr(),
            "damaged ledger: {} was truncated at {} bytes",
            file.display(),
            whole.len()
        );
        fs::write(file, &whole).unwrap();
    }
    world.delete(ID);
    world.as_if_nothing_had_been().unwrap();
}

/// Ways to damage a record, whatever is in it.
fn damages(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = String::from_utf8(whole.to_vec()).unwrap();
    let mut flipped = whole.to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    vec![
        ("empty", Vec::new()),
        ("zeros", vec![0; whole.len()]),
        (
            "garbage",
            (0..whole.len()).map(|n| (n * 7919 % 251) as u8).collect(),
        ),
        ("one bit", flipped),
        (
            "newer",
            text.replacen("runmig.dev/v2", "runmig.dev/v3", 1)
                .into_bytes(),
        ),
        (
            "older",
            text.replacen("runmig.dev/v2", "runmig.dev/v1", 1)
                .into_bytes(),
        ),
        ("huge", vec![b' '; 1 << 20]),
    ]
}

/// Failure: a record of a lease, of an instance or of both has zeros, garbage, a flipped bit, another version, or is too large
#[test]
fn own_hook_releases_it() {
    each_damage(|world, lease, what| {
        world.behave("no-hooks");
        said(&mut world.bare(&["delete", "--force", ID])).ok();
        world.behave("");
        assert!(settled(&world.hook(ID, lease)).status.success());
        // With the original config.json, since the hook knows the bundle.
        world
            .as_if_nothing_had_been()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
    });
}

/// Such a create makes its own of what it finds there.
#[test]
fn hook_leaves_bundle_of_running_create() {
    let world = World::small();
    let (lease, [file, _]) = running(&world);
    fs::write(&file, "rubbish").unwrap();
    world.behave("no-hooks");
    said(&mut world.bare(&["delete", "--force", ID])).ok();
    let bundle = world.bundle(ID);
    let config_json = || fs::read(bundle.join("config.json")).unwrap();
    let edited = config_json();
    let config = config(&world);
    let opened = Bundle::open(&bundle).unwrap();
    let at_work = bundles::lock_if_any(&config, &opened).unwrap();
    assert!(settled(&world.hook(ID, &lease)).status.success());
    assert_eq!(world.instances(), []);
    assert_eq!(config_json(), edited);
    drop(at_work);
    // A program that another test starts has a copy of the lock until it is executed.
    let in_use = "in use by another create";
    until("the bundle is free", || {
        let ended = said(&mut world.create_command(ID));
        let is_created = ended.status.success();
        assert!(
            is_created || ended.stderr.contains(in_use),
            "{}",
            ended.stderr
        );
        is_created
    });
    world.delete(ID);
    world.as_if_nothing_had_been().unwrap();
}

/// Another low-level runtime under the same root knows nothing of it, and says that it is deleted.
/// Failure: a record is damaged, and another low-level runtime with the same root answers the delete
#[test]
fn foreign_delete_spares_living_container() {
    let world = World::small();
    let (_, [file, _]) = running(&world);
    let (ours, whole) = (world.the_instance(), fs::read(&file).unwrap());
    fs::write(&file, "rubbish").unwrap();
    let other = world.path("crun");
    testkit::runtimes::script(&other, "exit 0");
    world.configure_runtime(&other);
    let deleted = said(&mut world.runmig(&["delete", "--force", ID]));
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!(world.the_instance(), ours);
    world.configure("");
    fs::write(&file, whole).unwrap();
    world.delete(ID);
    world.as_if_nothing_had_been().unwrap();
}

#[test]
fn own_delete_releases_it() {
    each_damage(|world, _, what| {
        world.behave("no-hooks");
        world.delete(ID);
        world.behave("");
        assert_eq!(world.instances(), [], "{what}");
        assert!(world.records().is_empty(), "{what}");
    });
}

#[test]
fn operator_releases_it() {
    each_damage(|world, lease, what| {
        let list = said(&mut world.migctl(&["list"]));
        assert_eq!(list.status.code(), Some(1));
        assert!(list.stderr.contains(lease), "{what}: {}", list.stderr);
        world.behave("no-hooks");
        said(&mut world.bare(&["delete", "--force", ID])).ok();
        world.behave("");
        let list = said(&mut world.migctl(&["-o", "json", "release", lease])).ok();
        let list = list.json();
        assert_eq!((&list["items"], &list["waiting"]), (&json!([]), &json!([])));
        assert_eq!(world.instances(), [], "{what}");
    });
}

fn each_damage(give_back: impl Fn(&World, &str, &str)) {
    let world = World::small();
    let config = config(&world);
    let leases = bundles::existing_or_new(&config, runmig_lease::counters::Actor::Hook)
        .unwrap()
        .0;
    let (_, [file, _]) = running(&world);
    let ways = damages(&fs::read(&file).unwrap()).len();
    world.delete(ID);
    // The lease, the instance, or both.
    let cases = (0..ways).flat_map(|way| [&[0][..], &[1], &[0, 1]].map(|which| (way, which)));
    for (way, which) in cases {
        let (lease, files) = running(&world);
        let mut what = String::new();
        for file in which.iter().map(|n| &files[*n]) {
            let (how, bytes) = damages(&fs::read(file).unwrap()).swap_remove(way);
            fs::write(file, bytes).unwrap();
            what = format!("{how}, {which:?}");
        }
        is_kept(&world, &leases, &what);
        give_back(&world, &lease, &what);
        // Another's edit of the bundle may be there still: the next create starts from the original.
        world.create(ID);
        world.delete(ID);
        world.as_if_nothing_had_been().unwrap();
    }
}

/// Failure: a copy of a record, or a foreign file, is in the ledger
#[test]
fn refuses_record_under_other_name() {
    let world = World::small();
    let (lease, [file, _]) = running(&world);
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let copy = file.with_file_name(name.replace(&lease, &"0".repeat(32)));
    fs::copy(&file, &copy).unwrap();
    // It claims the same place and has nothing of its own there.
    world.gc().ok();
    assert!(!copy.exists());
    assert_eq!(world.instances().len(), 1);
    // A foreign file is named, and left alone.
    fs::write(file.with_file_name("notes.txt"), "?").unwrap();
    let list = said(&mut world.migctl(&["list"]));
    has(&list.stderr, "notes.txt");
    world.delete(ID);
    assert_eq!(world.instances(), []);
}

/// Failure: a record is damaged, and of an earlier boot
#[test]
fn removes_damaged_record_of_earlier_boot() {
    let world = World::small();
    let (_, files) = running(&world);
    files.iter().for_each(|file| fs::write(file, "").unwrap());
    world.reboot();
    world.admin_creates(0, world.profile, 0, true);
    let theirs = world.instances();
    world.gc().ok();
    assert!(world.records().is_empty());
    assert_eq!(world.instances(), theirs);
}

/// A small file system in memory for the state directory; unmounted when dropped.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(at: &Path) -> Option<Small<'_>> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs"]);
        if !mount.arg(at).output().is_ok_and(|o| o.status.success()) {
            testkit::skip("no file system may be mounted here");
            return None;
        }
        Some(Small(at))
    }

    fn remount(&self, how: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{how}")]).arg(self.0);
        assert!(mount.status().unwrap().success());
    }

    /// Leaves so many pages free.
    fn fill(&self, free: usize) -> PathBuf {
        let file = self.0.join("ballast");
        let mut out = fs::File::create(&file).unwrap();
        let mut pages = 0;
        while out.write_all(&[1; 4096]).is_ok() {
            pages += 1;
        }
        out.set_len(4096 * (pages - free.min(pages)) as u64)
            .unwrap();
        file
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

/// Failure: the disk is full during a release
/// Failure: the disk is full during a create
#[test]
fn survives_full_disk_at_every_write() {
    let world = World::small();
    let state = world.state();
    let Some(disk) = Small::mount(&state) else {
        return;
    };
    // The history of all rounds would fill this disk by itself.
    let events = world.path("events.jsonl");
    world.configure(&format!("events.file = {events:?}"));
    let (mut made, mut refused) = (0, 0);
    for free in 0..12 {
        // While it is made: all that was begun is undone, or all of it is there.
        world.create("warm-up");
        world.delete("warm-up");
        let ballast = disk.fill(free);
        let create = said(&mut world.create_command(ID));
        if create.status.success() {
            made += 1;
            assert!(world.living_init(ID).is_some());
        } else {
            refused += 1;
            let line = create.refused();
            assert!(line.contains("No space left on device"), "{free}: {line}");
        }
        world.nothing_lost_nothing_given_twice().unwrap();
        fs::remove_file(&ballast).unwrap();
        if world.living_init(ID).is_some() {
            world.delete(ID);
        }
        world.gc().ok();
        world.as_if_nothing_had_been().unwrap();
        // While it is released: a full disk keeps no slice.
        world.create(ID);
        let ballast = disk.fill(free);
        world.delete(ID);
        assert_eq!(world.instances(), [], "{free} pages free");
        fs::remove_file(&ballast).unwrap();
        world.gc().ok();
        world.as_if_nothing_had_been().unwrap();
    }
    assert!(made > 0 && refused > 1, "{made} made, {refused} refused");
}

/// Another program removed the lease of a dead container. Its instance goes without a mark.
#[test]
fn full_disk_leaves_no_stray_instance() {
    let world = World::small();
    let state = world.state();
    let Some(disk) = Small::mount(&state) else {
        return;
    };
    world.abandoned(ID);
    let [lease, _] = records(&world);
    fs::remove_file(lease).unwrap();
    disk.fill(0);
    world.gc().ok();
    assert_eq!(world.instances(), []);
    world.nothing_lost_nothing_given_twice().unwrap();
}

/// Failure: the state directory is read-only
#[test]
fn reports_read_only_state_directory() {
    let world = World::small();
    let state = world.state();
    let Some(disk) = Small::mount(&state) else {
        return;
    };
    world.create(ID);
    disk.remount("ro");
    let line = said(&mut world.create_command("other")).refused();
    has(&line, "Read-only file system");
    has(&line, "hint: mount it writable, or set state_dir");
    let doctor = said(&mut world.migctl(&["doctor", "--only", "state.folder"])).exits(1);
    has(&doctor.stdout, "Read-only file system");
    has(&doctor.stdout, "mount it writable, or set state_dir");
    // The container goes, its slice stays on record.
    world.delete(ID);
    world.nothing_lost_nothing_given_twice().unwrap();
    assert_eq!(world.instances().len(), 1);
    disk.remount("rw");
    world.gc().ok();
    world.as_if_nothing_had_been().unwrap();
}
