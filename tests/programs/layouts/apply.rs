//! `migctl apply` and `restore` against those of mig-parted. `RUNMIG_LAYOUT_SEED` begins a run again.

use crate::layouts::agrees::run;
use crate::layouts::draw;
use crate::layouts::oracle::MigParted;
use crate::layouts::ours::Ours;
use std::fs;
use testkit::Machine;
use testkit::faults::machine::install_smi;
use testkit::random::Random;

#[test]
fn ends_in_devices_of_mig_parted() {
    let Some(mut parted) = MigParted::find() else {
        return;
    };
    let (seed, cases) = run("RUNMIG_LAYOUT_APPLIES", 24);
    let (mut same, mut restored) = (0, 0);
    for case in 0..cases {
        let mut random = Random::new(seed.wrapping_add(case));
        let ours = Ours::on(draw::machine(&mut random));
        let other = draw::twin(&ours.machine);
        for machine in [&ours.machine, &other] {
            install_smi(&machine.dir());
        }
        let text = draw::target(&ours.machine, &mut random);
        let path = ours.file(&text);
        let file = path.to_str().unwrap();
        let arguments = |verb| [verb, "-f", file, "-c", "drawn"];
        let about = format!("seed {seed}, case {case}\n{text}");
        let begun = ours.path("begun");
        let begun = begun.to_str().unwrap();
        ours.migctl(&["checkpoint", "-f", begun]).ok();

        parted.plug(&other);
        let theirs = parted.call(&other, &arguments("apply"));
        let is_theirs = theirs.status == 0 && parted.call(&other, &arguments("assert")).status == 0;
        parted.plug(&ours.machine);
        let said = ours.migctl(&arguments("apply"));
        if is_theirs {
            let said = said.ok();
            assert_eq!(said.stdout, theirs.stdout, "{about}");
            let (here, there) = (draw::contents(&ours.machine), draw::contents(&other));
            assert_eq!(here, there, "{about}");
            same += 1;
        }
        // mig-parted judges what migctl made, whether its own apply got there or not.
        let judged = parted.call(&ours.machine, &arguments("assert")).status;
        let mine = ours.migctl(&arguments("assert")).status.code();
        assert_eq!(mine, Some(judged), "{about}");

        // Each tool restores the checkpoint of the other.
        let end = ours.path("end");
        let end = end.to_str().unwrap();
        ours.migctl(&["checkpoint", "-f", end]).ok();
        ours.migctl(&["restore", "-f", begun]).ok();
        let again = ours.path("again");
        ours.migctl(&["checkpoint", "-f", again.to_str().unwrap()])
            .ok();
        let (wanted, found) = (draw::places(begun), draw::places(again.to_str().unwrap()));
        assert_eq!(found, wanted, "{about}");
        let theirs = parted.call(&ours.machine, &["restore", "-f", end]);
        if theirs.status == 0 {
            parted.call(
                &ours.machine,
                &["checkpoint", "-f", again.to_str().unwrap()],
            );
            let (found, wanted) = (draw::places(again.to_str().unwrap()), draw::places(end));
            // It switches MIG on alone, and calls that a success.
            if draw::modes(&found) == draw::modes(&wanted) {
                assert_eq!(found, wanted, "{about}");
                restored += 1;
            }
        }
    }
    assert!(
        cases < 12 || same > 2 && restored > 2,
        "{same} applied, {restored} restored"
    );
}

#[test]
fn generated_configurations_apply_to_empty_machine() {
    let ours = Ours::on(Machine::with(&["--gpu", "A30", "--gpu", "H100-80GB"]));
    let file = ours.path("generated.yaml");
    let file = file.to_str().unwrap();
    ours.migctl(&["generate-config", "-f", file]).ok();
    let text = fs::read_to_string(file).unwrap();
    let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
    let mut applied = 0;
    for name in value["mig-configs"].as_mapping().unwrap().keys() {
        let name = name.as_str().unwrap();
        if name == "all-disabled" {
            continue;
        }
        let said = ours.migctl(&["apply", "-f", file, "-c", name]).ok();
        assert_eq!(said.stdout, "MIG configuration applied successfully\n");
        applied += 1;
    }
    assert!(applied > 10);
}

/// The call fails with a line that has this word and a hint.
#[track_caller]
fn refuses(ours: &Ours, call: &[&str], word: &str) {
    let line = ours.migctl(call).refused();
    let is_told = line.contains(word) && line.contains("; hint: ");
    assert!(is_told, "{word}: {line}");
}

#[test]
fn refuses_before_any_change() {
    let ours = Ours::on(Machine::new("A100-80GB", 2));
    let entry = |devices: &str, wanted: &str| {
        format!("  - {{devices: {devices}, mig-enabled: true, mig-devices: {{{wanted}}}}}\n")
    };
    let file = |entries: &[String]| {
        ours.file(&format!(
            "version: v1\nmig-configs:\n  one:\n{}",
            entries.concat()
        ))
    };
    let fine = file(&[entry("all", "1g.10gb: 3")]);
    ours.migctl(&["apply", "-f", fine.to_str().unwrap()]).ok();
    let before = ours.machine.instances();
    let eight = entry("[1]", "1g.10gb: 8");
    let cases = [
        (vec![eight.clone()], "holds 7 of 1g.10gb, not 8"),
        (vec![entry("all", "9g.90gb: 1")], "has no profile 9g.90gb"),
        (vec![entry("[5]", "1g.10gb: 1")], "devices names GPU 5"),
        (
            vec![entry("[0]", "1g.10gb: 1"), entry("all", "1g.10gb: 2")],
            "has two targets for GPU 0",
        ),
        // The first GPU could have it.
        (vec![entry("[0]", "7g.80gb: 1"), eight], "GPU 1"),
    ];
    for (entries, word) in cases {
        let file = file(&entries);
        refuses(&ours, &["apply", "-f", file.to_str().unwrap()], word);
        assert_eq!(ours.machine.instances(), before, "{word}");
    }
    let hooks = [
        "apply",
        "-f",
        fine.to_str().unwrap(),
        "-k",
        "/etc/hooks.yaml",
    ];
    let line = ours.migctl(&hooks).refused();
    assert!(
        line.contains("cannot read hooks file /etc/hooks.yaml"),
        "{line}"
    );
}

#[test]
fn refuses_bad_checkpoints() {
    let ours = Ours::on(Machine::new("A100-80GB", 1));
    let fine = ours.file("version: v1\nmig-configs:\n  one:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2}}\n");
    ours.migctl(&["apply", "-f", fine.to_str().unwrap()]).ok();
    let saved = ours.path("saved");
    ours.migctl(&["checkpoint", "-f", saved.to_str().unwrap()])
        .ok();
    let text = fs::read_to_string(&saved).unwrap();
    let before = ours.machine.instances();
    let uuid = ours.machine.gpu_uuid(0);
    let cases = [
        (text.replace(&uuid, "GPU-another"), "this machine lacks it"),
        (text.replace("\"Size\":1", "\"Size\":3"), "has no place "),
        (
            text.replace("\"Start\":5", "\"Start\":4"),
            "cannot exist together",
        ),
        (
            text.replace("\"ProfileID\":0,\"Pl", "\"ProfileID\":99,\"Pl"),
            "no profile with number 99",
        ),
        (text.replace("\"v1\"", "\"v9\""), "its version is \"v9\""),
        (text[..text.len() / 2].to_owned(), "it is no checkpoint"),
        (
            text.replace("\"MigMode\":1", "\"MigMode\":0"),
            "with MIG off",
        ),
        (String::new(), "it is no checkpoint"),
    ];
    for (bad, word) in cases {
        assert_ne!(bad, text, "{word}");
        let file = ours.file(&bad);
        refuses(&ours, &["restore", "-f", file.to_str().unwrap()], word);
        assert_eq!(ours.machine.instances(), before, "{word}");
    }
    let said = ours
        .migctl(&["restore", "-f", saved.to_str().unwrap()])
        .ok();
    assert_eq!(said.stdout, "MIG configuration restored successfully\n");
    assert_eq!(ours.machine.instances(), before);
}
