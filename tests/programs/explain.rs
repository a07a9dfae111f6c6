//! migctl explain and gpus, on real containers: what they say is what then happens.

use testkit::prelude::*;

fn setup(gpus: u32) -> Setup {
    Setup::on(Low::Runc, Machine::new("A100-80GB", gpus))
}

fn place(setup: &Setup, id: &str) -> (Value, Value) {
    let lease = setup.lease(id);
    (lease["gpuIndex"].clone(), lease["migPlacement"].clone())
}

/// Creates the smallest slices everywhere, and releases all but those at 1 and 5.
fn scatter(setup: &Setup) {
    let ids = [0, 1, 2, 3, 4, 5, 6].map(|n| format!("c{n}"));
    ids.iter().for_each(|id| setup.make(id, "1g.10gb"));
    for id in &ids {
        if place(setup, id).1["start"].as_u64().unwrap() % 4 != 1 {
            setup.delete(id);
        }
    }
}

/// Returns what explain says of the only alternative of a request without room.
fn without_room(setup: &Setup, request: &str) -> Value {
    let said = setup.migctl(&["explain", request, "-o", "json"]);
    said.exits(1).json()["alternatives"][0].clone()
}

/// A program would take half an answer for a whole one; and what cannot be told is no crash.
#[test]
fn fails_when_output_is_closed() {
    let setup = setup(1);
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut gpus = setup.plain(&setup.program("migctl"));
    let ended = gpus.args(["gpus", "-o", "json"]).stdout(full()).output();
    let ended = ended.unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let line = String::from_utf8(ended.stderr).unwrap();
    has(&line, "write to standard output: No space");
    let mut mute = setup.plain(&setup.program("migctl"));
    let status = mute.args(["release", "nobody"]).stderr(full()).status();
    assert_eq!(status.unwrap().code(), Some(1));
}

#[test]
fn create_follows_the_answer() {
    let setup = setup(2);
    for (n, slice) in ["1g.10gb", "3g.40gb", "20Gi", "2g.20gb"].iter().enumerate() {
        let said = setup.json(&["explain", slice, "-ojson"]);
        assert_eq!(said["apiVersion"], "runmig.dev/v1");
        assert_eq!(said["kind"], "Explanation");
        assert_eq!(said["fits"], true);
        let first = &said["alternatives"][0]["gpus"][0];
        assert_eq!(first["state"], "fits");
        let best = first["places"][0]["migPlacement"].clone();
        let id = format!("c{n}");
        setup.make(&id, slice);
        let given = (first["index"].clone(), best);
        assert_eq!(place(&setup, &id), given, "{slice}");
    }
    let table = setup.tells(&["explain", "7g.80gb,1g.10gb"]);
    let begins = |words| table.starts_with(words);
    assert!(
        begins("full: cannot allocate 7g.80gb: ") || begins("fragmented: "),
        "{table}"
    );
    has(&table, "\nfits: 1g.10gb at ");
    setup.ends(&["c0", "c1", "c2", "c3"]);
}

#[test]
fn never_moves_foreign_instances() {
    let setup = setup(1);
    for start in ["1", "5"] {
        let create = ["--gpu", "0", "--profile", "1g.10gb", "--start", start];
        setup.sim("create", &create);
    }
    let one = without_room(&setup, "3g.40gb");
    assert_eq!(one["verdict"], "full");
    let why = one["why"].as_str().unwrap();
    has(why, "the slices in the way cannot be moved");
    assert_eq!(one["restarts"], json!([]));
    let gpu = &setup.items(&["gpus"])[0];
    assert_eq!(gpu["freeSlices"], 6);
    // 2g.20gb fits, and 4g.40gb would, did they lie together.
    assert_eq!(gpu["fragmentationPercent"], 50);
    let states = gpu["slices"].as_array().unwrap().iter();
    let states: Vec<&str> = states.map(|s| s["state"].as_str().unwrap()).collect();
    let wanted = "free foreign free free free foreign free free";
    assert_eq!(states.join(" "), wanted);
}

#[test]
fn draws_each_gpu_as_bar() {
    let setup = setup(1);
    setup.make("web", "3g.40gb");
    setup.make("job", "1g.10gb");
    let shown = setup.tells(&["gpus"]);
    let lines: Vec<&str> = shown.lines().skip(1).take(4).collect();
    assert_eq!(
        lines,
        [
            "slice   0  1  2  3  4  5  6  7",
            "        .  .  .  A  B  B  B  B   3 of 8 free, 0 % fragmented",
            "  A  1g.10gb      3:1   leased: job",
            "  B  3g.40gb      4:4   leased: web",
        ],
        "{shown}"
    );
    let slice = &setup.items(&["gpus"])[0]["slices"][4];
    assert_eq!(slice["state"], "leased");
    assert_eq!(slice["profile"], "3g.40gb");
    assert_eq!(slice["leases"][0], setup.lease("web")["id"]);
    setup.ends(&["web", "job"]);
}

/// Failure: MIG is off on a GPU
#[test]
fn gpus_shows_profiles_without_mig() {
    let off = Machine::with(&["--gpu", "H200-141GB", "--gpu", "A100-80GB", "--mig", "off"]);
    off.sim("mig", &["--gpu", "1", "on"]);
    let setup = Setup::on(Low::Runc, off);
    let table = setup.tells(&["gpus"]);
    let (off, on) = table.split_once("\n\n").unwrap();
    let would = "MIG disabled, free\nwith MIG on (nvidia-smi -i 0 -mig 1) it would offer:\nNAME";
    has(off, would);
    assert_eq!(off.matches("MIG 7g.141gb").count(), 1, "{table}");
    has(off, " 0/7 ");
    lacks(off, "fragmented");
    has(on, "MIG enabled\n");
    lacks(on, "would");

    let [off, on] = &setup.items(&["gpus"])[..] else {
        panic!("{table}")
    };
    assert_eq!(off["profiles"], json!([]));
    let offered = off["profilesWithMIGOn"].as_array().unwrap();
    assert_eq!(offered.len(), 7);
    assert_eq!(offered[0]["name"], "1g.18gb");
    assert_eq!(offered[0]["instancesFree"], 0);
    assert_eq!(offered[0]["instancesTotal"], 7);
    assert_eq!(on["profiles"].as_array().unwrap().len(), 7);
    assert_eq!(on["profilesWithMIGOn"], json!([]));
}

#[test]
fn gpus_without_mig_say_so() {
    let setup = Setup::with("--gpu L40S --gpu T4", "");
    let table = setup.tells(&["gpus"]);
    has(&table, "NVIDIA L40S (GPU-");
    let free = table.matches(", MIG unsupported, free\n");
    assert_eq!(free.count(), 2, "{table}");
    let refusal = "cannot allocate 1g.10gb: no GPU supports MIG (the driver lists 2 GPUs)";
    let said = setup.migctl(&["explain", "1g.10gb"]).exits(1).stdout;
    has(&said, refusal);
    let reasons = said.matches("the GPU does not support MIG");
    assert_eq!(reasons.count(), 2, "{said}");

    let line = setup.refused(&setup.asking("1g.10gb", "true"));
    let hint = "hint: use an A30, A100, H100 or a later data-centre GPU";
    assert_eq!(line, format!("runmig: {refusal}; {hint}"));
    setup.nothing_is_left();
}

#[test]
fn explain_foresees_mig_switched_on() {
    let mixed = Machine::with(&["--gpu", "A100-80GB", "--count", "2", "--mig", "on"]);
    mixed.sim("mig", &["--gpu", "1", "off"]);
    let setup = Setup::on(Low::Runc, mixed);
    // It fits now, without any switch.
    let said = setup.json(&["explain", "7g.80gb", "-ojson"]);
    assert_eq!(said["alternatives"][0]["withMIGOn"], Value::Null);
    setup.make("web", "7g.80gb");
    let said = setup.migctl(&["explain", "3g.40gb", "-ojson"]);
    let said = said.exits(1).json();
    assert_eq!(said["fits"], false);
    let with = &said["alternatives"][0]["withMIGOn"];
    assert_eq!(with["fits"], true, "{said:#}");
    assert_eq!(with["command"], "nvidia-smi -i 1 -mig 1");
    assert_eq!(with["slices"][0]["gpuIndex"], 1);
    let table = setup.migctl(&["explain", "3g.40gb"]).exits(1).stdout;
    let line = "\nwith MIG on (nvidia-smi -i 1 -mig 1): fits: 3g.40gb at 4:4 on GPU 1\n";
    has(&table, line);
    // It is what then happens.
    setup.sim("mig", &["--gpu", "1", "on"]);
    setup.make("job", "3g.40gb");
    let there = with["slices"][0]["migPlacement"].clone();
    assert_eq!(place(&setup, "job"), (1.into(), there));
    setup.ends(&["job", "web"]);

    setup.sim("mig", &["--gpu", "all", "off"]);
    let with = without_room(&setup, "9g.99gb")["withMIGOn"].clone();
    assert_eq!(with["fits"], false);
    assert_eq!(with["command"], Value::Null);
    has(with["why"].as_str().unwrap(), "9g.99gb");
    setup.nothing_is_left();
}

/// Started again, a container with several slices would have them all made anew, on GPUs of their own.
#[test]
fn plans_for_different_slices() {
    let setup = setup(1);
    setup.configure("policy.slices_per_container = 2");
    scatter(&setup);
    let said = without_room(&setup, "1g.10gb&3g.40gb");
    assert_eq!(said["verdict"], "fragmented", "{said:#}");
    let profiles = [&said["slices"][0]["profile"], &said["slices"][1]["profile"]];
    assert_eq!(profiles, ["3g.40gb", "1g.10gb"], "{said:#}");
    let why = "cannot allocate 3g.40gb&1g.10gb: none for 3g.40gb: ";
    let refused = setup.refuses(&[("runmig.dev/slice", "1g.10gb&3g.40gb")], why);
    let hint = "run migctl explain '3g.40gb&1g.10gb' to see which containers to restart";
    has(&refused, hint);
    let [moved] = &said["restarts"].as_array().unwrap()[..] else {
        panic!("{said:#}");
    };
    let moved = moved["container"].as_str().unwrap();
    setup.delete(moved);
    setup.make("both", "3g.40gb&1g.10gb");
    setup.make(moved, "1g.10gb");
}

#[test]
fn never_moves_container_with_several() {
    let setup = setup(2);
    setup.configure("policy.slices_per_container = 2");
    setup.make("both", "1g.10gb*2");
    let plan = without_room(&setup, "7g.80gb");
    assert_eq!(plan["verdict"], "full");
    assert_eq!(plan["restarts"], json!([]));
    setup.delete("both");
}
