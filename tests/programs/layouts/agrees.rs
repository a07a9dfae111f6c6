//! mig-parted as the oracle: both tools lead a machine to the same instances, and it reads what `migctl export` prints.
//! `RUNMIG_LAYOUT_SEED` begins a run again, `RUNMIG_LAYOUT_CASES` is its number of machines.

use crate::layouts::draw;
use crate::layouts::oracle::MigParted;
use crate::layouts::ours::Ours;
use testkit::faults::machine::install;
use testkit::prelude::*;

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect(name))
}

/// Returns the seed of a run and the number of its cases, and prints them.
pub fn run(default: u64) -> (u64, u64) {
    let seed = number("RUNMIG_LAYOUT_SEED");
    let seed = seed.unwrap_or_else(|| Random::new(u64::from(std::process::id())).number());
    let cases = number("RUNMIG_LAYOUT_CASES").unwrap_or(default);
    eprintln!("RUNMIG_LAYOUT_SEED={seed} RUNMIG_LAYOUT_CASES={cases}");
    (seed, cases)
}

#[test]
fn ends_in_instances_of_mig_parted() {
    let Some(mut parted) = MigParted::find() else {
        return;
    };
    let (seed, cases) = run(24);
    let mut same = 0;
    for case in 0..cases {
        let mut random = Random::new(seed.wrapping_add(case));
        let ours = Ours::on(draw::machine(&mut random));
        let other = draw::twin(&ours.machine);
        for machine in [&ours.machine, &other] {
            install(&machine.dir(), "nvidia-smi");
        }
        let text = draw::target(&ours.machine, &mut random);
        let path = ours.file(&text);
        let file = path.to_str().unwrap();
        let arguments = |verb| [verb, "-f", file, "-c", "drawn"];
        let about = format!("seed {seed}, case {case}\n{text}");

        parted.plug(&other);
        let theirs = parted.call(&other, &arguments("apply"));
        let is_theirs = theirs.status == 0 && parted.call(&other, &arguments("assert")).status == 0;
        parted.plug(&ours.machine);
        let said = ours.migctl(&arguments("apply"));
        if is_theirs {
            said.ok();
            let (here, there) = (draw::contents(&ours.machine), draw::contents(&other));
            assert_eq!(here, there, "{about}");
            same += 1;
        }
        // mig-parted judges what migctl made, whether its own apply got there or not.
        let judged = parted.call(&ours.machine, &arguments("assert")).status;
        let mine = ours.migctl(&arguments("assert")).status.code();
        assert_eq!(mine, Some(judged), "{about}");
        for format in ["table", "json"] {
            let exported = ours.migctl(&["export", "-o", format]).ok().stdout;
            let file = ours.file(&exported);
            let arguments = ["assert", "-f", file.to_str().unwrap(), "-c", "current"];
            let judged = parted.call(&ours.machine, &arguments);
            assert_eq!(judged.status, 0, "{about}\n{exported}\n{}", judged.stderr);
            ours.migctl(&arguments).ok();
        }
    }
    assert!(cases < 12 || same > 2, "{same} applied");
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
        // Those of other models name no GPU of this machine, or profiles that it lacks.
        let said = ours.assert(&file, &["-c", name.as_str().unwrap()]);
        assert!(!said.stderr.contains("cannot read"), "{said:?}");
    }
    ours.assert(&file, &["-c", "all-enabled"]).ok();
}
