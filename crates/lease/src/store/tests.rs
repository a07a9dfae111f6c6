use super::*;
use crate::framed::{decode, encode};
use crate::model::{InstanceId, Placement, Process};
use proptest::prelude::*;

mod counting;
mod damage;

pub(crate) fn lease(id: &str) -> Lease {
    Lease {
        id: id.into(),
        instance: InstanceId::new(format!("i{id}")),
        portion: Portion::All,
        state: LeaseState::Pending,
        created: "2026-01-01T00:00:00Z".into(),
        request: "1g.10gb".into(),
        holder: Holder::Container(Container {
            key: Key::new("/run/runc".into(), "c1".into()),
            runtime: "/usr/sbin/runc".into(),
            bundle: "/b".into(),
            namespace: None,
            pod: None,
            pod_uid: None,
            container_name: Some("web".into()),
            user: Some(1000),
        }),
        operation: None,
        creator: Process {
            pid: 1,
            start_time: 2,
        },
        runtime_process: None,
        init: None,
        cgroups: vec!["c1".into()],
        shared_in: None,
        namespaces: None,
    }
}

fn container_of(lease: &mut Lease) -> &mut Container {
    match &mut lease.holder {
        Holder::Container(container) => container,
        Holder::Claim(_) => unreachable!("the lease is a container's"),
    }
}

pub(crate) fn instance(id: &str) -> Instance {
    Instance {
        id: id.into(),
        created: "2026-01-01T00:00:00Z".into(),
        origin: Origin::Ours,
        state: InstanceState::Creating,
        resource: Resource::Mig(Slice {
            profile: "1g.10gb".into(),
            profile_id: 19,
            gpu_uuid: "GPU-1".into(),
            gpu_index: 0,
            gpu_minor: 2,
            placement: Placement { start: 3, size: 1 },
            memory_mib: 9_728,
            gpu_instance: Some(10),
            compute_instance: None,
            mig_uuid: None,
            emptied: false,
        }),
        layout: None,
        operation: None,
        planned: false,
    }
}

fn held(id: &str) -> Held {
    let lease = lease(id);
    Held {
        instance: instance(lease.instance.as_str()).into(),
        lease: lease.into(),
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state"), Duration::from_millis(50)).unwrap();
    (dir, store)
}

/// Another file in the folder is not a change. Each change is reported once.
#[test]
fn tells_changes_of_ledger_from_before_it_is_there() {
    let (dir, _) = store();
    let home = dir.path().join("not").join("yet");
    let mut changes = Changes::of(&home).unwrap();
    std::fs::write(dir.path().join("other"), "").unwrap();
    assert!(!changes.take().unwrap());
    std::fs::create_dir_all(&home).unwrap();
    assert!(changes.take().unwrap());
    let store = Store::open(&home, Duration::from_millis(50)).unwrap();
    store.lock("t").unwrap().put_new(&held("one")).unwrap();
    assert!(changes.take().unwrap());
    assert!(!changes.take().unwrap());
    std::fs::write(home.join("runmig.log"), "a line").unwrap();
    assert!(!changes.take().unwrap());
    store.lock("t").unwrap().put_new(&held("two")).unwrap();
    assert!(changes.take().unwrap());
    std::fs::remove_dir_all(&home).unwrap();
    assert!(changes.take().unwrap());
}

#[test]
fn shows_state_of_lease_before_that_of_its_instance() {
    let failed = Attempt {
        count: 1,
        error: "in use".to_owned(),
        held_by: Vec::new(),
        next: "2026-01-01T00:00:00Z".into(),
    };
    let since = "2026-01-01T00:00:00Z".into();
    let of_lease = |state: LeaseState, instance: InstanceState, holder: Option<Claim>| {
        let mut held = held("one");
        let lease = Arc::make_mut(&mut held.lease);
        lease.state = state;
        Arc::make_mut(&mut held.instance).state = instance;
        if let Some(claim) = holder {
            lease.holder = Holder::Claim(claim);
        }
        Entry::Held(held).shown_state()
    };
    let alone = |state: InstanceState, layout: Option<&str>| {
        let layout = layout.map(str::to_owned);
        let instance = Instance {
            state,
            layout,
            ..instance("one")
        };
        Entry::Unleased(instance.into()).shown_state()
    };
    use InstanceState as I;
    use LeaseState::{Pending, Ready, Releasing};
    let shown = [
        of_lease(Pending, I::Creating, Some(Claim::default())),
        of_lease(Pending, I::Creating, None),
        of_lease(Ready, I::Ready, None),
        of_lease(Ready, I::Ready, Some(Claim::default())),
        of_lease(Releasing, I::Ready, None),
        of_lease(Releasing, I::Quarantined(failed.clone()), None),
        alone(I::Idle { since }, None),
        alone(I::Ready, Some("small")),
        alone(I::Creating, None),
        alone(I::Quarantined(failed), None),
        alone(I::Releasing, None),
    ];
    assert_eq!(
        shown,
        [
            "promised",
            "creating",
            "ready",
            "ready",
            "releasing",
            "quarantined",
            "idle",
            "layout",
            "creating",
            "quarantined",
            "releasing",
        ]
    );
}

#[test]
fn note_of_reload_outlives_its_turn() {
    let (_dir, store) = store();
    let turn = || store.reload_turn(Duration::from_millis(50));
    let first = turn().unwrap();
    assert_eq!(first.note(), None);
    first.set_note(b"told").unwrap();
    turn().unwrap_err();
    drop(first);
    assert_eq!(turn().unwrap().note().as_deref(), Some(&b"told"[..]));
}

/// A claim may come before anybody restores the bundles.
#[test]
fn leases_of_earlier_boot_stay_for_their_bundles() {
    let (_dir, store) = store();
    let at = |boot: &str| {
        let store = Store::open(store.dir(), Duration::from_millis(50)).unwrap();
        store.at_boot(&boot.into())
    };
    let put = |store: &Store, held: &Held| store.lock("test").unwrap().put_new(held).unwrap();
    let (one, two) = (held("one"), held("two"));
    put(&at("first"), &one);
    let second = at("second");
    for _ in 0..2 {
        assert_eq!(second.list().unwrap().entries, []);
        assert_eq!(second.list().unwrap().earlier, std::slice::from_ref(&one));
        assert_eq!(second.get(&"one".into()).unwrap(), None);
    }
    put(&second, &two);
    let listing = at("third").list().unwrap();
    assert_eq!(listing.earlier, [one, two.clone()]);
    assert_eq!(second.list().unwrap().entries, [Entry::Held(two)]);
    assert_eq!(at("first").list().unwrap().entries, []);
}

#[test]
fn claims_differ_by_device_and_name_their_pods() {
    let pod = |name: &str| ClaimPod {
        uid: name.to_owned(),
        name: name.to_owned(),
    };
    let claim = |device: &str, pods: &[&str]| Claim {
        uid: "u".to_owned(),
        namespace: "team".to_owned(),
        name: "gpu".to_owned(),
        device: device.to_owned(),
        pods: pods.iter().map(|name| pod(name)).collect(),
        ..Claim::default()
    };
    assert!(claim("a", &[]).is(&claim("a", &["web"])));
    assert!(!claim("a", &[]).is(&claim("b", &[])));
    let shown = |pods: &[&str]| claim("a", pods).to_string();
    assert_eq!(shown(&[]), "claim team/gpu");
    assert_eq!(shown(&["web"]), "claim team/gpu (pod team/web)");
    assert_eq!(
        shown(&["web", "db"]),
        "claim team/gpu (pod team/web and 1 more)"
    );
}

fn remove(ledger: &Ledger<'_>, held: Held) {
    ledger
        .change(|state| Ok(state.remove_all(&[held])))
        .unwrap();
}

#[test]
fn finds_lease_until_it_is_removed() {
    let (_dir, store) = store();
    let one = held("one");
    assert!(!store.has(&one.lease.container().unwrap().key));
    let ledger = store.lock("test").unwrap();
    ledger.put_new(&one).unwrap();
    assert!(store.has(&one.lease.container().unwrap().key));
    assert_eq!(store.get(&"one".into()).unwrap(), Some(one.clone()));
    let ready = |l: &mut Lease| l.state = LeaseState::Ready;
    let lease = ledger.update_lease(&one.lease, ready).unwrap().unwrap();
    let is_made = |i: &mut Instance| i.state = InstanceState::Ready;
    let instance = ledger
        .update_instance(&one.instance, is_made)
        .unwrap()
        .unwrap();
    let now = Held { lease, instance };
    assert_eq!(store.get(&one.lease.id).unwrap(), Some(now.clone()));
    let listing = store.list().unwrap();
    assert_eq!(listing.entries, [Entry::Held(now.clone())]);
    remove(&ledger, now.clone());
    remove(&ledger, now.clone());
    assert_eq!(ledger.update_lease(&one.lease, |_| ()).unwrap(), None);
    assert_eq!(ledger.update_instance(&one.instance, |_| ()).unwrap(), None);
    assert!(!store.has(&one.lease.container().unwrap().key));
    assert!(store.list().unwrap().entries.is_empty());
}

#[test]
fn joins_leases_with_instances() {
    let (_dir, store) = store();
    let ledger = store.lock("test").unwrap();
    let (one, mut two) = (held("one"), held("two"));
    Arc::make_mut(&mut two.lease).instance = one.instance.id.clone();
    two.instance = one.instance.clone();
    ledger.put_new(&one).unwrap();
    ledger.put_lease(two.lease.clone()).unwrap();
    ledger
        .change(|state| state.put_instance(instance("alone")))
        .unwrap();
    let listing = store.list().unwrap();
    let expected = [
        Entry::Held(one.clone()),
        Entry::Held(two),
        Entry::Unleased(instance("alone").into()),
    ];
    assert_eq!(listing.entries, expected);
    let state = store.state().unwrap();
    let has_others = |than: &str| state.has_others(&one.instance.id, Some(&than.into()));
    assert!(has_others("one") && has_others("two"));
    assert!(!state.has_others(&"alone".into(), None));
}

/// Nothing would end what such a lease holds, nor give its place to anybody.
#[test]
fn refuses_a_lease_without_its_instance() {
    let (_dir, store) = store();
    let ledger = store.lock("test").unwrap();
    let one = held("one");
    ledger.put_new(&one).unwrap();
    for refused in [
        ledger.put_lease(lease("orphan").into()),
        ledger
            .change(|state| Ok(state.remove_instance(&one.instance.id)))
            .map(drop),
    ] {
        let line = refused.unwrap_err().line();
        assert!(line.contains("is not in it"), "{line}");
    }
    assert_eq!(store.list().unwrap().entries, [Entry::Held(one)]);
}

/// The text of one key must not be found in another.
#[test]
fn finds_no_lease_of_a_similar_key() {
    let (_dir, store) = store();
    let one = held("one");
    store.lock("test").unwrap().put_new(&one).unwrap();
    let key = one.lease.container().unwrap().key.clone();
    let others = [
        Key::new("/run/other".into(), key.id.clone()),
        Key::new(key.root.clone(), key.id[1..].to_owned()),
        Key::new(key.root.clone(), format!("{}1", key.id)),
        Key::new(key.root.join(".."), key.id.clone()),
    ];
    assert!(store.has(&key));
    for other in others {
        assert!(!store.has(&other), "{other:?}");
    }
}

#[test]
fn bounds_lock_wait_and_names_holder() {
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
/// Failure: a lock's holder released it or died, and the next holder has not signed yet
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
fn refuses_paths_without_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let (_dir, store) = store();
    let mut one = held("one");
    container_of(Arc::make_mut(&mut one.lease)).bundle =
        std::ffi::OsStr::from_bytes(b"/b\xff").into();
    let line = store.lock("t").unwrap().put_new(&one).unwrap_err().line();
    assert!(line.contains("valid UTF-8"), "{line}");
    assert!(store.list().unwrap().entries.is_empty());
}

#[test]
fn removed_lock_file_still_excludes() {
    let (_dir, store) = store();
    let held = store.lock("a").unwrap();
    std::fs::remove_file(store.dir().join("ledger.lock")).unwrap();
    let second = store.lock("b").unwrap();
    drop(held);
    assert!(store.lock("c").is_err());
    drop(second);
}

/// The kernel gives the lock of a file that has gone to whoever waits for it.
#[test]
fn lock_file_removed_during_a_wait_still_excludes() {
    let dir = tempfile::TempDir::new().unwrap();
    let store = Store::open(dir.path(), Duration::from_secs(60)).unwrap();
    let path = store.dir().join("ledger.lock");
    // What this process waits for, as `N: -> FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE`.
    let waits_for = |inode: u64| {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks
            .lines()
            .any(|line| line.contains("-> FLOCK") && line.contains(&format!(":{inode} ")))
    };
    let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
    let held = store.lock("a").unwrap();
    let old = inode();
    std::thread::scope(|scope| {
        let (has, hears) = std::sync::mpsc::channel();
        let waiting = &store;
        scope.spawn(move || has.send(waiting.lock("b").map(drop)));
        while !waits_for(old) {
            std::thread::yield_now();
        }
        std::fs::remove_file(&path).unwrap();
        let new = store.lock("c").unwrap();
        drop(held);
        while !waits_for(inode()) {
            assert!(hears.try_recv().is_err(), "two hold the lock");
            std::thread::yield_now();
        }
        drop(new);
        hears.recv().unwrap().unwrap();
    });
}

#[test]
fn names_version_of_other_record() {
    let text = String::from_utf8(encode(&lease("one")).unwrap()).unwrap();
    for version in ["runmig.dev/v3", "runmig.dev/v5"] {
        let other = text.replace("runmig.dev/v4", version);
        let line = decode::<Lease>(other.as_bytes()).unwrap_err().line();
        let start = format!("a Lease of {version}, and this program reads Lease of runmig.dev/v4");
        assert!(line.starts_with(&start), "{line}");
    }
    let line = decode::<Instance>(text.as_bytes()).unwrap_err().line();
    assert!(
        line.starts_with("a Lease of runmig.dev/v4, and this"),
        "{line}"
    );
}

proptest! {
    #[test]
    fn finds_changed_byte(at in 0usize..1200, to in any::<u8>()) {
        let mut bytes = encode(&lease("one")).unwrap();
        let at = at % bytes.len();
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        // Only white space in the header keeps the meaning.
        if let Ok(read) = decode::<Lease>(&bytes) {
            prop_assert_eq!(read, lease("one"));
        }
    }
}

/// A reader without a lock finds a lease with its instance, or neither.
#[test]
fn reader_sees_both_halves_of_pair() {
    let (_dir, store) = store();
    let one = held("one");
    let open = || Store::open(store.dir(), Duration::from_secs(10)).unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let store = open();
            for _ in 0..300 {
                let ledger = store.lock("test").unwrap();
                ledger.put_new(&one).unwrap();
                remove(&ledger, one.clone());
            }
        });
        let store = open();
        while !writing.is_finished() {
            let listing = store.list().unwrap();
            assert_eq!(listing.entries.len(), listing.held().count(), "{listing:?}");
        }
    });
}

#[test]
fn locks_bundle_for_one_process() {
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

#[test]
fn views_name_each_part() {
    let slice = instance("one").resource;
    let whole = Resource::Gpu(WholeGpu {
        gpu_uuid: "GPU-2".into(),
        gpu_index: 1,
        gpu_minor: 3,
        model: "T4".to_owned(),
        memory_mib: 15_360,
    });
    for (resource, figures) in [(slice, (2, 9_728)), (whole, (3, 15_360))] {
        assert_eq!((resource.gpu_minor(), resource.memory_mib()), figures);
    }
    let failed = Attempt {
        count: 1,
        error: String::new(),
        held_by: Vec::new(),
        next: "2026-01-01T00:00:00Z".into(),
    };
    let since = failed.next.clone();
    let states = [
        InstanceState::Creating,
        InstanceState::Ready,
        InstanceState::Idle { since },
        InstanceState::Releasing,
        InstanceState::Quarantined(failed),
    ];
    assert_eq!(states.map(|state| state.word()), InstanceState::WORDS);
}

#[test]
fn entry_is_called_as_its_holder() {
    let claim = Claim {
        uid: "u".to_owned(),
        ..Claim::default()
    };
    let mut promised = held("two");
    Arc::make_mut(&mut promised.lease).holder = Holder::Claim(claim.clone());
    for (entry, name, its) in [
        (Entry::Held(held("one")), "web", None),
        (Entry::Held(promised), "u", Some(&claim)),
        (Entry::Unleased(instance("three").into()), "", None),
    ] {
        assert_eq!(entry.claim(), its);
        assert_eq!(entry.is_called(name), !name.is_empty(), "{name}");
        assert!(!entry.is_called("other"));
    }
}
