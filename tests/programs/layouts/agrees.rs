//! mig-parted as the oracle. A machine gives 13 comparisons. `RUNMIG_LAYOUT_CASES` is the number of machines, and
//! `RUNMIG_LAYOUT_SEED` begins a run again.

use crate::layouts::draw;
use crate::layouts::oracle::MigParted;
use crate::layouts::ours::Ours;
use std::fs;
use testkit::Machine;
use testkit::random::Random;

/// Files for each machine.
const FILES: usize = 8;

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect(name))
}

/// Returns the seed of a run and the number of its cases, and prints them.
pub fn run(variable: &str, default: u64) -> (u64, u64) {
    let seed = number("RUNMIG_LAYOUT_SEED");
    let seed = seed.unwrap_or_else(|| Random::new(u64::from(std::process::id())).number());
    let cases = number(variable).unwrap_or(default);
    eprintln!("RUNMIG_LAYOUT_SEED={seed} {variable}={cases}");
    (seed, cases)
}

#[test]
fn reads_agree_with_mig_parted() {
    let Some(mut parted) = MigParted::find() else {
        return;
    };
    let (seed, cases) = run("RUNMIG_LAYOUT_CASES", 16);
    let (mut met, mut refused) = (0, 0);
    for case in 0..cases {
        let mut random = Random::new(seed.wrapping_add(case));
        let ours = Ours::on(draw::machine(&mut random));
        parted.plug(&ours.machine);
        let about = format!("seed {seed}, machine {case}");
        same_export(&ours, &mut parted, "current", &about);
        let label = random.of(&[
            "no",
            "1_000",
            "a.b-c",
            "0x1F",
            "2026-11-25",
            "NULL",
            "1.5e3",
        ]);
        same_export(&ours, &mut parted, label, &about);
        same_checkpoint(&ours, &mut parted, &about);
        let contents = draw::contents(&ours.machine);
        for _ in 0..FILES {
            let drawn = draw::file(&contents, &mut random);
            let path = ours.file(&drawn.text);
            let file = path.to_str().unwrap();
            let only = random.of(&["", "", "", "-m", "-a"]);
            let arguments = ["assert", "-f", file, "-c", "drawn", only];
            let count = if only.is_empty() { 5 } else { 6 };
            let said = ours.migctl(&arguments[..count]);
            let status = said.status.code().unwrap();
            let about = format!("{about}, {only}\n{}\n{}", drawn.text, said.stderr);
            if let Some(why) = drawn.refusal.filter(|_| only != "-a") {
                assert!(status == 1 && said.stderr.contains(why), "{why}: {about}");
                refused += 1;
                continue;
            }
            let is_stricter = draw::REFUSALS.iter().any(|why| said.stderr.contains(why));
            if drawn.is_broken && status == 1 && is_stricter {
                continue;
            }
            let theirs = parted.call(&ours.machine, &arguments);
            assert_eq!(status, theirs.status, "{about}\n{}", theirs.stderr);
            if status == 0 {
                assert_eq!(said.stdout, theirs.stdout, "{about}");
                met += 1;
            }
        }
    }
    // Else the files would all be wrong.
    assert!(
        cases < 8 || met > 0 && refused > 0,
        "{met} met, {refused} refused"
    );
}

fn same_export(ours: &Ours, parted: &mut MigParted, label: &str, about: &str) {
    for format in ["yaml", "json"] {
        let arguments = ["export", "-o", format, "-l", label];
        let said = ours.migctl(&arguments).ok().stdout;
        let theirs = parted.call(&ours.machine, &arguments);
        assert_eq!(theirs.status, 0, "{about}\n{}", theirs.stderr);
        assert_eq!(said, theirs.stdout, "{about}, {label}, {format}");
    }
}

fn same_checkpoint(ours: &Ours, parted: &mut MigParted, about: &str) {
    let (here, there) = (ours.path("checkpoint"), ours.path("their-checkpoint"));
    let (here, there) = (here.to_str().unwrap(), there.to_str().unwrap());
    let said = ours.migctl(&["checkpoint", "-f", here]).ok();
    let theirs = parted.call(&ours.machine, &["checkpoint", "-f", there]);
    assert_eq!(said.stdout, theirs.stdout, "{about}");
    let read = |path| fs::read_to_string(path).unwrap();
    assert_eq!(read(here), read(there), "{about}");
}

#[test]
fn export_breaks_lines_as_mig_parted() {
    let Some(mut parted) = MigParted::find() else {
        return;
    };
    let ours = Ours::on(Machine::with(&["--gpu", "A100-80GB", "--count", "30"]));
    for gpu in ["0", "29"] {
        ours.machine
            .sim("create", &["--gpu", gpu, "--profile", "1g.10gb"]);
    }
    parted.plug(&ours.machine);
    same_export(&ours, &mut parted, "wide", "30 GPUs");
    let models = [
        "A30",
        "A100-40GB",
        "A100-80GB",
        "H100-80GB",
        "H100-NVL",
        "GH200",
        "H200",
        "T4",
        "L4",
        "A10",
    ];
    let gpus: Vec<&str> = models.iter().flat_map(|model| ["--gpu", model]).collect();
    let ours = Ours::on(Machine::with(&[&gpus[..], &["--mig", "off"]].concat()));
    ours.machine.sim("mig", &["--gpu", "1", "on"]);
    parted.plug(&ours.machine);
    same_export(&ours, &mut parted, "mixed", "10 models");
}

#[test]
fn mig_parted_reads_generated_file() {
    let Some(mut parted) = MigParted::find() else {
        return;
    };
    let ours = Ours::on(Machine::with(&[
        "--gpu",
        "A30",
        "--gpu",
        "H100-80GB",
        "--gpu",
        "T4",
        "--mig",
        "off",
    ]));
    let file = ours.path("generated.yaml");
    let file = file.to_str().unwrap();
    ours.migctl(&["generate-config", "-f", file]).ok();
    let text = fs::read_to_string(file).unwrap();
    assert_eq!(ours.migctl(&["generate-config"]).ok().stdout, text);
    let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
    let json = ours.migctl(&["generate-config", "-o", "json"]).ok().stdout;
    let json: serde_yaml_ng::Value = serde_yaml_ng::from_str(&json).unwrap();
    assert_eq!(json, value);
    let named = value["mig-configs"].as_mapping().unwrap();
    let names: Vec<&str> = named.keys().map(|name| name.as_str().unwrap()).collect();
    let expected = "all-1g.6gb all-1g.6gb.me all-1g.10gb all-1g.10gb.me all-1g.20gb all-2g.12gb \
                    all-2g.12gb.me all-2g.20gb all-3g.40gb all-4g.24gb all-4g.40gb all-7g.80gb \
                    all-disabled all-enabled";
    assert_eq!(
        names.join(" "),
        expected.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    parted.plug(&ours.machine);
    for name in names {
        let call = ["assert", "-a", "-f", file, "-c", name];
        let theirs = parted.call(&ours.machine, &call);
        assert_eq!(theirs.status, 0, "{name}\n{}", theirs.stderr);
        ours.migctl(&call).ok();
        let is_disabled = i32::from(name != "all-disabled");
        ours.migctl(&["assert", "-f", file, "-c", name])
            .exits(is_disabled);
    }
}

#[test]
fn reads_default_file_of_mig_parted() {
    let Some(parted) = MigParted::find() else {
        return;
    };
    let ours = Ours::on(Machine::new("A100-80GB", 1));
    let text = fs::read_to_string(parted.default_file()).unwrap();
    let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
    let names = value["mig-configs"].as_mapping().unwrap().keys();
    let file = ours.file(&text);
    assert!(names.len() > 20);
    for name in names {
        ours.assert(&file, &["-a", "-c", name.as_str().unwrap()])
            .ok();
    }
    ours.assert(&file, &["-c", "all-enabled"]).ok();
}
