//! What belongs to a change beside the records: counts, and the events of ends.

use super::*;
use crate::counters::{Actor, Counter, LeaseKind};
use std::fs;

const RELEASES: Counter = Counter::Releases(LeaseKind::Slice, Actor::Hook);

/// A process that has counted one.
fn process(dir: &Path) -> (Store, Arc<Mutex<Counts>>) {
    let store = Store::open(dir, Duration::from_secs(10)).unwrap();
    let counter = store.counter();
    counter.lock().unwrap().count(RELEASES);
    (store, counter)
}

/// The number on record, and the generation.
fn counted(dir: &Path) -> (u64, u64) {
    let store = Store::existing(dir, Duration::from_millis(50)).unwrap();
    let state = store.unwrap().state().unwrap();
    (state.counters.get(RELEASES), state.header.generation)
}

#[test]
fn counts_travel_with_next_change() {
    let (_dir, store) = store();
    let dir = store.dir();
    let (one, counter) = process(dir);
    one.lock("t").unwrap().put_new(&held("one")).unwrap();
    assert_eq!(counted(dir), (1, 1));
    // A change that changes nothing writes nothing.
    counter.lock().unwrap().count(RELEASES);
    one.lock("t").unwrap().put_new(&held("one")).unwrap();
    assert_eq!(counted(dir), (1, 1));
    drop(one);
    assert_eq!(counted(dir), (2, 2));
    // They make no room.
    assert_eq!(store.header().map(|header| header.freed), Some(0));
}

#[test]
fn counts_each_of_many_at_once() {
    let (_dir, store) = store();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| drop(process(store.dir()))));
        }
    });
    assert_eq!(counted(store.dir()), (160, 160));
}

#[test]
fn failed_change_keeps_its_counts() {
    let (_dir, store) = store();
    let dir = store.dir();
    let (one, _counter) = process(dir);
    let ledger = one.lock("t").unwrap();
    for failed in [
        ledger.change(|_| Err(Error::new("no"))),
        ledger.put_lease(lease("orphan").into()),
    ] {
        failed.unwrap_err();
    }
    fs::create_dir(dir.join(".ledger.json")).unwrap();
    ledger.put_new(&held("one")).unwrap_err();
    fs::remove_dir(dir.join(".ledger.json")).unwrap();
    ledger.put_new(&held("one")).unwrap();
    assert_eq!(counted(dir), (1, 1));
}

/// Failure: another process keeps the ledger's lock from counts
#[test]
fn gives_up_on_stopped_holder() {
    let (_dir, store) = store();
    store.lock("t").unwrap().put_new(&held("one")).unwrap();
    let ledger = store.lock("stops").unwrap();
    drop(process(store.dir()));
    drop(ledger);
    assert_eq!(counted(store.dir()), (0, 1));
}

#[test]
fn damaged_ledger_takes_no_counts() {
    let (_dir, store) = store();
    let dir = store.dir();
    drop(process(dir));
    let file = dir.join("ledger.json");
    let whole = fs::read(&file).unwrap();
    for damaged in [
        &b"x"[..],
        &whole[..whole.len() - 1],
        &[&whole, &b" "[..]].concat(),
    ] {
        fs::write(&file, damaged).unwrap();
        drop(process(dir));
        assert_eq!(fs::read(&file).unwrap(), damaged);
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(counted(dir), (1, 1));
    // A repair has the counts of its generation.
    drop(process(dir));
    fs::write(&file, "x").unwrap();
    let ledger = store.lock("t").unwrap();
    ledger.replace_damaged(|_, _| Ok(())).unwrap().unwrap();
    assert_eq!(counted(dir).0, 1);
}

#[test]
fn boot_begins_anew() {
    let (_dir, store) = store();
    let dir = store.dir();
    let next = |n: u64| {
        let (store, counter) = process(dir);
        let store = store.at_boot(&format!("boot {n}").as_str().into());
        (store, counter)
    };
    drop(next(1));
    drop(next(1));
    assert_eq!(counted(dir), (2, 2));
    let (second, counter) = next(2);
    assert!(second.list().unwrap().counters.is_empty());
    // A store that has counted nothing writes no count at its end.
    *counter.lock().unwrap() = Counts::default();
    drop(second);
    assert_eq!(counted(dir), (2, 2));
    drop(next(2));
    assert_eq!(counted(dir), (1, 3));
}

/// Failure: the disk is full when a lease ends
#[test]
fn tells_each_change_right_before_it() {
    let (_dir, store) = store();
    let dir = store.dir();
    store.lock("t").unwrap().put_new(&held("one")).unwrap();
    let told = Mutex::new(Vec::new());
    let remove = |id: &str| {
        let is_there = || {
            let now = Store::open(dir, Duration::from_millis(50)).unwrap();
            now.get(&"one".into()).unwrap().is_some()
        };
        store.lock("t").unwrap().change_telling(
            |state| Ok(state.remove_lease(&id.into())),
            |removed| told.lock().unwrap().push((*removed, is_there())),
        )
    };
    // The first changes nothing, and the second finds no room.
    remove("other").unwrap();
    fs::create_dir(dir.join(".ledger.json")).unwrap();
    remove("one").unwrap_err();
    fs::remove_dir(dir.join(".ledger.json")).unwrap();
    assert_eq!(*told.lock().unwrap(), []);
    remove("one").unwrap();
    assert_eq!(*told.lock().unwrap(), [(true, true)]);
    assert_eq!(store.get(&"one".into()).unwrap(), None);
}
