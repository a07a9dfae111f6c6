use super::*;
use crate::counters::{Actor, Counter, Counters, Counts, LeaseKind, Times};
use std::os::unix::fs::PermissionsExt;

const SHARED: Counter = Counter::Releases(LeaseKind::Slice, Actor::Hook);

struct Machine {
    dir: tempfile::TempDir,
    boot: BootId,
}

impl Machine {
    fn new() -> Machine {
        Machine {
            dir: tempfile::tempdir().unwrap(),
            boot: "5b3c1f62-6a35-4c0e-9f3c-0f6f1a2b3c4d".into(),
        }
    }

    fn file(&self) -> PathBuf {
        path(self.dir.path(), &self.boot).unwrap()
    }

    fn open(&self) -> Result<Counters> {
        Counters::open(self.dir.path(), &self.boot)
    }

    fn count(&self) {
        self.open().unwrap().count(SHARED);
    }

    fn counted(&self) -> u64 {
        let counts = Counts::read(self.dir.path(), &self.boot).unwrap();
        counts.map_or(0, |counts| counts.get(SHARED))
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

#[test]
fn counts_each_of_many_at_once() {
    let machine = Machine::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    machine.count();
                }
            });
        }
    });
    assert_eq!(machine.counted(), 400);
    // No unfinished file stays.
    assert_eq!(machine.names().len(), 1);
}

#[test]
fn distribution_has_classes_and_sum() {
    let machine = Machine::new();
    let times = Times::Release(LeaseKind::Share);
    let counters = machine.open().unwrap();
    for ms in [1, 7, 7, 1_000_000] {
        counters.observe(times, Duration::from_millis(ms));
    }
    let read = Counts::read(machine.dir.path(), &machine.boot);
    let read = read.unwrap().unwrap().times(times);
    assert_eq!((read.classes[0], read.classes[1]), (1, 2));
    assert_eq!(read.classes.last(), Some(&1));
    assert_eq!(read.classes.iter().sum::<u64>(), 4);
    assert_eq!(read.sum, Duration::from_millis(1_000_015));
}

#[test]
fn damaged_file_moves_aside() {
    type Damage = fn(&Path);
    let overwrite = |file: &Path, at: u64, bytes: &[u8]| {
        let file = OpenOptions::new().write(true).open(file).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    let damages: [(&str, Damage); 5] = [
        ("bytes instead of", |file| {
            OpenOptions::new()
                .write(true)
                .open(file)
                .unwrap()
                .set_len(100)
                .unwrap();
        }),
        ("no counters of runmig", |file| {
            std::fs::write(file, vec![7; LENGTH]).unwrap();
        }),
        ("version 2", |_| {}),
        ("another boot", |_| {}),
        ("write", |file| {
            std::fs::set_permissions(file, PermissionsExt::from_mode(0o666)).unwrap();
        }),
    ];
    for (why, damage) in damages {
        let machine = Machine::new();
        machine.count();
        let file = machine.file();
        damage(&file);
        match why {
            "version 2" => overwrite(&file, 8, &2u32.to_ne_bytes()),
            "another boot" => overwrite(&file, 24, b"0"),
            _ => {}
        }
        let error = Counts::read(machine.dir.path(), &machine.boot).unwrap_err();
        assert!(error.line().contains(why), "{why}: {}", error.line());
        machine.count();
        assert_eq!(machine.counted(), 1, "{why}");
        let aside = format!("{}.damaged", file.file_name().unwrap().to_string_lossy());
        assert!(
            machine.names().contains(&aside),
            "{why}: {:?}",
            machine.names()
        );
    }
}

#[test]
fn one_process_moves_damaged_file() {
    for _ in 0..20 {
        let machine = Machine::new();
        std::fs::write(machine.file(), "nothing").unwrap();
        let counted: u64 = std::thread::scope(|scope| {
            let count = || match machine.open() {
                Ok(counters) => {
                    counters.count(SHARED);
                    1
                }
                // Another one is moving the file.
                Err(_) => 0,
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert!(counted > 0);
        assert_eq!(machine.counted(), counted);
    }
}

#[test]
fn boot_begins_anew() {
    let mut machine = Machine::new();
    machine.count();
    machine.boot = "00000000-0000-4000-8000-000000000001".into();
    assert_eq!(machine.counted(), 0);
    machine.count();
    assert_eq!(machine.counted(), 1);
    assert_eq!(machine.names().len(), 1);
    machine.boot = "../../etc".into();
    assert!(machine.open().is_err());
}

#[test]
fn sweep_removes_old_unfinished_files() {
    let machine = Machine::new();
    for (name, age) in [("1", 3600), ("2", 0)] {
        let file = File::create(machine.dir.path().join(format!("{UNFINISHED}{name}"))).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age);
        file.set_modified(time).unwrap();
    }
    sweep(machine.dir.path());
    assert_eq!(machine.names(), [format!("{UNFINISHED}2")]);
}
