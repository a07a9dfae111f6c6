use super::*;
use crate::model::{Placement, Process};
use proptest::prelude::*;

fn lease(id: &str) -> Lease {
    Lease {
        id: id.into(),
        state: State::Creating,
        boot_id: "b".into(),
        created: "2026-01-01T00:00:00Z".into(),
        holder: Holder {
            key: Key::new("/run/runc".into(), "c1".into()),
            runtime: "/usr/sbin/runc".into(),
            bundle: "/b".into(),
            namespace: None,
            pod: None,
            pod_uid: None,
            container_name: Some("web".into()),
            user: Some(1000),
        },
        slice: Slice {
            request: "1g.10gb".into(),
            profile: "1g.10gb".into(),
            profile_id: 19,
            gpu_uuid: "GPU-1".into(),
            gpu_index: 0,
            gpu_minor: 0,
            placement: Placement { start: 3, size: 1 },
            gpu_instance: Some(10),
            compute_instance: None,
            mig_uuid: None,
            emptied: false,
        },
        creator: Process {
            pid: 1,
            start_time: 2,
        },
        runtime_process: None,
        init: None,
        cgroups: vec!["c1".into()],
        attempt: None,
        idle_since: None,
        adopted: false,
        shared_in: None,
        namespaces: None,
        unknown: serde_json::Map::new(),
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state"), Duration::from_millis(50)).unwrap();
    (dir, store)
}

#[test]
fn a_lease_is_found_again_until_it_is_removed() {
    let (_dir, store) = store();
    let one = lease("one");
    assert!(!store.has(&one.holder.key));
    let ledger = store.lock("test").unwrap();
    ledger.put(&one).unwrap();
    assert!(store.has(&one.holder.key));
    assert_eq!(store.get("one").unwrap(), Some(one.clone()));
    let now = ledger
        .update("one", |l| l.state = State::Ready)
        .unwrap()
        .unwrap();
    assert_eq!(store.list().unwrap().0, vec![now.clone()]);
    ledger.remove(&now).unwrap();
    ledger.remove(&now).unwrap();
    assert_eq!(ledger.update("one", |_| ()).unwrap(), None);
    assert!(!store.has(&one.holder.key));
}

#[test]
fn ids_under_two_roots_are_two_keys() {
    let a = lease("x").holder.key;
    let b = Key::new("/run/other".into(), a.id.clone());
    let glued = Key::new("/run/runcc".into(), "1".into());
    assert_ne!(a.prefix(), b.prefix());
    assert_ne!(a.prefix(), glued.prefix());
}

/// An upgrade may move the low-level runtime under a container that runs.
#[test]
fn key_ignores_the_low_level_runtime() {
    let (_dir, store) = store();
    let mut one = lease("one");
    store.lock("test").unwrap().put(&one).unwrap();
    one.holder.runtime = "/opt/runc".into();
    assert!(store.has(&one.holder.key));
}

/// Earlier versions had the low-level runtime in the key.
#[test]
fn reads_record_with_former_key() {
    let (_dir, store) = store();
    let mut json = serde_json::to_value(lease("one")).unwrap();
    json["holder"]["runtime"] = "/usr/sbin/runc".into();
    json["holder"]
        .as_object_mut()
        .unwrap()
        .remove("lowLevelRuntime");
    let former: Lease = serde_json::from_value(json).unwrap();
    let prefix = "1368eb0142ac2c901f025183.";
    assert_eq!(former.holder.key.prefix(), prefix);
    assert_eq!(former.holder.runtime(), Path::new("/usr/sbin/runc"));
    let ledger = store.lock("test").unwrap();
    ledger.put(&former).unwrap();
    let name = || store.names().pop().unwrap();
    assert!(name().starts_with(prefix), "{}", name());
    ledger.update("one", |l| l.state = State::Ready).unwrap();
    assert_eq!(store.names().len(), 1);
    assert!(name().starts_with(prefix), "{}", name());
    let (read, damaged) = store.list().unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    assert_eq!(read[0].holder.key, lease("one").holder.key);
}

#[test]
fn a_lock_that_is_held_is_waited_for_only_so_long_and_its_holder_named() {
    let (_dir, store) = store();
    let held = store.lock("create of c1").unwrap();
    let line = store.lock("me").err().unwrap().line();
    let us = std::process::id();
    assert!(
        line.contains(&format!("is held by process {us} (create of c1)")),
        "{line}"
    );
    drop(held);
    store.lock("me").unwrap();
}

/// A foreign program signs no lock, and the signature of the last holder would blame that holder.
#[test]
fn blames_no_holder_that_let_go() {
    use nix::fcntl::{Flock, FlockArg};
    let (_dir, store) = store();
    drop(store.lock("create of c1").unwrap());
    let path = store.dir().join("ledger.lock");
    let file = std::fs::File::open(&path).unwrap();
    let _silent = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    let line = || store.lock("me").err().unwrap().line();
    assert!(
        line().contains("is held by a process that cannot be named"),
        "{}",
        line()
    );
    // The file is as a killed holder leaves it, and another process has its number now.
    let us = std::process::id();
    std::fs::write(&path, format!("process {us} (create of c1)\n1 0\n")).unwrap();
    assert!(
        line().contains("is held by a process that cannot be named"),
        "{}",
        line()
    );
}

/// A process that takes a lock again and again is a queue that moves on.
#[test]
fn tells_one_hold_from_the_next() {
    let (_dir, store) = store();
    let signature = || std::fs::read_to_string(store.dir().join("ledger.lock")).unwrap();
    let held = store.lock("gc").unwrap();
    let first = signature();
    drop(held);
    let _held = store.lock("gc").unwrap();
    assert_ne!(signature(), first);
}

#[test]
fn a_path_without_utf8_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let (_dir, store) = store();
    let mut lease = lease("one");
    lease.holder.bundle = std::ffi::OsStr::from_bytes(b"/b\xff").into();
    let line = store.lock("t").unwrap().put(&lease).unwrap_err().line();
    assert!(line.contains("valid UTF-8"), "{line}");
    assert!(store.names().is_empty());
}

#[test]
fn a_lock_file_that_was_taken_away_locks_nobody_out_and_lets_nobody_in_twice() {
    let (_dir, store) = store();
    let held = store.lock("a").unwrap();
    std::fs::remove_file(store.dir().join("ledger.lock")).unwrap();
    let second = store.lock("b").unwrap();
    drop(held);
    assert!(store.lock("c").is_err());
    drop(second);
}

#[test]
fn a_newer_record_is_left_alone_and_said_to_be_newer() {
    let text = String::from_utf8(record::encode(&lease("one")).unwrap()).unwrap();
    let newer = text.replace("runmig.dev/v1", "runmig.dev/v2");
    let line = record::decode(newer.as_bytes()).unwrap_err().line();
    assert!(
        line.starts_with("a Lease of runmig.dev/v2, and this program reads"),
        "{line}"
    );
}

#[test]
fn fields_that_a_newer_program_added_are_kept() {
    let mut with = lease("one");
    with.unknown
        .insert("sharedBy".into(), serde_json::json!([1, 2]));
    assert_eq!(
        record::decode(&record::encode(&with).unwrap()).unwrap(),
        with
    );
}

#[test]
fn what_is_cut_off_anywhere_is_damaged_and_never_half_read() {
    let whole = record::encode(&lease("one")).unwrap();
    for end in 0..whole.len() {
        assert!(record::decode(&whole[..end]).is_err(), "cut off at {end}");
    }
}

#[test]
fn a_damaged_record_hides_no_other() {
    let (_dir, store) = store();
    store.lock("t").unwrap().put(&lease("one")).unwrap();
    std::fs::write(store.dir().join("leases/x.two"), [0u8; 100]).unwrap();
    std::os::unix::fs::symlink("/dev/zero", store.dir().join("leases/x.three")).unwrap();
    let (leases, damaged) = store.list().unwrap();
    assert_eq!((leases.len(), damaged.len()), (1, 2));
}

#[test]
fn names_tell_places_of_unreadable_records() {
    let (_dir, store) = store();
    let ledger = store.lock("t").unwrap();
    let mut nobodys = lease("two");
    nobodys.holder = Holder::default();
    for lease in [&lease("one"), &nobodys] {
        ledger.put(lease).unwrap();
    }
    let damaged = store.leases().join(RecordName::of(&nobodys).name());
    std::fs::write(damaged, "").unwrap();
    std::fs::write(store.leases().join("notes.txt"), "").unwrap();
    let mut names = store.record_names().unwrap();
    names.sort_by(|a, b| a.lease.cmp(&b.lease));
    assert_eq!(names, [&lease("one"), &nobodys].map(RecordName::of));
    let is_nobodys: Vec<bool> = names.iter().map(RecordName::is_nobodys).collect();
    assert_eq!(is_nobodys, [false, true]);
    assert!(names[0].is_of(&lease("one").holder.key));
}

/// The same holds if the state directory outlives a boot.
#[test]
fn a_place_is_one_on_one_boot() {
    let one = RecordName::of(&lease("one"));
    assert!(one.is_at_place_of(&RecordName::of(&lease("two"))));
    for change in [
        (|l: &mut Lease| l.boot_id = "later".into()) as fn(&mut Lease),
        |l| l.slice.gpu_uuid = "GPU-2".into(),
        |l| l.slice.placement.start = 4,
    ] {
        let mut other = lease("two");
        change(&mut other);
        assert!(!one.is_at_place_of(&RecordName::of(&other)));
    }
}

proptest! {
    #[test]
    fn a_changed_byte_is_found(at in 0usize..1200, to in any::<u8>()) {
        let mut bytes = record::encode(&lease("one")).unwrap();
        let at = at % bytes.len();
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        // Only white space in the header keeps the meaning.
        if let Ok(read) = record::decode(&bytes) {
            prop_assert_eq!(read, lease("one"));
        }
    }
}

/// An older program sees a release in progress, or a foreign file.
#[test]
fn what_an_older_program_makes_of_what_is_there_already() {
    let mut idle = lease("idle");
    (idle.state, idle.idle_since) = (State::Releasing, Some("2026-01-01T00:00:00.5Z".into()));
    assert_eq!(idle.shown_state(), "idle");
    let text = String::from_utf8(encode(&idle).unwrap()).unwrap();
    assert!(text.contains(r#""state":"releasing""#), "{text}");
    // A name had seven parts before adopted and shared leases existed.
    let parts = |lease: &Lease| RecordName::of(lease).name().split('.').count();
    assert_eq!(parts(&idle), 7);
    assert_eq!(RecordName::of(&idle).ownership, Ownership::Own);
    let (mut adopted, mut shared) = (lease("adopted"), lease("shared"));
    adopted.adopted = true;
    shared.shared_in = Some("sandbox s".into());
    assert_eq!((parts(&adopted), parts(&shared)), (8, 8));
    for (lease, ownership) in [(&adopted, Ownership::Adopted), (&shared, Ownership::Shared)] {
        let name = RecordName::of(lease);
        assert_eq!(name.ownership, ownership);
        assert_eq!(RecordName::parse(&name.name()), Some(name));
    }
    // Shared or not, runmig does not destroy it.
    adopted.shared_in = shared.shared_in.clone();
    assert_eq!(RecordName::of(&adopted).ownership, Ownership::Adopted);
    // This version leaves a newer version's lease alone, and does not give out its place.
    let newer = RecordName::parse("k.l.b.GPU-1.19.3.1.borrowed").unwrap();
    assert_eq!(newer.ownership, Ownership::Unknown);
    assert_eq!(newer.placement.start, 3);
}

#[test]
fn one_lease_for_another_of_the_same_slice() {
    let (_dir, store) = store();
    let (old, new) = (lease("old"), lease("new"));
    assert!(old.has_instance_of(&new));
    let ledger = store.lock("test").unwrap();
    ledger.put(&old).unwrap();
    ledger.replace(&old, &new).unwrap();
    assert_eq!(store.list().unwrap().0, vec![new.clone()]);
    let mut planned = new.clone();
    planned.slice.gpu_instance = None;
    assert!(!planned.has_instance_of(&planned.clone()));
    for change in [
        (|l: &mut Lease| l.boot_id = "later".into()) as fn(&mut Lease),
        |l| l.slice.gpu_uuid = "GPU-2".into(),
        |l| l.slice.gpu_instance = Some(11),
        |l| l.slice.placement.start = 4,
    ] {
        let mut other = new.clone();
        change(&mut other);
        assert!(!new.has_instance_of(&other));
    }
}

/// A reader without a lock always finds one of the two.
#[test]
fn one_of_the_two_is_seen_whenever_one_looks() {
    let (_dir, store) = store();
    let [mut old, mut new] = ["a", "b"].map(lease);
    store.lock("test").unwrap().put(&old).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                store.lock("test").unwrap().replace(&old, &new).unwrap();
                std::mem::swap(&mut old, &mut new);
            }
        });
        let seen = (0..2000).map(|_| store.list().unwrap().0.len()).min();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(seen >= Some(1));
    });
}

/// The folder is longer than one listing of the kernel, in memory as `/run` is.
#[test]
fn a_record_is_there_while_it_is_replaced() {
    const MANY: usize = 400;
    let memory = Path::new("/dev/shm");
    let home = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    let dir = tempfile::tempdir_in(home).unwrap();
    let store = Store::open(&dir.path().join("state"), Duration::from_secs(10)).unwrap();
    let leases: Vec<Lease> = (0..MANY).map(|n| lease(&format!("{n:032}"))).collect();
    let put_all = || {
        let ledger = store.lock("test").unwrap();
        leases.iter().for_each(|l| ledger.put(l).unwrap());
    };
    put_all();
    let names = store.names();
    assert_eq!(names.len(), MANY);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| (0..20).for_each(|_| put_all()));
        while !writing.is_finished() {
            assert_eq!(store.names(), names);
        }
    });
}

#[test]
fn one_at_a_time_has_a_bundle() {
    let (_dir, store) = store();
    let bundle = |ino| BundleId { dev: 1, ino };
    let first = store.try_lock_bundle(bundle(1)).unwrap().unwrap();
    assert!(store.try_lock_bundle(bundle(1)).unwrap().is_none());
    let second = store.try_lock_bundle(bundle(2)).unwrap();
    assert!(second.is_some());
    drop(first);
    assert!(store.try_lock_bundle(bundle(1)).unwrap().is_some());
    assert!(store.try_lock_bundle(bundle(2)).unwrap().is_none());
}
