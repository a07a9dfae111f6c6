//! runmig recognises the same creates as the real runtimes. The tests watch these from outside,
//! with inotify: which `config.json` they open, and which directory they make under which root. The
//! configuration has a resource limit that does not exist, so that nothing ever runs.
//!
//! As root. The later ones are those that `scripts/setup` builds into its cache.

use std::cell::Cell;
use std::ffi::OsString;
use testkit::prelude::*;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use runmig::runtime::args::{Family, Verb, parse};

mod args_world;
use args_world::{Seen, World, vectors};

const RUNC: &str = "/usr/sbin/runc";
const CRUN: &str = "/usr/bin/crun";

testkit::tests! {
    reads_creates_like_runc: against("runc", Path::new(RUNC), Family::Runc);
    reads_creates_like_later_runc: against("the later runc", &later("runc"), Family::Runc);
    reads_creates_like_crun: against("crun", Path::new(CRUN), Family::Crun);
    reads_creates_like_later_crun: against("the later crun", &later("crun"), Family::Crun);
}

/// Returns a program that `scripts/engines` built.
fn later(name: &str) -> PathBuf {
    built(name, name).unwrap_or_default()
}
fn against(name: &str, program: &Path, family: Family) {
    if !program.exists() {
        return match name.contains("later") {
            true => skip_until_full(&format!("{name} is not there; run scripts/setup full")),
            false => skip(&format!("{name} is not there; run scripts/setup")),
        };
    }
    let cases: u32 = std::env::var("RUNMIG_ARGS_CASES").map_or(250, |n| n.parse().unwrap());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let world = World::new(vectors::words(family));
    let taken = Cell::new(0);
    TestRunner::new_with_rng(config, rng)
        .run(&vectors::of(family), |words| {
            let args: Vec<OsString> = words.iter().map(|w| world.fill(w)).collect();
            let seen = world.watch(program, &args);
            taken.set(taken.get() + u32::from(seen.state.is_some()));
            agree(&world, family, &args, &seen)
        })
        .unwrap();
    println!("{name}: {} of {cases} taken for a create", taken.get());
    assert!(taken.get() > cases / 5, "a test of nothing");
}

type Agreement = Result<(), TestCaseError>;

fn agree(world: &World, family: Family, args: &[OsString], seen: &Seen) -> Agreement {
    let call = parse(family, args);
    let (id, bundle, config) = match &call.verb {
        Verb::Make(c) => (&c.id, &c.bundle, &c.config),
        // Whatever configuration it opens is one that runmig looks into, before it lets the call pass.
        Verb::Unclear(unclear) => {
            let named = |path: &Path| {
                let name = path.file_name().unwrap().as_encoded_bytes();
                let mut words = unclear.words.iter();
                words.any(|word| word.as_encoded_bytes().ends_with(name))
            };
            if let Some(opened) = &seen.config {
                let bundle = opened.parent().unwrap();
                let known = bundle == world.dir() || named(bundle);
                let is_config = opened.ends_with("config.json") || named(opened);
                prop_assert!(known && is_config, "{unclear:?}: {seen:?}");
            }
            return Ok(());
        }
        other => {
            let said = &seen.stderr;
            prop_assert!(seen.state.is_none(), "{other:?}, but {seen:?}: {said}");
            return Ok(());
        }
    };
    let cwd = world.dir();
    let bundle = bundle.as_deref().unwrap_or(Path::new(""));
    let config = match config {
        Some(config) => cwd.join(config),
        None => cwd.join(bundle).join("config.json"),
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
        let log = call.log.iter().map(|log| clean(&base.join(&log.file)));
        prop_assert_eq!(&seen.logs, &log.collect::<Vec<PathBuf>>(), "log");
    }
    Ok(())
}

fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

#[test]
fn reads_deletes_like_runc() {
    let calls = [
        (RUNC, Family::Runc, "--root one delete c1", true),
        (RUNC, Family::Runc, "--root=one delete --force c1", true),
        (RUNC, Family::Runc, "--root one delete -f c1", true),
        (RUNC, Family::Runc, "--root one delete c1 -f", false),
        (RUNC, Family::Runc, "--root one delete --help c1", false),
        (RUNC, Family::Runc, "--root one delete c1 c2", false),
        (RUNC, Family::Runc, "--root one --version delete c1", false),
        (CRUN, Family::Crun, "--root one delete c1", true),
        (CRUN, Family::Crun, "--root=one delete --force c1", true),
        (CRUN, Family::Crun, "--roo one delete -f -- c1", false),
        (CRUN, Family::Crun, "--root one delete --help -f c1", false),
        (CRUN, Family::Crun, "--root one -v delete --force c1", false),
    ];
    for (program, family, call, is_read) in calls {
        if !Path::new(program).exists() {
            skip(&format!("{program} is not there; run scripts/setup"));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("one/c1");
        fs::create_dir_all(&state).unwrap();
        let words: Vec<OsString> = call.split(' ').map(OsString::from).collect();
        said(Command::new(program).args(&words).current_dir(&dir));
        let ours = parse(family, &words);
        let deletes = matches!(&ours.verb, Verb::Delete(id) if id == "c1");
        assert_eq!(deletes, is_read, "{program} {call}: {ours:?}");
        // The container's hook releases after a delete that runmig does not read.
        assert!(!deletes || !state.exists(), "{program} {call}");
    }
}
