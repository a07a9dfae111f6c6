//! A ledger whose file is not the one that was written last.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

/// A way to damage the file.
type Damage = fn(&Path);

fn written(names: &[&str]) -> (tempfile::TempDir, Store, PathBuf) {
    let (dir, store) = store();
    for name in names {
        store.lock("t").unwrap().put_new(&held(name)).unwrap();
    }
    let file = store.dir().join("ledger.json");
    (dir, store, file)
}

/// Opens the ledger anew: this process may know a file that changes twice within a tick of the clock.
fn again(store: &Store) -> Store {
    Store::open(store.dir(), Duration::from_millis(50)).unwrap()
}

fn ids(store: &Store) -> Vec<String> {
    let listing = store.list().unwrap();
    listing.held().map(|h| h.lease.id.to_string()).collect()
}

/// Asserts that nobody reads or writes the ledger, and that it says why.
#[track_caller]
fn assert_damaged(store: &Store, why: &str) {
    let before = fs::symlink_metadata(store.dir().join("ledger.json")).map(|m| (m.ino(), m.len()));
    let line = store.damage().unwrap().expect("it is damaged").line();
    assert!(line.contains(why), "{line}");
    let hint = match why {
        // Nothing is wrong with its content.
        "users other than root" => "hint: chmod go-w it",
        _ => "hint: run migctl gc --repair as root",
    };
    let ledger = store.lock("t").unwrap();
    for refused in [
        store.list().map(drop),
        store.get(&"one".into()).map(drop),
        ledger.put_new(&held("more")),
        ledger
            .change(|state| Ok(state.remove_lease(&"one".into())))
            .map(drop),
    ] {
        let line = refused.unwrap_err().line();
        assert!(
            line.contains("is damaged") && line.contains(why) && line.contains(hint),
            "{line}"
        );
    }
    let after = fs::symlink_metadata(store.dir().join("ledger.json")).map(|m| (m.ino(), m.len()));
    assert_eq!(before.ok(), after.ok());
}

/// Failure: the ledger is damaged while creates, deletes, claims and collections run
#[test]
fn tells_damage_during_a_change() {
    let (_dir, store, file) = written(&["one"]);
    let refused = store.lock("t").unwrap().change(|state| {
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        Ok(state.remove_lease(&"one".into()))
    });
    let line = refused.unwrap_err().line();
    for words in ["is damaged: ", "not a regular file", "migctl gc --repair"] {
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn tells_each_damage() {
    let damages: &[(&str, Damage)] = &[
        ("it is missing", |file| fs::remove_file(file).unwrap()),
        ("it is cut off", |file| fs::write(file, "").unwrap()),
        ("its first line cannot be read", |file| {
            fs::write(file, "{}\n{}\n").unwrap()
        }),
        ("it is a link", |file| {
            fs::rename(file, file.with_extension("moved")).unwrap();
            symlink(file.with_extension("moved"), file).unwrap();
        }),
        ("not a regular file", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
        ("not a regular file", |file| {
            fs::remove_file(file).unwrap();
            nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }),
        ("longer than", |file| {
            let file = fs::File::options().write(true).open(file).unwrap();
            file.set_len(1 << 30).unwrap();
        }),
        ("users other than root", |file| {
            fs::set_permissions(file, fs::Permissions::from_mode(0o602)).unwrap();
        }),
        ("of generation 1, and the ledger was at 2", |file| {
            fs::rename(file.with_extension("json.1"), file).unwrap();
        }),
    ];
    for (why, damage) in damages {
        let (_dir, store, file) = written(&["one", "two"]);
        damage(&file);
        assert_damaged(&store, why);
    }
}

#[test]
fn tells_cut_at_each_byte() {
    let (_dir, store, file) = written(&["one"]);
    let whole = fs::read(&file).unwrap();
    for length in 0..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let store = again(&store);
        assert!(store.list().is_err(), "cut off at {length}");
        assert!(store.lock("t").unwrap().put_new(&held("two")).is_err());
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(ids(&again(&store)), ["one"]);
}

/// A process that has read the ledger sees each change of another one.
#[test]
fn sees_changes_of_others() {
    let (_dir, store, file) = written(&["one"]);
    let other = again(&store);
    for name in ["two", "three", "four"] {
        other.lock("t").unwrap().put_new(&held(name)).unwrap();
        assert_eq!(ids(&store).len(), ids(&other).len());
    }
    fs::remove_file(&file).unwrap();
    assert_damaged(&store, "it is missing");
}

/// Of a version byte the error names the other version, since nothing else may be wrong with that ledger.
#[test]
fn tells_change_of_each_byte() {
    let (_dir, store, file) = written(&["one"]);
    let whole = fs::read(&file).unwrap();
    let before = store.state().unwrap().state.clone();
    for at in 0..whole.len() {
        for change in [1, 0x20, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            fs::write(&file, &bytes).unwrap();
            match again(&store).state() {
                Err(_) => {}
                // White space of the header has no meaning.
                Ok(now) => assert_eq!(now.state, before, "byte {at} by {change}"),
            }
        }
    }
}

/// A program of another version would lose what it does not know.
#[test]
fn refuses_other_version_and_repairs_none() {
    let (_dir, store, file) = written(&["one"]);
    let content = match store.file.look().unwrap() {
        file::Look::Whole(content) => content,
        _ => panic!("the ledger is whole"),
    };
    // A later version may have more in its first line.
    for (version, more) in [
        ("runmig.dev/v3", ""),
        ("runmig.dev/v5", ""),
        ("runmig.dev/v5", ",\"nodes\":[1]"),
    ] {
        fs::write(&file, content.as_version(version, more)).unwrap();
        let ledger = store.lock("t").unwrap();
        for refused in [
            store.list().map(drop),
            store.damage().map(drop),
            ledger.put_new(&held("two")),
            ledger.replace_damaged(|_, _| Ok(())).map(drop),
        ] {
            let line = refused.unwrap_err().line();
            assert!(
                line.contains(version) && line.contains("use the runmig that wrote it"),
                "{line}"
            );
        }
    }
}

#[test]
fn begins_empty_without_any_trace_alone() {
    let (_dir, store, file) = written(&["one", "two"]);
    store.put_account(&held("one")).unwrap();
    fs::remove_file(&file).unwrap();
    assert_damaged(&store, "it is missing");
    // The lock tells, then the generation before, then an account.
    for trace in ["ledger.lock", "ledger.json.1"] {
        fs::remove_file(store.dir().join(trace)).unwrap();
        assert_damaged(&store, "it is missing");
        let _ = fs::remove_file(store.dir().join("ledger.lock"));
    }
    store.remove_account(&"one".into());
    assert!(ids(&store).is_empty());
    let was = store.identity();
    store.lock("t").unwrap().put_new(&held("two")).unwrap();
    assert_eq!(ids(&store), ["two"]);
    assert!(was.is_none() && store.identity().is_some());
}

#[test]
fn repair_takes_the_latest_whole_generation() {
    let damages: &[(&[&str], Damage)] = &[
        // The file is damaged, and the generation before has one lease.
        (&["one"], |file| fs::write(file, "x").unwrap()),
        (&["one"], |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
        // Both are.
        (&[], |file| {
            fs::write(file, "x").unwrap();
            fs::write(file.with_extension("json.1"), "x").unwrap();
        }),
        // The file is older than the generation before.
        (&["one"], |file| {
            let before = file.with_extension("json.1");
            fs::copy(&before, file).unwrap();
        }),
    ];
    for (left, damage) in damages {
        let (_dir, store, file) = written(&["one", "two"]);
        let was = store.identity();
        damage(&file);
        let ledger = store.lock("t").unwrap();
        assert!(ledger.replace_damaged(|_, _| Ok(())).unwrap().is_some());
        assert_eq!(ids(&store), *left);
        // A hook must not take a lease that is not in it for released.
        assert_ne!(store.identity(), was);
        assert!(ledger.replace_damaged(|_, _| Ok(())).unwrap().is_none());
        ledger.put_new(&held("three")).unwrap();
        assert_eq!(store.damage().unwrap().map(|e| e.line()), None);
    }
}

/// A waiter looks again after these changes alone.
#[test]
fn counts_changes_that_make_room() {
    let (_dir, store, _) = written(&["one", "two"]);
    let ledger = store.lock("t").unwrap();
    let freed = |store: &Store| store.header().map(|header| header.freed);
    let mut counts = vec![freed(&store)];
    ledger
        .update_lease(&lease("one"), |l| l.state = LeaseState::Ready)
        .unwrap();
    counts.push(freed(&store));
    ledger
        .change(|state| Ok(state.remove_lease(&"one".into())))
        .unwrap();
    counts.push(freed(&store));
    ledger.put_new(&held("three")).unwrap();
    counts.push(freed(&store));
    remove(&ledger, held("two"));
    counts.push(freed(&store));
    assert_eq!(counts, [0, 0, 1, 1, 2].map(Some));
}

/// A change that fails leaves the ledger as it was, and so does one that changes nothing.
#[test]
fn failed_change_changes_nothing() {
    let (_dir, store, file) = written(&["one"]);
    let before = (fs::read(&file).unwrap(), fs::metadata(&file).unwrap().ino());
    let ledger = store.lock("t").unwrap();
    let failed: Result<()> = ledger.change(|state| {
        state.leases.clear();
        Err(Error::new("no"))
    });
    assert!(failed.is_err());
    ledger.update_lease(&lease("one"), |_| ()).unwrap();
    let mut long = held("long");
    container_of(Arc::make_mut(&mut long.lease)).bundle =
        format!("/{}", "b".repeat(100_000)).into();
    let line = ledger.put_new(&long).unwrap_err().line();
    assert!(line.contains("shorter id, root, bundle"), "{line}");
    let after = (fs::read(&file).unwrap(), fs::metadata(&file).unwrap().ino());
    assert_eq!(before, after);
}

/// An account is read as it was written, or not at all.
#[test]
fn account_tells_its_lease() {
    let (_dir, store) = store();
    let store = store.at_boot(&"boot".into());
    let one = held("one");
    store.put_account(&one).unwrap();
    let told = |store: &Store| {
        store
            .accounts()
            .into_iter()
            .map(|(_, told)| told.ok())
            .next()
    };
    assert_eq!(told(&store), Some(Some(Some(one))));
    let file = store.dir().join("accounts/one");
    let whole = fs::read(&file).unwrap();
    for length in 0..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(told(&store), Some(None), "cut off at {length}");
    }
    let at = whole.iter().position(|byte| *byte == b'\n').unwrap();
    fs::write(&file, &whole[at + 1..]).unwrap();
    assert_eq!(told(&store), Some(None), "without a boot");
    fs::write(&file, &whole).unwrap();
    let store = store.at_boot(&"next boot".into());
    assert_eq!(told(&store), Some(Some(None)));
    store.remove_account(&"one".into());
    assert_eq!(told(&store), None);
}

/// A repair reads it.
#[test]
fn keeps_generation_before_beside_what_a_kill_left() {
    let (_dir, store, file) = written(&["one"]);
    let before = fs::read(&file).unwrap();
    fs::write(file.with_file_name(".ledger.json.1"), "cut").unwrap();
    store.lock("t").unwrap().put_new(&held("two")).unwrap();
    assert_eq!(fs::read(file.with_extension("json.1")).unwrap(), before);
}

#[test]
fn lock_that_is_no_file_tells_no_generation() {
    let (dir, store, _) = written(&["one"]);
    let lock = store.dir().join("ledger.lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    for (dir, why) in [
        (store.dir(), "is not a regular file"),
        (&dir.path().join("state/ledger.json"), "cannot read "),
    ] {
        let line = file::generation(dir).unwrap_err().line();
        assert!(line.contains(why), "{line}");
    }
}
