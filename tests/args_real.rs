//! What the real runtimes take for a create, we take for the same create. They are watched from
//! outside, with inotify: which `config.json` is opened, and which directory is made under which
//! root. The configuration has a resource limit that does not exist, so that nothing ever runs.
//!
//! As root. `RUNMIG_RUNC15` names a later runc to be held against as well.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use runmig::runtime::args::{Family, Run, Verb, parse};

mod args_world;
use args_world::{Seen, World};

type Pieces = &'static [&'static [&'static str]];

const RUNC_GLOBAL: Pieces = &[
    &["--root", "one"],
    &["-root", "two"],
    &["--root=@/one"],
    &["-root=two"],
    &["--log", "l1"],
    &["--log=@/l2"],
    &["--log", "create"],
    &["--log-format", "json"],
    &["--log-format=text"],
    &["--debug"],
    &["-debug=false"],
    &["--debug=T"],
    &["--rootless", "auto"],
    &["--rootless=false"],
    &["--systemd-cgroup=0"],
    &["--help=false"],
    &["-v=false"],
    &["--criu", "run"],
];

const RUNC_LOCAL: Pieces = &[
    &["-b", "one"],
    &["--b=two"],
    &["--bundle", "two"],
    &["-bundle=@/one"],
    &["--bundle="],
    &["--no-pivot"],
    &["-no-pivot=false"],
    &["--no-new-keyring=TRUE"],
    &["--pid-file", "p"],
    &["--pid-file=one"],
    &["--preserve-fds", "0"],
    &["--preserve-fds=0x0"],
    &["-h=false"],
];

const RUNC_NOISE: Pieces = &[
    &["--"],
    &["-"],
    &["-b", "-"],
    &["-b", "--"],
    &["-b", "create"],
    &["-b"],
    &["---b", "one"],
    &["--bund", "one"],
    &["-bone"],
    &["--root", "one"],
    &["-d"],
    &["-h"],
    &["--bogus"],
    &["--bogus=1"],
    &["-x"],
    &["-b=one", "--bundle=two"],
    &["create"],
    &[""],
];

const CRUN_GLOBAL: Pieces = &[
    &["--root", "one"],
    &["--roo", "two"],
    &["--root=@/two"],
    &["--r=one"],
    &["--log", "l1"],
    &["--log=file:@/l2"],
    &["--log", "create"],
    &["--log-format", "json"],
    &["--log-f=text"],
    &["--debug"],
    &["--deb"],
    &["--cgroup-manager", "cgroupfs"],
    &["--cg=disabled"],
    &["--program-name", "create"],
];

const CRUN_LOCAL: Pieces = &[
    &["-b", "one"],
    &["-btwo"],
    &["--bundle", "two"],
    &["--bund", "@/one"],
    &["--b=one"],
    &["-f", "cfg"],
    &["-fcfg"],
    &["--config=@/cfg"],
    &["--no-pivot"],
    &["--no-p"],
    &["--no-new"],
    &["--pid-file", "p"],
    &["--pid=p"],
    &["--preserve-fds", "0"],
    &["--pres=0x"],
    &["--console", "s"],
];

const CRUN_NOISE: Pieces = &[
    &["--"],
    &["-"],
    &["-b", "-"],
    &["-b", "--"],
    &["-b", "create"],
    &["-b"],
    &["--no"],
    &["--con=cfg"],
    &["--bundle="],
    &["--no-pivot=1"],
    &["-bundle", "one"],
    &["-db", "one"],
    &["--rootl", "one"],
    &["-d"],
    &["--help"],
    &["--bogus"],
    &["-x"],
    &["-vb"],
    &["create"],
    &[""],
];

/// Options before, a command, options and an id after it, with something odd put in here and there.
fn vectors(global: Pieces, local: Pieces, noise: Pieces) -> impl Strategy<Value = Vec<String>> {
    let piece = |of: Pieces| select(of.to_vec());
    let odd = move || prop::collection::vec((piece(noise), any::<prop::sample::Index>()), 0..=2);
    (
        prop::collection::vec(piece(global), 0..=3),
        select(vec!["create", "create", "create", "run", "restore"]),
        prop::collection::vec(piece(local), 0..=3),
        select(vec!["c1", "c2", "create", "-x", "-"]),
        0..=3usize,
        prop_oneof![2 => Just(vec![]), 3 => odd()],
    )
        .prop_map(|(global, command, mut local, id, at, odd)| {
            let ids: &[&[&str]] = match id {
                "-x" => &[&["--", "-x"]],
                "c1" => &[&["c1"]],
                "c2" => &[&["c2"]],
                "-" => &[&["-"]],
                _ => &[&["create"]],
            };
            // most often the id is last
            let at = if at < 3 { local.len() } else { 0 };
            local.insert(at, ids[0]);
            let mut all = global;
            all.push(match command {
                "create" => &["create"],
                "run" => &["run"],
                _ => &["restore"],
            });
            all.extend(local);
            for (piece, at) in odd {
                all.insert(at.index(all.len() + 1), piece);
            }
            all.concat().into_iter().map(str::to_owned).collect()
        })
}

#[test]
fn what_runc_takes_for_a_create_is_the_same_create_here() {
    against("runc", Path::new("/usr/sbin/runc"), Family::Runc);
}

#[test]
fn what_a_later_runc_takes_for_a_create_is_the_same_create_here() {
    let later = std::env::var_os("RUNMIG_RUNC15").unwrap_or_default();
    against("runc 1.5 (RUNMIG_RUNC15)", Path::new(&later), Family::Runc);
}

#[test]
fn what_crun_takes_for_a_create_is_the_same_create_here() {
    against("crun", Path::new("/usr/bin/crun"), Family::Crun);
}

fn against(name: &str, program: &Path, family: Family) {
    if !program.exists() {
        return skipped(name);
    }
    let (global, local, noise) = match family {
        Family::Runc => (RUNC_GLOBAL, RUNC_LOCAL, RUNC_NOISE),
        Family::Crun => (CRUN_GLOBAL, CRUN_LOCAL, CRUN_NOISE),
    };
    let cases: u32 = std::env::var("RUNMIG_ARGS_CASES").map_or(250, |n| n.parse().unwrap());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    // two runtimes may share their default root
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let words: Vec<&str> = [global, local, noise].concat().concat();
    let world = World::new(words.into_iter().chain(["c1", "c2"]));
    let taken = Cell::new(0);
    TestRunner::new_with_rng(config, rng)
        .run(&vectors(global, local, noise), |words| {
            let args: Vec<OsString> = words.iter().map(|w| world.fill(w)).collect();
            let seen = world.watch(program, &args);
            taken.set(taken.get() + u32::from(seen.state.is_some()));
            agree(&world, family, &args, &seen)
        })
        .unwrap();
    println!("{name}: {} of {cases} taken for a create", taken.get());
    assert!(
        taken.get() > cases / 5,
        "a test of nothing: {}",
        taken.get()
    );
}

fn agree(
    world: &World,
    family: Family,
    args: &[OsString],
    seen: &Seen,
) -> Result<(), TestCaseError> {
    let call = parse(family, args);
    let (id, bundle, config) = match call.as_ref().map(|c| &c.verb) {
        Ok(Verb::Create(c) | Verb::Run(Run { create: c, .. })) => (&c.id, &c.bundle, &c.config),
        Ok(Verb::Restore { id, bundle }) => (id, bundle, &None),
        other => {
            // versions of runc differ on these: refused, and for one of them too often
            let differ = matches!(&call, Err(e) if e.to_string().contains("differently"));
            prop_assert!(
                seen.state.is_none() || differ,
                "{other:?}, but {seen:?}: {}",
                seen.stderr
            );
            return Ok(());
        }
    };
    let call = call.as_ref().unwrap();
    let cwd = world.dir();
    let config = match config {
        Some(config) => cwd.join(config),
        None => cwd
            .join(bundle.as_deref().unwrap_or(Path::new("")))
            .join("config.json"),
    };
    if let Some(opened) = &seen.config {
        prop_assert_eq!(opened, &clean(&config), "config");
    }
    let base = call.stands_in(family, cwd);
    if let Some((root, made)) = &seen.state {
        let ours = match &call.root {
            Some(root) => base.join(root),
            None => family.default_root(&|name| world.env(name), 0, false),
        };
        prop_assert_eq!(made, id, "id");
        prop_assert_eq!(root, &clean(&ours), "root");
        let log: Vec<PathBuf> = call.log.iter().map(|log| clean(&base.join(log))).collect();
        prop_assert_eq!(&seen.logs, &log, "log");
    }
    Ok(())
}

fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

/// A runtime that is not there is a hole in the test, not a pass.
fn skipped(name: &str) {
    eprintln!("SKIPPED: no {name} here");
    let must = ["CI", "RUNMIG_REQUIRE_ALL"];
    assert!(
        must.iter().all(|v| std::env::var_os(v).is_none()),
        "{name} is required here"
    );
}
