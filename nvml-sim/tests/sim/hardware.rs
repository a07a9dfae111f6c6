//! Asks the simulated driver again for the answers of real GPUs.
//!
//! `tests/hardware/*.txt` are transcripts of `nvml-record`, alone or within those of
//! `scripts/hardware`. Every row of a transcript has to be the simulation's answer too; rows that a
//! transcript does not have are not asked. To add a GPU, put its transcript there.

use crate::common::Sim;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

type Rows = BTreeMap<String, String>;

/// The rows, `QUESTION = ANSWER`, below comments, empty lines, and commands (`$ …`) with what they
/// printed, which is indented.
fn rows(text: &str) -> Rows {
    let is_row = |line: &&str| !line.is_empty() && !line.starts_with(['#', '$', ' ']);
    text.lines()
        .filter(is_row)
        .map(|line| {
            let row = line.rsplit_once(" = ");
            let (question, answer) = row.unwrap_or_else(|| panic!("no row: {line}"));
            (question.to_owned(), answer.to_owned())
        })
        .collect()
}

/// A machine with the GPUs of a transcript, as `nvml-sim new` makes it.
fn machine(rows: &Rows) -> Sim {
    let of = |gpu: usize, question: &str| rows.get(&format!("gpu {gpu} {question}"));
    let names: Vec<&str> = (0..)
        .map_while(|gpu| of(gpu, "nvmlDeviceGetName()"))
        .map(|answer| answer.strip_prefix("0 ").expect("a name"))
        .collect();
    assert!(!names.is_empty(), "a transcript names its GPUs");
    let mut arguments = "--mig off".to_owned();
    for name in &names {
        arguments += &format!(" --gpu {}", name.replace(' ', "_"));
    }
    let modeset = rows.get("/dev/nvidia-modeset");
    if modeset.is_some_and(|answer| answer != "absent") {
        arguments += " --modeset";
    }
    let sim = Sim::new(&arguments);
    for gpu in 0..names.len() {
        let mode = of(gpu, "nvmlDeviceGetMigMode()").expect("a MIG mode");
        if mode.starts_with("0 current 1") {
            sim.run("mig", &format!("--gpu {gpu} on"));
        }
    }
    sim
}

fn record(library: &Path, root: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvml-record"));
    command.arg("--library").arg(library);
    command.arg("--root").arg(root).output().unwrap()
}

fn simulated(sim: &Sim) -> Rows {
    let output = record(&sim.dir().join("lib/libnvidia-ml.so.1"), sim.dir());
    assert!(output.status.success(), "{output:?}");
    rows(&String::from_utf8(output.stdout).unwrap())
}

/// A line for each row that is another one in the simulation.
fn differences(hardware: &Rows, simulated: &Rows) -> Vec<String> {
    let other = |(question, answer): (&String, &String)| {
        let other = simulated.get(question).map_or("not asked", String::as_str);
        let line = || format!("{question}: hardware {answer}, simulation {other}");
        (other != answer).then(line)
    };
    hardware.iter().filter_map(other).collect()
}

fn transcripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hardware");
    let entries = fs::read_dir(dir).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn simulation_answers_as_hardware_did() {
    let transcripts = transcripts();
    assert!(transcripts.len() >= 2);
    for path in transcripts {
        let hardware = rows(&fs::read_to_string(&path).unwrap());
        assert!(hardware.len() > 50, "{}", path.display());
        let found = differences(&hardware, &simulated(&machine(&hardware)));
        let found: String = found.iter().map(|line| format!("\n{line}")).collect();
        assert!(found.is_empty(), "{}:{found}", path.display());
    }
}

#[test]
fn transcripts_name_no_machine() {
    for path in transcripts() {
        let text = fs::read_to_string(&path).unwrap();
        let is_uuid = |word: &str| {
            let lengths: Vec<usize> = word.split('-').map(str::len).collect();
            lengths.ends_with(&[8, 4, 4, 4, 12])
        };
        let words = text.split(|c: char| !(c.is_ascii_hexdigit() || c == '-'));
        let found: Vec<&str> = words.filter(|word| is_uuid(word)).collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

#[test]
fn records_mig_on_and_busy_gpus() {
    let sim = Sim::new("--gpu A100-80GB --gpu H100-80GB --mig on");
    sim.run("create", "--gpu 1 --profile 3g.40gb");
    let before = sim.show();
    let rows = simulated(&sim);
    assert_eq!(rows["gpu 0 nvmlDeviceGetMaxMigDeviceCount()"], "0 7");
    let capacity = "nvmlDeviceGetGpuInstanceRemainingCapacity(19)";
    assert_eq!(rows[&format!("gpu 0 {capacity}")], "0 7");
    assert!(!rows.contains_key(&format!("gpu 1 {capacity}")));
    assert_eq!(sim.show(), before);
}

#[test]
fn exits_3_without_gpu() {
    let sim = Sim::new("--gpu A30");
    let library = sim.dir().join("lib/libnvidia-ml.so.1");
    fs::remove_file(sim.dir().join("state.json")).unwrap();
    let nowhere = Path::new("/nowhere/libnvidia-ml.so.1");
    for (library, why) in [
        (library.as_path(), "the driver answers 9 to nvmlInit_v2"),
        (nowhere, "cannot open /nowhere/"),
    ] {
        let output = record(library, sim.dir());
        assert_eq!(output.status.code(), Some(3));
        let said = String::from_utf8(output.stderr).unwrap();
        let has_both = said.contains("no NVIDIA GPU: ") && said.contains(why);
        assert!(has_both, "{said}");
        assert_eq!(output.stdout, b"");
    }
}
