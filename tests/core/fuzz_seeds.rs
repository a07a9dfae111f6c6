//! The seeds of the fuzz targets and mutations of them, through the same functions, on stable: the
//! same few thousand cases each time. `scripts/fuzz` runs for longer and finds more.

use crate::below;
use testkit::prelude::*;

const MUTATIONS: usize = 400;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds");
    let entries = fs::read_dir(PathBuf::from(dir).join(target)).expect("a folder of seeds");
    let mut seeds: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    seeds.sort();
    assert!(seeds.len() > 2, "no seeds for {target}");
    seeds
}

const WORDS: [&[u8]; 12] = [
    b"\0",
    b"\n",
    b"\x1b[2J",
    b"\xff",
    b"-1",
    b"18446744073709551616",
    b"null",
    b"{",
    b"\"",
    b"..",
    b"\xe2\x80\xae",
    b"runmig.dev/slice",
];

fn mutate(seed: &[u8], other: &[u8], dice: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=below(dice, 3) {
        let (from, to) = (below(dice, bytes.len() + 1), below(dice, bytes.len() + 1));
        let (from, to) = (from.min(to), from.max(to));
        match below(dice, 6) {
            0 => bytes.truncate(from),
            1 => drop(bytes.drain(from..to.min(from + 12))),
            2 => drop(bytes.splice(from..from, WORDS[below(dice, WORDS.len())].iter().copied())),
            3 => drop(bytes.splice(
                from..to.min(from + 4),
                WORDS[below(dice, WORDS.len())].iter().copied(),
            )),
            4 => {
                let again = bytes[from..to.min(from + 64)].to_vec();
                bytes.splice(to..to, again);
            }
            _ => {
                let at = below(dice, other.len() + 1);
                let piece = &other[at..(at + 40).min(other.len())];
                bytes.splice(from..from, piece.iter().copied());
            }
        }
    }
    bytes
}

/// The case that a panic is about.
struct Shown(String);

impl Drop for Shown {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

fn replay(name: &str) {
    let (_, target) = crate::targets::ALL
        .iter()
        .find(|(n, _)| *n == name)
        .expect("a target");
    let seeds = seeds(name);
    let mut dice = Random::new(0x9e37_79b9_7f4a_7c15);
    for (at, (path, seed)) in seeds.iter().enumerate() {
        let shown = Shown(path.display().to_string());
        target(seed);
        for _ in 0..MUTATIONS / seeds.len() + 1 {
            let other = &seeds[(at + 1 + below(&mut dice, seeds.len())) % seeds.len()].1;
            let bytes = mutate(seed, other, &mut dice);
            let shown = Shown(bytes.escape_ascii().to_string());
            target(&bytes);
            drop(shown);
        }
        drop(shown);
    }
}

macro_rules! replayed {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn replays_every_target() {
            let names: Vec<_> = crate::targets::ALL.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

replayed!(
    annotations,
    arguments,
    cdi,
    config,
    configuration,
    hook,
    machine,
    reading,
    record,
    versions
);
