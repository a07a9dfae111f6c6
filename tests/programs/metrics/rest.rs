//! On a machine on which everything happens, no family is at rest.

use super::parsers::accepted;
use super::reading::Exposition;
use super::*;
use testkit::prelude::*;

/// Returns the families of an exposition with their types.
fn families(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    let families = pairs.map(|(name, kind)| (name.to_owned(), kind.to_owned()));
    families.collect()
}

#[test]
fn every_family_leaves_its_rest() {
    let setup = setup();
    let limit = "namespace = \"*\"\nslices = 50\nshares = 9\ngpus = 3\nmemory = \"300Gi\"";
    setup.configure(&format!("{NONE}\n[[policy.limit]]\n{limit}"));
    fill(&setup);
    // Memory in use, by a container's process and by another one.
    let mut leases = setup.leases().into_iter();
    let share = leases.find(|lease| lease["kind"] == "share").unwrap();
    let hold = |place: &[&str]| setup.machine.hold(&[place, &["--memory", "1Gi"]].concat());
    let on = share["gpuIndex"].to_string();
    let first = hold(&["--gpu", &on]);
    move_beside(first.pid(), share["initPid"].as_u64().unwrap());
    let instances = setup.machine.instances();
    let second = hold(&["--gpu", "0", "--gi", &instances[0].gi.to_string()]);
    // A destroy that succeeds later, and one that never does.
    let call = "nvmlComputeInstanceDestroy";
    let id = create(&setup, "late", "main", SLICE);
    setup.sim(
        "fault",
        &["--call", call, "--returns", "IN_USE", "--to", "1"],
    );
    setup.delete(&id);
    let id = create(&setup, "never", "main", SLICE);
    setup.fault(call, "IN_USE");
    let _ = setup.runmig(&["delete", "--force", &id]);
    setup.no_faults();
    let _ = setup.migctl(&["gc"]);
    let _waiter = setup.waits(&[("runmig.dev/slice", "7g.80gb")]);

    let text = accepted(setup.migctl(&["metrics"]).ok()).stdout;
    let seen = Exposition::read(&text);
    let at_rest = |name: &String, kind: &String| {
        let all = match kind.as_str() {
            "histogram" => seen.of(&format!("{name}_count")),
            _ => seen.of(name),
        };
        all.iter().all(|series| series.value == 0.0)
    };
    let families = families(&text);
    let resting: Vec<&String> = { families.iter() }
        .filter(|(name, kind)| at_rest(name, kind))
        .map(|(name, _)| name)
        .collect();
    // Only a damaged ledger makes it rise, and then the others are missing.
    assert_eq!(resting, ["runmig_records_unreadable"]);
    assert!(families.len() > 30, "{families:?}");
    first.kill();
    second.kill();
}
