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
    let all = [words, options, &["--json"]].concat();
    said(&mut world.migctl(&all)).exits(exits).json()
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
        let table = said(&mut world.migctl(&all)).exits(1).stdout;
        assert!(table.starts_with(&format!("{verdict}: {why}\n")), "{table}");
        let is_hinted = table.ends_with(&format!("hint: {hint}\n"));
        let is_planned = !one["restarts"].as_array().unwrap().is_empty();
        assert!(is_hinted != is_planned, "{table}");
        assert_eq!(table.contains("\nfits then: "), is_planned, "{table}");
    }
    told
}

fn full(world: &World) {
    (0..world.slots).for_each(|n| drop(world.create(&format!("full{n}"))));
}

/// The smallest slices, of which those stay that lie at these places.
fn scattered(world: &World, stay: &[u64]) {
    full(world);
    for n in 0..world.slots {
        let id = format!("full{n}");
        let start = world.lease_of(&id)["migPlacement"]["start"].as_u64();
        if !stay.contains(&start.unwrap()) {
            world.delete(&id);
        }
    }
}

/// A container that stands in the queue.
fn waiting(world: &World, id: &str, slice: &str) -> Going {
    world.waits(id, &[("runmig.dev/slice", slice)])
}

/// On each GPU the least that has to go, and no advice to wait for an instance that nothing of runmig's ends.
#[test]
fn names_who_is_in_the_way() {
    let world = World::of(SMALL, 2);
    said(&mut asking(&world, "train", "4g.24gb", &[])).ok();
    let gpu = world.lease_of("train")["gpuIndex"].as_u64().unwrap() as u32;
    let other = 1 - gpu;
    let gi = world.admin_creates(other, "1g.6gb", 2, false);
    let theirs = format!("GPU instance {gi} (1g.6gb at 2:1), which runmig did not make");
    let words = format!(
        "; on GPU {gpu} container train (4g.24gb) is in the way, on GPU {other} {theirs}; hint: run migctl list to see"
    );
    refused(&world, "4g.24gb", NOBODY, "full", &words);
    world.delete("train");
    let second = world.admin_creates(gpu, "1g.6gb", 0, false);
    let words = ", is in the way, on GPU 1 GPU instance ";
    let told = refused(&world, "4g.24gb", NOBODY, "full", words);
    let hint = told["alternatives"][0]["hint"].as_str().unwrap();
    assert!(!hint.contains("wait"), "{hint}");
    let list = |more: &[&str]| {
        let words = [&["list", "-o", "json"], more].concat();
        world.json(&words)
    };
    let all = list(&["--all"]);
    let ids = |list: &Value| -> Vec<(u64, u64)> {
        let of = |i: &Value| {
            (
                i["gpuIndex"].as_u64().unwrap(),
                i["gpuInstanceID"].as_u64().unwrap(),
            )
        };
        list["foreign"].as_array().unwrap().iter().map(of).collect()
    };
    let mut both = [(other, gi), (gpu, second)].map(|(gpu, gi)| (u64::from(gpu), u64::from(gi)));
    both.sort_unstable();
    assert_eq!(ids(&all), both);
    assert_eq!(ids(&list(&["--all", "--gpu", "1"])).len(), 1);
    assert_eq!(list(&[])["foreign"], Value::Null);
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
    world.change(|machine, _| {
        let gpu = &mut machine.gpus[0];
        (gpu.mode, gpu.pending) = (Mode::Off, Mode::Off);
    });
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
    world.change(|machine, _| {
        for gpu in &mut machine.gpus {
            (gpu.mode, gpu.pending) = (Mode::Off, Mode::Off);
        }
    });
    world.configure("sharing.enforcement = [\"none\"]");
    let takes = |id: &str, asks| {
        world.bundle_saying(id, &[asks]);
        said(&mut world.create_command(id)).ok();
    };
    takes("first", ("runmig.dev/gpu", "1"));
    let words = "MIG is off on every GPU that supports it (GPU 0, 1; GPU 0: container first has all of it); hint: run \
                 nvidia-smi -i 1 -mig 1";
    refused(&world, "1g.6gb", NOBODY, "unsatisfiable", words);
    takes("second", ("runmig.dev/share", "1Gi"));
    let words = "GPU 0: container first has all of it; GPU 1: container second has a share of it); hint: stop the \
                 container, then run nvidia-smi -i 0,1 -mig 1";
    refused(&world, "2g.12gb", NOBODY, "unsatisfiable", words);
    for id in ["first", "second"] {
        world.delete(id);
    }
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
    create(&world, "two", "1g.6gb", NOBODY);
    create(&world, "three", "1g.6gb", NOBODY);
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
    assert!(told.starts_with(words), "{told}");
    full(&world);
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
    world.configure(
        "[[policy.limit]]\nnamespace = \"*\"\nmemory = \"12Gi\"\n\
         [[policy.limit]]\nnamespace = \"*\"\npod = \"*\"\nslices = 1\n",
    );
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
    let words = "namespace team-b, pod p has 1 of 1 slices ([[policy.limit]] 2); hint: migctl list";
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
    let line = said(&mut asking(&world, "barred", "1g.6gb", &[])).refused();
    let told = said(&mut world.migctl(&["explain", "1g.6gb"])).refused();
    assert_eq!(
        told.split_once(": ").unwrap().1,
        line.split_once("runmig: ").unwrap().1
    );
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
        let told = said(&mut world.migctl(&[&["explain", slice], who.1].concat())).refused();
        assert_eq!(told.strip_prefix("migctl: "), Some(line));
    }
    said(&mut world.migctl(&["explain", "none"])).refused_for("none asks for nothing");
}

/// A create destroys it before it looks for room.
#[test]
fn never_reuses_expired_idle_slice() {
    let world = World::small();
    world.configure("keep_idle = \"1h\"\n");
    world.create("one");
    world.delete("one");
    let explained = || verb(&world, &["explain", "1g.6gb"], NOBODY, 0);
    let best = |told: &Value| told["alternatives"][0]["gpus"][0]["places"][0].clone();
    assert_eq!(best(&explained())["reusesIdle"], true);
    world.configure("");
    let told = explained();
    let best = best(&told);
    assert_eq!(best["reusesIdle"], false);
    assert_eq!(best["evictsIdle"], 0);
    let mut places = told["alternatives"][0]["gpus"][0]["places"]
        .as_array()
        .unwrap()
        .iter();
    assert!(places.all(|p| p["reusesIdle"] == false));
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
    assert_eq!(
        ways,
        [
            ("7g.80gb", "full", 0),
            ("3g.40gb", "fragmented", 1),
            ("4g.40gb", "fragmented", 1)
        ]
    );
    let table = said(&mut world.migctl(&["explain", "7g.80gb,4g.40gb"]))
        .exits(1)
        .stdout;
    has(&table, "\nfits then: 4g.40gb at 0:4 on GPU 0\n");
    assert!(!table.contains("hint: run migctl explain"), "{table}");
    // By compute slices: an amount that 2g.20gb has not.
    let two = explain(&["15Gi", "--compute", "4"], 1);
    assert_eq!(two["alternatives"][0]["slices"][0]["profile"], "4g.40gb");
    // A waiting request is served first, and does not keep it from being planned.
    let large = waiting(&world, "large", "4g.40gb");
    let told = explain(&["4g.40gb"], 1);
    let one = &told["alternatives"][0];
    assert_eq!(one["restarts"].as_array().unwrap().len(), 1, "{told:#}");
    assert_eq!(told["ahead"][0]["container"], "large");
    let why = one["why"].as_str().unwrap();
    assert!(why.contains("1 earlier request waits"), "{told:#}");
    large.kill();
}

/// Names the place of each of several, and everything that has to move for them.
#[test]
fn answers_several_slices() {
    let world = World::of(SMALL, 2);
    let allowed = "[policy]\nslices_per_container = 4\n";
    world.configure(allowed);
    scattered(&world, &[1, 3]);
    let sites = |told: &Value| -> Vec<(u64, u64)> {
        let all = told["slices"].as_array().unwrap().iter();
        all.map(|s| {
            (
                s["gpuIndex"].as_u64().unwrap(),
                s["migPlacement"]["start"].as_u64().unwrap(),
            )
        })
        .collect()
    };
    let lie = |id: &str| -> Vec<(u64, u64)> {
        let leases = world.leases().into_iter().filter(|l| l["container"] == id);
        let mut all: Vec<_> = leases
            .map(|l| {
                (
                    l["gpuIndex"].as_u64().unwrap(),
                    l["migPlacement"]["start"].as_u64().unwrap(),
                )
            })
            .collect();
        all.sort();
        all
    };
    let told = verb(&world, &["explain", "1g.6gb*3"], NOBODY, 0);
    let mut three = sites(&told["alternatives"][0]);
    create(&world, "three", "1g.6gb*3", NOBODY);
    three.sort();
    assert_eq!(lie("three"), three);
    let words =
        "cannot allocate 1g.6gb*2: after 1 of 2 slices, too few memory slices are free (0 of 8 ";
    refused(&world, "1g.6gb*2", NOBODY, "full", words);
    world.delete("three");

    let words = " a move of 1g.6gb at ";
    let told = refused(&world, "2g.12gb*2", NOBODY, "fragmented", words);
    let plan = &told["alternatives"][0];
    let restarts = plan["restarts"].as_array().unwrap();
    let ids: Vec<&str> = restarts
        .iter()
        .map(|r| r["container"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 2, "{plan:#}");
    ids.iter().for_each(|id| drop(world.delete(id)));
    create(&world, "two", "2g.12gb*2", NOBODY);
    let mut two = sites(plan);
    two.sort();
    assert_eq!(lie("two"), two);
    for (id, restart) in ids.iter().zip(restarts) {
        create(&world, id, "1g.6gb", NOBODY);
        let to = (&restart["toGPUIndex"], &restart["toPlacement"]["start"]);
        let to = (to.0.as_u64().unwrap(), to.1.as_u64().unwrap());
        assert_eq!(lie(id), [to]);
    }

    let words = "cannot allocate 4g.24gb*3: 2 GPUs hold at most 2 of 4g.24gb; hint: request fewer";
    refused(&world, "4g.24gb*3", NOBODY, "unsatisfiable", words);
    world.configure(&format!(
        "{allowed}[[policy.limit]]\nnamespace = \"*\"\nslices = 1\n"
    ));
    let words = "namespace team-a has 0 of 1 slices, and 2 are asked for ([[policy.limit]] 1)";
    refused(&world, "1g.6gb*2", TEAM, "limited", words);
}
