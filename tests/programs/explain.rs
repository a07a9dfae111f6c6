//! migctl explain and gpus, on real containers: what they say is what then happens.

use testkit::prelude::*;

fn setup(gpus: u32) -> Setup {
    Setup::on(Low::Runc, Machine::new("A100-80GB", gpus))
}

fn create(setup: &Setup, id: &str, slice: &str) {
    let bundle = setup.asking(slice, "true");
    setup.create(&bundle, id);
}

fn place(setup: &Setup, id: &str) -> (Value, Value) {
    let leases = setup.leases();
    let lease = leases.iter().find(|l| l["container"] == id);
    let lease = lease.unwrap_or_else(|| panic!("no lease of {id}"));
    (lease["gpuIndex"].clone(), lease["migPlacement"].clone())
}

/// Creates the smallest slices everywhere and releases every second one. Returns the other containers.
fn scatter(setup: &Setup, gpus: usize) -> Vec<String> {
    let ids: Vec<String> = (0..7 * gpus).map(|n| format!("c{n}")).collect();
    ids.iter().for_each(|id| create(setup, id, "1g.10gb"));
    let (stay, go): (Vec<String>, Vec<String>) = ids.into_iter().partition(|id| {
        let start = place(setup, id).1["start"].as_u64().unwrap();
        start % 4 == 1
    });
    go.iter().for_each(|id| setup.delete(id));
    stay
}

/// A program would take half an answer for a whole one; and what cannot be told is no crash.
#[test]
fn fails_when_output_is_closed() {
    let setup = setup(1);
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut gpus = setup.plain(&setup.program("migctl"));
    let ended = gpus.args(["gpus", "-o", "json"]).stdout(full()).output();
    let ended = ended.unwrap();
    let line = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{line}");
    has(&line, "write to standard output: No space");
    let mut mute = setup.plain(&setup.program("migctl"));
    let status = mute.args(["release", "nobody"]).stderr(full()).status();
    assert_eq!(status.unwrap().code(), Some(1));
}

#[test]
fn create_follows_the_answer() {
    let setup = setup(2);
    for (n, slice) in ["1g.10gb", "3g.40gb", "20Gi", "2g.20gb"].iter().enumerate() {
        let said = setup.json(&["explain", slice, "--json"]);
        assert_eq!(said["apiVersion"], "runmig.dev/v1");
        assert_eq!(said["kind"], "Explanation");
        assert_eq!(said["fits"], true);
        let first = &said["alternatives"][0]["gpus"][0];
        assert_eq!(first["state"], "fits");
        let best = first["places"][0]["migPlacement"].clone();
        let id = format!("c{n}");
        create(&setup, &id, slice);
        assert_eq!(
            place(&setup, &id),
            (first["index"].clone(), best),
            "{slice}"
        );
    }
    let table = setup.tells(&["explain", "7g.80gb,1g.10gb"]);
    assert!(
        table.starts_with("full: cannot allocate 7g.80gb: ") || table.starts_with("fragmented: "),
        "{table}"
    );
    has(&table, "\nfits: 1g.10gb at ");
    for n in 0..4 {
        setup.delete(&format!("c{n}"));
    }
    setup.nothing_is_left();
}

#[test]
fn followed_plan_makes_room() {
    let setup = setup(2);
    let stay = scatter(&setup, 2);
    assert_eq!(stay.len(), 4);
    let plan = ["explain", "4g.40gb", "-o", "json"];
    let said = setup.migctl(&plan).exits(1).json()["alternatives"][0].clone();
    assert_eq!(said["verdict"], "fragmented");
    let restarts = said["restarts"].as_array().unwrap();
    assert_eq!(restarts.len(), 1, "{said:#}");
    // The same in the error of a create, and in explain.
    let bundle = setup.asking("4g.40gb", "true");
    let refused = setup.try_create(&bundle, "large").refused();
    let words = "the free memory is fragmented, and a move of 1g.10gb at ";
    has(&refused, words);
    has(
        &refused,
        "hint: run migctl explain 4g.40gb to see which containers to restart",
    );
    let explained = setup.migctl(&["explain", "4g.40gb"]).exits(1).stdout;
    begins_with(&explained, "fragmented: cannot allocate 4g.40gb: ");
    has(&explained, words);
    has(&explained, "but no slot of 4g.40gb is");
    let moved = restarts[0]["container"].as_str().unwrap();
    assert!(stay.iter().any(|id| id == moved));
    has(&explained, moved);
    has(&explained, "\nfits then: 4g.40gb at ");

    // As it says: stop, start the new one, start again.
    setup.delete(moved);
    create(&setup, "large", "4g.40gb");
    create(&setup, moved, "1g.10gb");
    assert_eq!(
        place(&setup, "large"),
        (
            said["slices"][0]["gpuIndex"].clone(),
            said["slices"][0]["migPlacement"].clone()
        )
    );
    let to = (
        restarts[0]["toGPUIndex"].clone(),
        restarts[0]["toPlacement"].clone(),
    );
    assert_eq!(place(&setup, moved), to);

    let plan = setup.migctl(&["explain", "7g.80gb", "--json"]);
    let plan = plan.exits(1).json()["alternatives"][0].clone();
    assert_eq!(plan["verdict"], "full");
    assert_eq!(plan["restarts"], Value::Array(Vec::new()));
    setup.delete("large");
    stay.iter().for_each(|id| setup.delete(id));
    setup.nothing_is_left();
}

#[test]
fn never_moves_foreign_instances() {
    let setup = setup(1);
    for start in ["1", "5"] {
        setup.sim(
            "create",
            &["--gpu", "0", "--profile", "1g.10gb", "--start", start],
        );
    }
    let said = setup
        .migctl(&["explain", "3g.40gb", "-o", "json"])
        .exits(1)
        .json();
    let one = &said["alternatives"][0];
    assert_eq!(one["verdict"], "full");
    let why = one["why"].as_str().unwrap();
    has(why, "the slices in the way cannot be moved");
    assert_eq!(one["restarts"], Value::Array(Vec::new()));
    let gpus = setup.json(&["gpus", "-o", "json"]);
    let gpu = &gpus["items"][0];
    assert_eq!(gpu["freeSlices"], 6);
    // 2g.20gb fits, and 4g.40gb would, did they lie together.
    assert_eq!(gpu["fragmentationPercent"], 50);
    let states: Vec<&str> = gpu["slices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        [
            "free", "foreign", "free", "free", "free", "foreign", "free", "free"
        ]
    );
}

#[test]
fn draws_each_gpu_as_bar() {
    let setup = setup(1);
    create(&setup, "web", "3g.40gb");
    create(&setup, "job", "1g.10gb");
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
    let json = setup.json(&["gpus", "-o", "json"]);
    let slice = &json["items"][0]["slices"][4];
    assert_eq!(slice["state"], "leased");
    assert_eq!(slice["profile"], "3g.40gb");
    let leases = setup.leases();
    let web = leases.iter().find(|l| l["container"] == "web").unwrap();
    assert_eq!(slice["leases"][0], web["id"]);
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
    has(
        off,
        "MIG disabled, free\nwith MIG on (nvidia-smi -i 0 -mig 1) it would offer:\nNAME",
    );
    assert_eq!(off.matches("MIG 7g.141gb").count(), 1, "{table}");
    assert!(
        off.contains(" 0/7 ") && !off.contains("fragmented"),
        "{table}"
    );
    assert!(
        on.contains("MIG enabled\n") && !on.contains("would"),
        "{table}"
    );

    let said = setup.json(&["gpus", "-o", "json"]);
    let (off, on) = (&said["items"][0], &said["items"][1]);
    assert_eq!(off["profiles"], Value::Array(Vec::new()));
    let offered = off["profilesWithMIGOn"].as_array().unwrap();
    assert_eq!(offered.len(), 7);
    assert_eq!(offered[0]["name"], "1g.18gb");
    assert_eq!(offered[0]["instancesFree"], 0);
    assert_eq!(offered[0]["instancesTotal"], 7);
    assert_eq!(on["profiles"].as_array().unwrap().len(), 7);
    assert_eq!(on["profilesWithMIGOn"], Value::Array(Vec::new()));
}

#[test]
fn gpus_without_mig_say_so() {
    let setup = Setup::on(Low::Runc, Machine::with(&["--gpu", "L40S", "--gpu", "T4"]));
    let table = setup.tells(&["gpus"]);
    has(&table, "NVIDIA L40S (GPU-");
    assert_eq!(
        table.matches(", MIG unsupported, free\n").count(),
        2,
        "{table}"
    );
    let refusal = "cannot allocate 1g.10gb: no GPU supports MIG (the driver lists 2 GPUs)";
    let said = setup.migctl(&["explain", "1g.10gb"]).exits(1).stdout;
    has(&said, refusal);
    assert_eq!(
        said.matches("the GPU does not support MIG").count(),
        2,
        "{said}"
    );

    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let line = setup.try_create(&bundle, "c").refused();
    let hint = "hint: use an A30, A100, H100 or a later data-centre GPU\n";
    assert_eq!(line, format!("runmig: {refusal}; {hint}").trim_end());
    assert_eq!(bundle.bytes(), before);
    setup.nothing_is_left();
}

#[test]
fn explain_foresees_mig_switched_on() {
    let mixed = Machine::with(&["--gpu", "A100-80GB", "--count", "2", "--mig", "on"]);
    mixed.sim("mig", &["--gpu", "1", "off"]);
    let setup = Setup::on(Low::Runc, mixed);
    // It fits now, without any switch.
    let said = setup.json(&["explain", "7g.80gb", "--json"]);
    assert_eq!(said["alternatives"][0]["withMIGOn"], Value::Null);
    create(&setup, "web", "7g.80gb");
    let said = setup.migctl(&["explain", "3g.40gb", "--json"]);
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
    create(&setup, "job", "3g.40gb");
    assert_eq!(
        place(&setup, "job"),
        (1.into(), with["slices"][0]["migPlacement"].clone())
    );
    setup.delete("job");
    setup.delete("web");

    setup.sim("mig", &["--gpu", "all", "off"]);
    let said = setup.migctl(&["explain", "9g.99gb", "--json"]);
    let with = said.exits(1).json()["alternatives"][0]["withMIGOn"].clone();
    assert_eq!(with["fits"], false);
    assert_eq!(with["command"], Value::Null);
    assert!(with["why"].as_str().unwrap().contains("9g.99gb"), "{with}");
    setup.nothing_is_left();
}

/// Started again, a container with several slices would have them all made anew, on GPUs of their own.
#[test]
fn plans_for_different_slices() {
    let setup = setup(1);
    setup.configure("policy.slices_per_container = 2");
    scatter(&setup, 1);
    let plan = ["explain", "1g.10gb&3g.40gb", "-o", "json"];
    let said = setup.migctl(&plan).exits(1).json()["alternatives"][0].clone();
    assert_eq!(said["verdict"], "fragmented", "{said:#}");
    let profiles = [&said["slices"][0]["profile"], &said["slices"][1]["profile"]];
    assert_eq!(profiles, ["3g.40gb", "1g.10gb"], "{said:#}");
    let bundle = setup.asking("1g.10gb&3g.40gb", "true");
    let refused = setup.refused(&bundle);
    has(
        &refused,
        "cannot allocate 3g.40gb&1g.10gb: none for 3g.40gb: ",
    );
    let hint = "run migctl explain '3g.40gb&1g.10gb' to see which containers to restart";
    has(&refused, hint);
    let [moved] = &said["restarts"].as_array().unwrap()[..] else {
        panic!("{said:#}");
    };
    let moved = moved["container"].as_str().unwrap();
    setup.delete(moved);
    create(&setup, "both", "3g.40gb&1g.10gb");
    create(&setup, moved, "1g.10gb");
}

#[test]
fn never_moves_container_with_several() {
    let setup = setup(2);
    setup.configure("policy.slices_per_container = 2");
    create(&setup, "both", "1g.10gb*2");
    let plan = setup.migctl(&["explain", "7g.80gb", "--json"]);
    let plan = plan.exits(1).json()["alternatives"][0].clone();
    assert_eq!(plan["verdict"], "full");
    assert_eq!(plan["restarts"], Value::Array(Vec::new()));
    setup.delete("both");
}
