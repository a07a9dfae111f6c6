//! `migctl explain` beside the create that then comes: what they say is what it
//! says, word for word.

use testkit::prelude::*;

const NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";
const POD: &str = "io.kubernetes.cri.sandbox-name";
const POD_UID: &str = "io.kubernetes.cri.sandbox-uid";
const COMPUTE: &str = "runmig.dev/compute";

/// A requester, as engines name it and as migctl is told it.
type Who<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

const NOBODY: Who<'_> = (&[], &[]);
const TEAM: Who<'_> = (&[(NAMESPACE, "team-a")], &["--namespace", "team-a"]);

fn create(world: &World, id: &str, slice: &str, (annotations, _): Who<'_>) {
    said(&mut asking(world, id, slice, annotations)).ok();
}

fn asking(world: &World, id: &str, slice: &str, annotations: &[(&str, &str)]) -> Command {
    let all = [&[("runmig.dev/slice", slice)], annotations].concat();
    world.bundle_saying(id, &all);
    world.create_command(id)
}

fn verb(world: &World, words: &[&str], (_, options): Who<'_>, exits: i32) -> Value {
    let all = [words, options, &["-ojson"]].concat();
    world.ctl(&all).exits(exits).json()
}

/// A create is refused in explain's words, which are of this verdict and hold these. Gives what explain
/// said.
#[track_caller]
fn refused(world: &World, slice: &str, who: Who<'_>, verdict: &str, words: &str) -> Value {
    let told = verb(world, &["explain", slice], who, 1);
    let late = said(&mut asking(world, &unique(), slice, who.0)).refused();
    let late = late.split_once("runmig: ").unwrap().1;
    has(late, words);
    assert_eq!(told["error"], late);
    assert_eq!(told["fits"], false);
    let one = &told["alternatives"][0];
    assert_eq!(one["verdict"], verdict, "{told:#}");
    if told["alternatives"].as_array().unwrap().len() == 1 {
        let (why, hint) = (one["why"].as_str().unwrap(), one["hint"].as_str().unwrap());
        assert_eq!(late, format!("{why}; hint: {hint}"));
        let all = [&["explain", slice], who.1].concat();
        let table = world.ctl(&all).exits(1).stdout;
        begins_with(&table, &format!("{verdict}: {why}\n"));
        let is_hinted = table.ends_with(&format!("hint: {hint}\n"));
        let is_planned = !one["restarts"].as_array().unwrap().is_empty();
        assert!(is_hinted != is_planned, "{table}");
        assert_eq!(table.contains("\nfits then: "), is_planned, "{table}");
    }
    told
}

/// The smallest slices, of which those stay that lie at these places.
fn scattered(world: &World, stay: &[u64]) {
    for id in world.full() {
        let start = world.lease_of(&id)["migPlacement"]["start"].as_u64();
        if !stay.contains(&start.unwrap()) {
            world.delete(&id);
        }
    }
}

/// Returns the GPU of a slice, and its start there.
fn site(slice: &Value) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().unwrap();
    let start = &slice["migPlacement"]["start"];
    (number(&slice["gpuIndex"]), number(start))
}

/// A container that stands in the queue.
fn waiting(world: &World, id: &str, slice: &str) -> Going {
    world.waits(id, &[("runmig.dev/slice", slice)])
}

/// On each GPU the least that has to go, and no advice to wait for an instance that nothing of runmig's ends.
#[test]
fn names_who_is_in_the_way() {
    let world = World::of(SMALL, 2);
    world.create_asking("train", "4g.24gb");
    let gpu = world.lease_of("train")["gpuIndex"].as_u64().unwrap() as u32;
    let other = 1 - gpu;
    let gi = world.admin_creates(other, "1g.6gb", 2, false);
    let theirs = format!("GPU instance {gi} (1g.6gb at 2:1), which runmig did not make");
    let train = format!("; on GPU {gpu} container train (4g.24gb) is in the way");
    let words = format!("{train}, on GPU {other} {theirs}; hint: run migctl list to see");
    refused(&world, "4g.24gb", NOBODY, "full", &words);
    world.delete("train");
    let second = world.admin_creates(gpu, "1g.6gb", 0, false);
    let words = ", is in the way, on GPU 1 GPU instance ";
    let told = refused(&world, "4g.24gb", NOBODY, "full", words);
    lacks(told["alternatives"][0]["hint"].as_str().unwrap(), "wait");
    let foreign = |more: &[&str]| {
        let list = world.json(&[&["list", "-o", "json"], more].concat());
        list["foreign"].clone()
    };
    let of = |i: &Value| json!([i["gpuIndex"], i["gpuInstanceID"]]);
    let all = foreign(&["--all"]);
    let all: Vec<Value> = all.as_array().unwrap().iter().map(of).collect();
    let mut both = [(other, gi), (gpu, second)];
    both.sort_unstable();
    assert_eq!(json!(all), json!(both));
    let of_one = foreign(&["--all", "--gpu", "1"]);
    assert_eq!(of_one.as_array().unwrap().len(), 1);
    assert_eq!(foreign(&[]), Value::Null);
    has(&world.tells(&["list", "--all"]), "GPU instance ");
    world.admin_destroys(other, gi);
    world.admin_destroys(gpu, second);
}

#[test]
fn full_or_fragmented() {
    let world = World::small();
    scattered(&world, &[1, 3]);
    let words = "the free memory is fragmented, and a move of 1g.6gb at ";
    let told = refused(&world, "2g.12gb", NOBODY, "fragmented", words);
    let one = &told["alternatives"][0];
    assert_eq!(one["gpus"][0]["state"], "noPlace");
    let why = one["gpus"][0]["why"].as_str().unwrap();
    has(why, "but no slot of 2g.12gb is");
    let hint = "run migctl explain 2g.12gb to see which containers to restart";
    has(one["hint"].as_str().unwrap(), hint);
    assert_eq!(one["restarts"].as_array().unwrap().len(), 1);
    let words = "too few memory slices are free (2 of 4 on 1 GPU, at most 2 on one)";
    let told = refused(&world, "4g.24gb", NOBODY, "full", words);
    assert_eq!(told["alternatives"][0]["gpus"][0]["state"], "full");
    assert_eq!(told["ahead"], Value::Array(Vec::new()));
    let words = "(1g.6gb) are in the way; cannot allocate 2g.12gb: ";
    let told = refused(&world, "4g.24gb,2g.12gb", NOBODY, "full", words);
    assert_eq!(told["alternatives"][1]["verdict"], "fragmented");
}

#[test]
fn mig_off() {
    let world = World::small();
    world.switch_mig_off(0);
    let words =
        "MIG is off on every GPU that supports it (GPU 0); hint: run nvidia-smi -i 0 -mig 1";
    let told = refused(&world, "1g.6gb", NOBODY, "unsatisfiable", words);
    assert_eq!(told["alternatives"][0]["gpus"][0]["state"], "migOff");
    // In the way of both, and told once.
    let told = refused(&world, "4g.24gb,1g.6gb", NOBODY, "unsatisfiable", words);
    assert_eq!(told["alternatives"].as_array().unwrap().len(), 2);
    let error = told["error"].as_str().unwrap();
    assert_eq!(error.matches("MIG is off").count(), 1, "{error}");
}

/// A GPU that a container has whole can be switched once that container has ended.
#[test]
fn mig_off_while_a_container_has_the_gpu() {
    let world = World::of(SMALL, 2);
    world.switch_mig_off(0);
    world.switch_mig_off(1);
    world.configure("sharing.enforcement = [\"none\"]");
    world.create_saying("first", &[("runmig.dev/gpu", "1")]);
    let words = "MIG is off on every GPU that supports it (GPU 0, 1; GPU 0: container first has all of it); hint: run \
                 nvidia-smi -i 1 -mig 1";
    refused(&world, "1g.6gb", NOBODY, "unsatisfiable", words);
    world.create_saying("second", &[("runmig.dev/share", "1Gi")]);
    let words = "GPU 0: container first has all of it; GPU 1: container second has a share of it); hint: stop the \
                 container, then run nvidia-smi -i 0,1 -mig 1";
    refused(&world, "2g.12gb", NOBODY, "unsatisfiable", words);
    world.delete_all(&["first", "second"]);
}

#[test]
fn quarantined() {
    let world = World::small();
    const GPU_IS_LOST: u32 = 15;
    let fails = Outcome::Return(GPU_IS_LOST);
    let lease = world.abandoned("one");
    world.fault("nvmlGpuInstanceDestroy", 1, None, fails);
    world.gc().exits(1);
    assert_eq!(world.lease_of("one")["id"], lease);
    assert_eq!(world.lease_of("one")["state"], "quarantined");
    world.create_all(&["two", "three"]);
    let words =
        "); 1 memory slice is quarantined, as runmig could not free it; on GPU 0 container ";
    let told = refused(&world, "2g.12gb", NOBODY, "full", words);
    assert_eq!(told["alternatives"][0]["gpus"][0]["quarantinedSlices"], 1);
    // It ends one day, so a request for the whole GPU waits for its place too.
    let large = waiting(&world, "large", "4g.24gb");
    let words = "the free slots are reserved for ";
    refused(&world, "1g.6gb", NOBODY, "queued", words);
    large.kill();
}

/// An instance that an administrator made is handed out, and none that could not be released.
#[test]
fn adopted_is_not_quarantined() {
    let world = World::small();
    world.configure("adopt = true\n");
    world.admin_leaves(0, "1g.6gb", 0);
    let told = world.tells(&["explain", "1g.6gb"]);
    let words = "fits: 1g.6gb at 0:1 on GPU 0: an administrator made it\n";
    begins_with(&told, words);
    world.full();
    assert_eq!(world.lease_of("full0")["adopted"], true);
    let words = "too few memory slices are free (0 of 4";
    let told = refused(&world, "1g.6gb", NOBODY, "full", words);
    assert_eq!(told["alternatives"][0]["gpus"][0]["quarantinedSlices"], 0);
}

#[test]
fn reserved_or_excluded() {
    let world = World::of(SMALL, 2);
    let text =
        "[policy]\nexclude_gpus = [0]\n[[policy.reserve]]\ngpus = [1]\nnamespace = \"team-b\"\n";
    world.configure(text);
    let words = "cannot allocate 1g.6gb: every GPU in MIG mode is excluded (GPU 0: excluded by policy.exclude_gpus; GPU 1: \
                 reserved for namespace team-b by [[policy.reserve]] 1)";
    let told = refused(&world, "1g.6gb", TEAM, "unsatisfiable", words);
    assert_eq!(told["alternatives"][0]["gpus"][1]["state"], "excluded");
    // Nothing that moves would help.
    let restarts = &told["alternatives"][0]["restarts"];
    assert_eq!(*restarts, Value::Array(Vec::new()));
    let other = (&[][..], &["--namespace", "team-b"][..]);
    verb(&world, &["explain", "1g.6gb"], other, 0);
}

#[test]
fn limited() {
    let world = World::small();
    let limit = "[[policy.limit]]\nnamespace = \"*\"\n";
    world.configure(&format!(
        "{limit}memory = \"12Gi\"\n{limit}pod = \"*\"\nslices = 1\n"
    ));
    create(&world, "one", "2g.12gb", TEAM);
    let words = "namespace team-a has 11968Mi of 12Gi of memory, and ";
    let told = refused(&world, "1g.6gb", TEAM, "limited", words);
    // The answer names the place all the same.
    assert_eq!(told["alternatives"][0]["gpus"][0]["state"], "fits");
    refused(&world, "4g.24gb,1g.6gb", TEAM, "limited", words);
    verb(&world, &["explain", "1g.6gb"], NOBODY, 0);

    let annotations = [(NAMESPACE, "team-b"), (POD, "p"), (POD_UID, "u")];
    let pod: Who<'_> = (&annotations, &["--namespace", "team-b", "--pod", "p"]);
    create(&world, "two", "1g.6gb", pod);
    let words =
        "namespace team-b, pod p has 1 of 1 slices ([[policy.limit]] 2); hint: run migctl list";
    refused(&world, "1g.6gb", pod, "limited", words);
    // A profile with room that is more than allowed is left out: the allowed ones have none.
    create(&world, "three", "1g.6gb", NOBODY);
    let team_c: Who<'_> = (&[(NAMESPACE, "team-c")], &["--namespace", "team-c"]);
    let words = "cannot allocate 2g.12gb: ";
    let told = refused(&world, "4g.24gb,2g.12gb", team_c, "limited", words);
    lacks(told["error"].as_str().unwrap(), "4g.24gb");
    assert_eq!(told["alternatives"][1]["verdict"], "full");
}

/// A small request would delay the large one that waits, so it does not even get what is free.
/// Failure: a small request comes while a large one waits
#[test]
fn kept_for_who_waits() {
    let world = World::small();
    world.create("small");
    let large = waiting(&world, "large", "4g.24gb");
    let words = "cannot allocate 1g.6gb: the free slots are reserved for 1 earlier request (container large, 4g.24gb)";
    let told = refused(&world, "1g.6gb", NOBODY, "queued", words);
    let one = &told["alternatives"][0];
    assert_eq!(one["gpus"][0]["state"], "queued");
    assert_eq!(told["ahead"][0]["container"], "large");
    assert_eq!(told["ahead"][0]["request"], "4g.24gb");
    // Any other verdict names the queue too.
    let words =
        "(1g.6gb) is in the way; 1 earlier request waits (container large, 4g.24gb); hint: ";
    refused(&world, "4g.24gb", NOBODY, "full", words);
    world.delete("small");
    large.end().ok();
    world.delete("large");
    verb(&world, &["explain", "1g.6gb"], NOBODY, 0);
}

#[test]
fn answers_what_can_never_fit() {
    let world = World::small();
    let words = "cannot allocate 1g.10gb: no GPU offers the profile; hint: request one of 1g.6gb, ";
    let told = refused(&world, "1g.10gb", NOBODY, "unsatisfiable", words);
    assert_eq!(told["alternatives"][0]["gpus"][0]["state"], "noProfile");
    world.configure("[policy]\nprofiles = [\"2g.*\"]\n");
    let line = world.refuses_asking("barred", "1g.6gb", "");
    let told = world.ctl(&["explain", "1g.6gb"]).refused();
    let [told, line] = [&told, &line].map(|line| line.split_once(": ").unwrap().1);
    assert_eq!(told, line);
}

/// As the annotations say it: before anything is looked at.
#[test]
fn refuses_bad_requests() {
    let world = World::small();
    let long = "x".repeat(300);
    let cases: [(&str, Who<'_>); 6] = [
        ("20", NOBODY),
        ("1g.6gb,,2g.12gb", NOBODY),
        (&long, NOBODY),
        ("1g.6gb", (&[(COMPUTE, "2")], &["--compute", "2"])),
        ("1g.6gb", (&[(COMPUTE, "0")], &["--compute", "0"])),
        ("1Gi", (&[(COMPUTE, "99")], &["--compute", "99"])),
    ];
    for (n, (slice, who)) in cases.into_iter().enumerate() {
        let line = said(&mut asking(&world, &format!("c{n}"), slice, who.0)).refused();
        let line = line.split_once("runmig: ").unwrap().1;
        let told = world.ctl(&[&["explain", slice], who.1].concat()).refused();
        assert_eq!(told.strip_prefix("migctl: "), Some(line));
    }
    let none = world.ctl(&["explain", "none"]);
    none.refused_for("none asks for nothing");
}

/// A create destroys it before it looks for room.
#[test]
fn never_reuses_expired_idle_slice() {
    let world = World::small();
    world.configure("keep_idle = \"1h\"\n");
    world.comes_and_goes("one");
    let places = || {
        let told = verb(&world, &["explain", "1g.6gb"], NOBODY, 0);
        let places = &told["alternatives"][0]["gpus"][0]["places"];
        places.as_array().unwrap().clone()
    };
    assert_eq!(places()[0]["reusesIdle"], true);
    world.configure("");
    let places = places();
    let best = &places[0];
    assert_eq!(best["evictsIdle"], 0);
    assert!(places.iter().all(|p| p["reusesIdle"] == false));
    world.create("two");
    assert_eq!(world.lease_of("two")["migPlacement"], best["migPlacement"]);
}

#[test]
fn names_fewest_restarts_of_each_alternative() {
    let world = World::of(BIG, 1);
    scattered(&world, &[1, 5]);
    let explain = |words: &[&str], exits: i32| {
        let words = [&["explain"], words].concat();
        verb(&world, &words, NOBODY, exits)
    };
    let told = explain(&["7g.80gb,3g.40gb,4g.40gb"], 1);
    let ways: Vec<_> = { told["alternatives"].as_array().unwrap().iter() }
        .map(|way| {
            let restarts = way["restarts"].as_array().unwrap().len();
            let (request, verdict) = (way["request"].as_str(), way["verdict"].as_str());
            (request.unwrap(), verdict.unwrap(), restarts)
        })
        .collect();
    let wanted = [
        ("7g.80gb", "full", 0),
        ("3g.40gb", "fragmented", 1),
        ("4g.40gb", "fragmented", 1),
    ];
    assert_eq!(ways, wanted);
    let table = world.ctl(&["explain", "7g.80gb,4g.40gb"]).exits(1).stdout;
    let order =
        "\nstop these, start the new one, then start these again in this order:\nCONTAINER ";
    has(&table, order);
    has(&table, "\nfits then: 4g.40gb at 0:4 on GPU 0\n");
    lacks(&table, "hint: run migctl explain");
    // By compute slices: an amount that 2g.20gb has not.
    let two = explain(&["15Gi", "--compute", "4"], 1);
    assert_eq!(two["alternatives"][0]["slices"][0]["profile"], "4g.40gb");
    // A waiting request is served first, and does not keep it from being planned.
    let large = waiting(&world, "large", "4g.40gb");
    let told = explain(&["4g.40gb"], 1);
    let one = &told["alternatives"][0];
    assert_eq!(one["restarts"].as_array().unwrap().len(), 1, "{told:#}");
    assert_eq!(told["ahead"][0]["container"], "large");
    has(one["why"].as_str().unwrap(), "1 earlier request waits");
    large.kill();
}

/// Names the place of each of several, and everything that has to move for them.
#[test]
fn answers_several_slices() {
    let world = World::of(SMALL, 2);
    let allowed = "[policy]\nslices_per_container = 4\n";
    world.configure(allowed);
    scattered(&world, &[1, 3]);
    type Sites = BTreeSet<(u64, u64)>;
    let sites = |told: &Value| -> Sites {
        let slices = told["slices"].as_array().unwrap();
        slices.iter().map(site).collect()
    };
    let lie = |id: &str| -> Sites {
        let leases = world.leases().into_iter();
        let its = leases.filter(|l| l["container"] == id);
        its.map(|lease| site(&lease)).collect()
    };
    let told = verb(&world, &["explain", "1g.6gb*3"], NOBODY, 0);
    let three = sites(&told["alternatives"][0]);
    world.create_asking("three", "1g.6gb*3");
    assert_eq!(three.len(), 3);
    assert_eq!(lie("three"), three);
    let words =
        "cannot allocate 1g.6gb*2: after 1 of 2 slices, too few memory slices are free (0 of 8 ";
    refused(&world, "1g.6gb*2", NOBODY, "full", words);
    world.delete("three");

    let words = " a move of 1g.6gb at ";
    let told = refused(&world, "2g.12gb*2", NOBODY, "fragmented", words);
    let plan = &told["alternatives"][0];
    let restarts = plan["restarts"].as_array().unwrap();
    let ids = restarts.iter().map(|r| r["container"].as_str().unwrap());
    let ids: Vec<&str> = ids.collect();
    assert_eq!(ids.len(), 2, "{plan:#}");
    world.delete_all(&ids);
    world.create_asking("two", "2g.12gb*2");
    assert_eq!(lie("two"), sites(plan));
    for (id, restart) in ids.iter().zip(restarts) {
        world.create(id);
        let lease = world.lease_of(id);
        assert_eq!(lease["gpuIndex"], restart["toGPUIndex"]);
        assert_eq!(lease["migPlacement"], restart["toPlacement"]);
    }

    let words = "cannot allocate 4g.24gb*3: 2 GPUs hold at most 2 of 4g.24gb; hint: request fewer";
    refused(&world, "4g.24gb*3", NOBODY, "unsatisfiable", words);
    let limit = "[[policy.limit]]\nnamespace = \"*\"\nslices = 1\n";
    world.configure(&format!("{allowed}{limit}"));
    let words = "namespace team-a has 0 of 1 slices, and 2 are asked for ([[policy.limit]] 1)";
    refused(&world, "1g.6gb*2", TEAM, "limited", words);
}
