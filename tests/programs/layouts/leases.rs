//! `migctl apply` beside leases, idle slices and processes, on a machine with four places.

use crate::layouts::modes::migctl;
use testkit::prelude::*;

/// `migctl apply` of instances on GPU 0.
pub fn apply(world: &World, instances: &str) -> Command {
    let entry = format!(r#"{{"devices": [0], "mig-enabled": true, "mig-devices": {instances}}}"#);
    migctl(world, "apply", &entry)
}

/// The leases, and the instances without one, by a field.
pub fn fields<'v>(listed: &'v [Value], name: &str) -> Vec<&'v str> {
    let mut all: Vec<&str> = { listed.iter() }
        .map(|item| item[name].as_str().unwrap_or("-"))
        .collect();
    all.sort_unstable();
    all
}

/// Returns the leases and instances, as the ledger has them.
pub fn records(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.state().join("ledger.json")).unwrap_or_default();
    let Some(body) = text.lines().nth(1) else {
        return Vec::new();
    };
    let body: Value = serde_json::from_str(body).unwrap();
    let all = ["leases", "instances"].map(|kind| body[kind].as_array().unwrap().clone());
    all.concat()
}

/// Returns the instances of the driver, in their order.
pub fn there(world: &World) -> Vec<(u32, u32, u64, Vec<String>)> {
    let mut all: Vec<_> = { world.instances().into_iter() }
        .map(|i| (i.profile_id, i.start, i.generation, i.uuids))
        .collect();
    all.sort();
    all
}

/// The layout that needs all of the GPU.
const WHOLE: &str = r#"{"4g.24gb": 1}"#;

#[track_caller]
fn changes_nothing(world: &World, instances: &str, words: &[&str]) {
    let before = (records(world), there(world));
    for dry_run in [true, false] {
        let mut command = apply(world, instances);
        if dry_run {
            command.arg("--dry-run");
        }
        let calls = world.driver_calls(|| {
            let refused = said(&mut command).exits(1);
            let line = refused.stderr.trim_end();
            assert_eq!(line.lines().count(), 1, "{line}");
            let about = ["cannot apply layout wanted: ", "; hint: "];
            words.iter().chain(&about).for_each(|word| has(line, word));
            assert_eq!(refused.stdout.contains("destroy"), dry_run, "{refused:?}");
        });
        let changes = |call: &&String| call.contains("Create") || call.contains("Destroy");
        assert_eq!(calls.iter().find(changes), None);
        assert_eq!((records(world), there(world)), before);
    }
}

/// Failure: a layout needs the end of a lease, of any kind and holder
#[test]
fn refuses_end_of_leases() {
    let world = World::small();
    world.create_all(&["train", "serve"]);
    let named = [
        "container train has 1g.6gb at ",
        "container serve has 1g.6gb at ",
    ];
    changes_nothing(&world, WHOLE, &named);
    // As many of them as need to end, and no more.
    let one = ["has 1g.6gb at ", "on GPU 0; hint"];
    changes_nothing(&world, r#"{"1g.6gb": 1}"#, &one);
    world.has_its_slices("train").unwrap();
}

#[test]
fn refuses_end_of_seats_and_claims() {
    let world = World::small();
    let claims = |verb| drop(said(&mut world.claims(verb, "uid")).ok());
    claims("promise");
    changes_nothing(&world, WHOLE, &["claim ", " has 1g.6gb at "]);
    claims("prepare");
    changes_nothing(&world, WHOLE, &["claim ", " has 1g.6gb at 0:1"]);
    claims("unprepare");
    world.configure("sharing.enforcement = [\"none\"]");
    let seat = [("runmig.dev/slice", "1g.6gb"), ("runmig.dev/share", "1/2")];
    world.create_saying("seat", &seat);
    changes_nothing(&world, WHOLE, &["container seat has 1g.6gb at "]);
}

/// Failure: a process has an instance open that a layout does not want
#[test]
fn names_process_on_instance() {
    let world = World::small();
    let gi = world.admin_creates(0, "1g.6gb", 0, true);
    let held = world.hold(0, gi, Some(0));
    let process = format!("process {} ", std::process::id());
    changes_nothing(&world, WHOLE, &[&process, " has 1g.6gb at 0:1"]);
    drop(held);
    // The list of the simulation keeps a process that lives.
    world.change(|machine, _| machine.holders.clear());
    // A child of another test may have the file for a moment more.
    let applies = || said(&mut apply(&world, WHOLE)).status.success();
    until("nothing holds the instance", applies);
    assert_eq!(there(&world).len(), 1);
}

#[test]
fn takes_over_what_is_wanted() {
    let world = World::small();
    world.create("train");
    world.configure("keep_idle = \"5m\"");
    world.comes_and_goes("idle");
    let free = (0..4).find(|s| world.instances().iter().all(|i| i.start != *s));
    world.admin_creates(0, "1g.6gb", free.unwrap(), true);
    let before = there(&world);
    said(&mut apply(&world, r#"{"1g.6gb": 3}"#)).ok();
    // Each is as it was, and on record for the layout.
    assert_eq!(there(&world), before);
    let leases = world.leases();
    assert_eq!(fields(&leases, "layout"), ["wanted"; 3]);
    assert_eq!(fields(&leases, "state"), ["layout", "layout", "ready"]);
    has(&world.tells(&["list"]), "ready, layout");
    let drawn = world.tells(&["gpus"]);
    assert_eq!(drawn.matches("layout: wanted").count(), 2, "{drawn}");
    // The slice outlives its container, a collection and a release by hand.
    world.delete("train");
    let collected = world.gc().ok().stdout;
    let kept = collected.matches("belongs to layout wanted").count();
    assert_eq!(kept, 3);
    for id in fields(&world.leases(), "id") {
        let release = world.ctl(&["release", id]);
        release.refused_for("it belongs to layout wanted");
    }
    assert_eq!(there(&world), before);
    world.comes_and_goes("late");
    said(&mut apply(&world, "{}")).ok();
    assert_eq!(there(&world), []);
    assert_eq!(world.records(), [""; 0]);
}

#[test]
fn lends_layout_to_containers() {
    let world = World::small();
    said(&mut apply(&world, r#"{"1g.6gb": 2, "2g.12gb": 1}"#)).ok();
    let before = there(&world);
    // Without the administrator's word no container gets one.
    said(&mut world.create_command("strict")).refused();
    world.configure("adopt = true");
    for id in ["one", "two"] {
        world.create(id);
        world.has_its_slices(id).unwrap();
    }
    let leases = world.leases();
    assert_eq!(fields(&leases, "state"), ["layout", "ready", "ready"]);
    assert_eq!(there(&world), before);
    let named = ["container one has", "container two has"];
    changes_nothing(&world, WHOLE, &named);
    world.delete_all(&["one", "two"]);
    assert_eq!(fields(&world.leases(), "state"), ["layout"; 3]);
    assert_eq!(there(&world), before);
    world.create("again");
    assert_eq!(there(&world), before);
    world.delete("again");
}

/// Failure: an administrator destroys an instance of a layout
#[test]
fn collection_forgets_destroyed_instance() {
    let world = World::small();
    said(&mut apply(&world, r#"{"1g.6gb": 2}"#)).ok();
    let gone = &world.instances()[0];
    world.admin_destroys(0, gone.gi);
    // An apply sees it too.
    said(&mut apply(&world, r#"{"1g.6gb": 2}"#)).ok();
    assert_eq!((there(&world).len(), world.records().len()), (2, 2));
    let gone = &world.instances()[0];
    world.admin_destroys(0, gone.gi);
    has(&world.tells(&["gc", "--dry-run"]), "its instance is gone");
    assert_eq!(world.records().len(), 2);
    world.gc().ok();
    assert_eq!(world.records().len(), 1);
    // The next apply makes it again.
    said(&mut apply(&world, r#"{"1g.6gb": 2}"#)).ok();
    assert_eq!((there(&world).len(), world.records().len()), (2, 2));
}

/// Failure: creates come while a layout is applied
#[test]
fn creates_get_no_planned_place() {
    let world = World::of(BIG, 1);
    world.takes("nvmlDeviceCreateGpuInstanceWithPlacement", 400);
    let mut applying = going(&mut apply(&world, r#"{"2g.20gb": 2, "1g.10gb": 1}"#));
    let is_planned = || fields(&world.leases(), "layout") == ["wanted"; 3];
    until("the layout is on record", || {
        is_planned() || applying.ended().is_some()
    });
    // Beside it there is room for two, and one of three creates is refused at once.
    let (made, _) = world.create_at_once(&["a", "b", "c"]);
    applying.end().ok();
    world.no_faults();
    assert_eq!(made.len(), 2, "{made:?}");
    world.nothing_lost_nothing_given_twice().unwrap();
    let profiles: Vec<u32> = there(&world).iter().map(|i| i.0).collect();
    assert_eq!(profiles, [14, 14, 19, 19, 19]);
}

/// Failure: a destroy or a create fails in the middle of an apply
#[test]
fn failed_apply_keeps_every_record() {
    let world = World::small();
    let theirs = world.admin_creates(0, "1g.6gb", 3, true);
    let two = r#"{"2g.12gb": 2}"#;
    let in_use = Outcome::Return(19);
    world.fault("nvmlComputeInstanceDestroy", 1, None, in_use);
    let refused = said(&mut apply(&world, two));
    refused.refused_for("cannot destroy 1g.6gb at 3:1 on GPU 0");
    world.no_faults();
    // The instance is as foreign as before.
    assert_eq!(world.instances()[0].gi, theirs);
    assert_eq!(world.records(), [""; 0]);
    let no_room = Outcome::Return(23);
    world.fault("nvmlDeviceCreateGpuInstanceWithPlacement", 2, None, no_room);
    said(&mut apply(&world, two)).refused_for("cannot create 2g.12gb at ");
    world.no_faults();
    assert_eq!((there(&world).len(), world.records().len()), (1, 1));
    assert_eq!(fields(&world.leases(), "state"), ["layout"]);
    said(&mut apply(&world, two)).ok();
    assert_eq!((there(&world).len(), world.records().len()), (2, 2));
}

#[test]
fn dry_run_prints_plan() {
    let world = World::small();
    let mut command = apply(&world, r#"{"1g.6gb": 1}"#);
    said(command.arg("--dry-run")).ok().says("create");
    assert!(!world.state().exists(), "it makes no ledger");
    world.create("train");
    let calls = world.driver_calls(|| {
        let mut command = apply(&world, r#"{"1g.6gb": 1, "1c.2g.12gb": 2}"#);
        let planned = said(command.arg("--dry-run")).ok().stdout;
        let header: Vec<&str> = planned.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(header, ["GPU", "PLACEMENT", "PROFILE", "CHANGE", "HOLDERS"]);
        assert_eq!(planned.lines().count(), 3, "{planned}");
        has(&planned, "keep     container train");
        has(&planned, "2g.12gb (1c + 1c)   create");
        let json = said(command.args(["--output", "json"])).ok().json();
        assert_eq!(json["kind"], "LayoutPlan");
        assert_eq!(json["dryRun"], true);
        assert_eq!(json["applied"], false);
        let mut items = json["items"].as_array().unwrap().iter();
        let created = items.find(|item| item["change"] == "create").unwrap();
        assert_eq!(created["computeSlices"], json!([1, 1]));
    });
    lacks(&calls.join(" "), "Create");
    assert_eq!(world.records().len(), 2);
}

/// An administrator destroyed the slice of a container, and made another one there.
#[test]
fn replaced_slice_counts_as_leased() {
    let world = World::small();
    world.create("train");
    let leased = world.the_instance();
    world.admin_destroys(0, leased.gi);
    world.admin_creates(0, "2g.12gb", leased.start / 2 * 2, true);
    let named = [
        "container train has 2g.12gb at ",
        "container train has 1g.6gb at ",
    ];
    changes_nothing(&world, WHOLE, &named);
    changes_nothing(&world, r#"{"2g.12gb": 1}"#, &named[1..]);
}
