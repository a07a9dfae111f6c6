//! Every step of a create, a lease and an instance has its event.

use crate::counters::{creates, releases};
use crate::events::{events, types};
use nvml_sim::fault::Outcome as Fault;
use runmig_lease::counters::{Actor, LeaseKind, Outcome};
use testkit::prelude::*;

#[test]
fn lease_is_that_of_list() {
    let world = World::small();
    world.create_in_pod("one", "pod");
    let listed = world.lease_of("one");
    let events = events(&world);
    let [_, ready] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(ready["lease"], listed);
    assert_eq!(ready["apiVersion"], "runmig.dev/v1");
    assert_eq!(ready["kind"], "Event");
    assert_eq!(ready["verdict"], "created");
    let seconds = &ready["seconds"];
    let part = |name: &str| seconds[name].as_f64().expect(name);
    assert!(part("total") >= part("runtime") && part("driver") > 0.0 && part("wait") == 0.0);
}

#[test]
fn tells_reuse_and_eviction() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.comes_and_goes("one");
    world.comes_and_goes("two");
    world.create_asking("all", "4g.24gb");
    let all = events(&world);
    let expected = "created ready released reused ready released evicted created ready";
    assert_eq!(types(&all).join(" "), expected);
    assert_eq!(all[2]["actor"], "hook");
    assert_eq!(all[4]["verdict"], "reused");
    assert_eq!(all[6]["actor"], "eviction");
    assert_eq!(all[6]["lease"]["gpuIndex"], 0);
    let counted = [(Outcome::Created, 2), (Outcome::Reused, 1)];
    assert_eq!(creates(&world, LeaseKind::Slice), counted);
    assert_eq!(releases(&world), [(Actor::Hook, 2), (Actor::Eviction, 1)]);
}

#[test]
fn tells_adopted_and_shared_slices() {
    let world = World::small();
    world.configure("adopt = true");
    world.admin_leaves(0, world.profile, 0);
    world.create("one");
    for id in ["two", "three"] {
        world.create_in_pod(id, "pod");
    }
    let all = events(&world);
    let expected = ["adopted", "ready", "created", "ready", "shared", "ready"];
    assert_eq!(types(&all), expected);
    assert_eq!(all[0]["lease"]["adopted"], true);
    assert_eq!(all[5]["lease"]["container"], "three");
    let counted = [Outcome::Created, Outcome::Adopted, Outcome::Shared].map(|end| (end, 1));
    assert_eq!(creates(&world, LeaseKind::Slice), counted);
}

#[test]
fn tells_refusal_with_verdict() {
    let world = World::small();
    world.create_asking("all", "4g.24gb");
    let line = world.refuses("one", "");
    world.refuses_asking("huge", "7g.80gb", "");
    let config = world.bundle("odd").join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    let odd = text.replacen("\"linux\": {", "\"linux\": {\"devices\": 7, ", 1);
    fs::write(&config, odd).unwrap();
    world.delete("all");
    world.refuses("odd", "");
    world.behave("create-fails-early");
    world.refuses("two", "");
    world.behave("");
    let call = "nvmlGpuInstanceCreateComputeInstance";
    world.fault(call, 1, None, Fault::Return(15));
    world.refuses("three", "");
    let mut refused = events(&world);
    refused.retain(|event| event["type"] == "refused");
    let verdicts: Vec<&Value> = refused.iter().map(|event| &event["verdict"]).collect();
    let expected = ["full", "unsatisfiable", "refused", "runtime", "driver"];
    assert_eq!(verdicts, expected);
    use Outcome::{Created, Driver, Full, Refused, Runtime, Unsatisfiable};
    let ends = [Created, Full, Unsatisfiable, Refused, Driver, Runtime];
    assert_eq!(creates(&world, LeaseKind::Slice), ends.map(|end| (end, 1)));
    let one = &refused[0];
    assert_eq!(one["lease"]["container"], "one");
    assert_eq!(one["lease"]["request"], world.profile);
    assert_eq!(one["lease"]["kind"], "slice");
    has(&line, one["error"].as_str().unwrap());
    assert_eq!(refused[2]["lease"]["container"], "odd");
}

#[test]
fn tells_begin_and_end_of_wait() {
    let world = World::small();
    world.create_asking("all", "4g.24gb");
    let mut following = going(&mut world.migctl(&["events", "--follow"]));
    let waits = world.waits("one", &[("runmig.dev/slice", world.profile)]);
    following.until("wait-begun");
    world.delete("all");
    waits.end().ok();
    following.until("wait-ended");
    let mut all = events(&world);
    all.retain(|event| event["lease"]["container"] == "one");
    let expected = ["wait-begun", "wait-ended", "created", "ready"];
    assert_eq!(types(&all), expected);
    assert!(all[1]["seconds"]["wait"].as_f64() > Some(0.0));
    assert_eq!(all[1]["seconds"]["wait"], all[3]["seconds"]["wait"]);
}

/// Whoever collects next tells it: a gc, or a create without room.
#[test]
fn tells_end_of_killed_wait() {
    let world = World::small();
    world.create_asking("all", "4g.24gb");
    for (n, collects) in ["gc", "create"].into_iter().enumerate() {
        let waits = world.waits("one", &[("runmig.dev/slice", world.profile)]);
        waits.kill();
        match collects {
            "gc" => drop(world.gc().ok()),
            _ => drop(world.refuses("two", "")),
        }
        let mut all = events(&world);
        all.retain(|event| event["lease"]["container"] == "one");
        assert_eq!(types(&all[2 * n..]), ["wait-begun", "wait-ended"]);
        assert_eq!(all[2 * n + 1]["error"], "its process has ended");
        assert_eq!(all[2 * n + 1]["lease"]["request"], world.profile);
    }
}

#[test]
fn tells_collection_quarantine_and_recovery() {
    let world = World::small();
    world.abandoned("one");
    world.gc().ok();
    world.create("two");
    world.fault("nvmlComputeInstanceDestroy", 1, None, Fault::Return(999));
    world.delete("two");
    world.gc();
    world.no_faults();
    world.gc().ok();
    let all = events(&world);
    let expected = "created ready collected created ready quarantined collected recovered";
    assert_eq!(types(&all).join(" "), expected);
    assert_eq!(all[2]["actor"], "gc");
    assert_eq!(all[5]["lease"]["container"], "two");
    has(all[5]["error"].as_str().unwrap(), "999");
    let errors = all[6..].iter().map(|event| &event["lease"]["error"]);
    assert!(errors.clone().all(Value::is_null));
    assert_eq!(all[7]["lease"]["gpuUUID"], all[3]["lease"]["gpuUUID"]);
}

#[test]
fn tells_damaged_ledger_and_ended_boot() {
    let world = World::small();
    world.create("one");
    world.damage_all();
    world.delete("one");
    world.repair();
    world.gc().ok();
    world.create("two");
    world.reboot();
    world.gc().ok();
    let all = events(&world);
    let expected = "created ready record-damaged collected created ready collected";
    assert_eq!(types(&all).join(" "), expected);
    for field in ["record", "error"] {
        assert!(all[2][field].is_string(), "{field}: {}", all[2]);
    }
    assert_eq!(all[6]["error"], "its boot is over");
}

#[test]
fn tells_life_of_claim() {
    let world = World::small();
    for verb in ["promise", "prepare", "prepare", "unprepare"] {
        said(&mut world.claims(verb, "u-1")).ok();
    }
    let all = events(&world);
    assert_eq!(types(&all), ["promised", "created", "ready", "released"]);
    for event in &all {
        assert_eq!(event["lease"]["claim"]["uid"], "u-1", "{event}");
    }
    let rows = world.tells(&["events"]);
    assert!(rows.lines().all(|row| row.contains(" claim ")), "{rows}");
}
