//! `migctl gc`: what it would do, what it does, and why.

use crate::dying::victim::{SLEEPS, started};
use crate::on_every_runtime;
use testkit::prelude::*;

on_every_runtime! { dry_run_explains_and_changes_nothing }

/// Every file with its bytes, its inode and when it was changed.
fn look(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u64, i64, i64)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::metadata(&path).unwrap();
        let bytes = fs::read(&path).unwrap_or_default();
        let seen = (bytes, meta.ino(), meta.ctime(), meta.ctime_nsec());
        if meta.is_dir() {
            all.extend(look(&path));
        }
        all.insert(path, seen);
    }
    all
}

fn dry_run_explains_and_changes_nothing(setup: &Setup) {
    let [lives, dies] = [unique(), unique()];
    let bundles = [&lives, &dies].map(|id| {
        let bundle = setup.asking("1g.10gb", SLEEPS);
        (started(setup, &bundle, id), bundle)
    });
    let (init, bundle) = &bundles[1];
    kill(*init);

    setup.sim("trace", &["on"]);
    let (state, config) = (look(&setup.state()), bundle.bytes());
    let table = setup.tells(&["gc", "--dry-run"]);
    let json = setup.json(&["gc", "--dry-run", "-o", "json"]);
    assert_eq!(look(&setup.state()), state);
    assert_eq!(bundle.bytes(), config);
    let trace = setup.sim("trace", &["show"]);
    for word in ["Create", "Destroy"] {
        assert!(!trace.contains(word), "{trace}");
    }

    let line = |id: &str| {
        let found = table.lines().find(|line| line.contains(id));
        found.unwrap_or_else(|| panic!("{table}")).to_owned()
    };
    assert!(line(&dies).contains("would be released"), "{table}");
    assert!(line(&dies).ends_with("its container is gone"), "{table}");
    assert!(line(&lives).contains("kept"), "{table}");
    let init = format!("its init, process {}, runs", bundles[0].0);
    assert!(line(&lives).ends_with(&init), "{table}");
    let items = json["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    for item in items {
        let is_dead = item["container"] == dies.as_str();
        let outcome = if is_dead { "released" } else { "kept" };
        assert_eq!(item["outcome"], outcome, "{item}");
    }

    // It does what it said.
    setup.migctl(&["gc"]).ok();
    assert_eq!(setup.the_lease()["container"], lives.as_str());
    assert_ne!(look(&setup.state()), state);
    setup.ends(&[&lives, &dies]);
}
