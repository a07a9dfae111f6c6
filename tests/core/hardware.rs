//! `scripts/hardware` on simulated machines: what it records, and that it changes nothing.

use std::process::Output;
use testkit::prelude::*;

fn programs() -> &'static Path {
    let built = Path::new(env!("CARGO_BIN_EXE_runmig")).parent().unwrap();
    let record = built.join("nvml-record");
    assert!(
        record.exists(),
        "nvml-record is not built: cargo build -p nvml-sim (looked for {})",
        record.display()
    );
    built
}

fn script(name: &str, machine: &Path, arguments: &[&str]) -> Output {
    let mut script = Command::new(testkit::repository().join("scripts").join(name));
    script.arg("--from").arg(programs());
    let library = machine.join("lib/libnvidia-ml.so.1");
    if library.exists() {
        script.arg("--library").arg(library);
    }
    script.arg("--driver-root").arg(machine);
    script.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The transcript, and what the script said beside it.
#[track_caller]
fn transcript(machine: &Machine, more: &[&str]) -> (String, String) {
    let output = script("hardware", &machine.dir(), more);
    let beside = text(&output.stderr);
    assert!(output.status.success(), "{output:?}\n{beside}");
    (text(&output.stdout), beside)
}

/// None where containers cannot be made.
fn machine(arguments: &[&str]) -> Option<Machine> {
    Low::Runc.find()?;
    if !nix::unistd::geteuid().is_root() {
        testkit::skip("containers are made by root");
        return None;
    }
    let machine = Machine::with(arguments);
    machine.sim("trace", &["on"]);
    Some(machine)
}

/// The calls that change the driver, with how often each came.
fn changes(machine: &Machine) -> Vec<String> {
    let trace = machine.sim("trace", &["show"]);
    let calls = trace.lines().filter_map(|line| line.split(' ').nth(1));
    let words = ["Create", "Destroy", "Set", "Reset", "Clear", "Remove"];
    let changes = calls.filter(|call| words.iter().any(|word| call.contains(word)));
    changes.map(str::to_owned).collect()
}

#[test]
fn says_there_is_no_gpu() {
    let nothing = tempfile::TempDir::new().unwrap();
    // Files of a driver, and none that answers.
    let machine = Machine::with(&["--gpu", "H100-80GB"]);
    std::fs::remove_file(machine.dir().join("state.json")).unwrap();
    for (root, words) in testkit::rows! {
        nothing.path() => "hardware: no NVIDIA GPU on this machine: ";
        &machine.dir() => "the driver answers 9 to nvmlInit_v2";
    } {
        let output = script("hardware", root, &[]);
        assert_eq!(output.status.code(), Some(3), "{words}");
        has(&text(&output.stderr), words);
        assert_eq!(output.stdout, b"", "{words}");
    }
}

#[test]
fn looks_only_without_instances() {
    let off = ["--gpu", "H200-141GB", "--mig", "off"];
    let mixed = ["--gpu", "H100-80GB", "--gpu", "A100-80GB", "--mig", "on"];
    for (arguments, is_on) in [(&off[..], false), (&mixed[..], true)] {
        let Some(machine) = machine(arguments) else {
            return;
        };
        let shown = || machine.sim("show", &["--json"]);
        let before = shown();
        let (transcript, beside) = transcript(&machine, &[]);
        assert_eq!(shown(), before);
        assert_eq!(changes(&machine), [""; 0]);
        assert_eq!(beside.contains("MIG is on on GPU 0,1"), is_on, "{beside}");
        let makes = beside.contains("--instances makes, uses and destroys");
        assert_eq!(makes, is_on);
        for words in [
            "\n$ migctl gpus",
            "\n$ migctl gpus --output=json",
            "\n$ migctl list",
            "\n$ migctl explain 1g.",
            "\n$ migctl gc --dry-run",
            "\n$ runmig create --bundle refused refused\n  runmig: ",
            "\n  config.json is untouched\n",
        ] {
            has(&transcript, words);
        }
        assert!(transcript.ends_with("\n$ runmig run --bundle plain plain\n  exit 0\n"));
    }
}

#[test]
fn records_rows_of_nvml_record() {
    let Some(machine) = machine(&["--gpu", "H100-80GB", "--mig", "off"]) else {
        return;
    };
    let (transcript, _) = transcript(&machine, &[]);
    let mut record = Command::new(programs().join("nvml-record"));
    record.arg("--library").arg(machine.library());
    let recorded = said(record.arg("--root").arg(machine.dir())).ok().stdout;
    let rows = |text: &str| -> Vec<String> {
        let is_row = |line: &&str| !line.is_empty() && !line.starts_with(['#', '$', ' ']);
        text.lines().filter(is_row).map(str::to_owned).collect()
    };
    assert!(rows(&recorded).len() > 90);
    assert_eq!(rows(&transcript), rows(&recorded));
}

#[test]
fn names_no_machine() {
    let Some(machine) = machine(&["--gpu", "H100-80GB", "--mig", "on"]) else {
        return;
    };
    machine.sim("create", &["--gpu", "0", "--profile", "1g.10gb"]);
    let (transcript, _) = transcript(&machine, &[]);
    let state = std::fs::read_to_string(machine.dir().join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let serial = state["gpus"][0]["serial"].as_str().unwrap();
    let instance = machine.the_instance();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for secret in [&machine.gpu_uuid(0), &instance.uuid, serial] {
        let digits = secret.trim_start_matches(|c: char| !c.is_ascii_digit());
        assert!(!transcript.contains(secret) && !transcript.contains(digits));
    }
    let words: BTreeSet<&str> = transcript.split_whitespace().collect();
    assert!(!words.contains(host.trim()));
    assert!(transcript.contains("GPU-<uuid>"));
}

#[test]
fn gives_each_profile_a_slice() {
    let Some(machine) = machine(&["--gpu", "H100-80GB", "--mig", "on"]) else {
        return;
    };
    let (transcript, _) = transcript(&machine, &["--instances"]);
    machine.is_empty();
    let done = "\n# 7 of 7 profiles had their slice, and released it\n";
    has(&transcript, done);
    for call in ["nvmlDeviceCreateGpuInstance", "nvmlGpuInstanceDestroy"] {
        let calls = changes(&machine);
        let count = calls.iter().filter(|made| made.starts_with(call)).count();
        assert_eq!(count, 7, "{call}");
    }
}

fn guarantees(machine: &Machine) -> (Output, Vec<String>) {
    let output = script("hardware-mig", &machine.dir(), &[]);
    let transcript = text(&output.stdout);
    let outcomes = transcript.split("\n# guarantees").skip(1);
    let lines = outcomes.flat_map(str::lines);
    let lines = lines.filter(|line| line.starts_with("  "));
    let lines = lines.map(str::to_owned).collect();
    (output, lines)
}

#[test]
fn keeps_each_guarantee_on_mig() {
    for gpu in ["A100-80GB", "A30-24GB"] {
        let Some(machine) = machine(&["--gpu", gpu, "--mig", "on"]) else {
            return;
        };
        let (output, lines) = guarantees(&machine);
        assert!(output.status.success(), "{gpu}: {output:?}");
        let are_kept = lines.iter().all(|line| line.ends_with(": yes"));
        assert!(lines.len() >= 8 && are_kept, "{gpu}: {lines:#?}");
        machine.is_empty();
    }
}

#[test]
fn shows_broken_guarantee() {
    let Some(machine) = machine(&["--gpu", "A100-80GB", "--mig", "on"]) else {
        return;
    };
    // Past the seven profiles, while seven containers start at once.
    let call = "nvmlGpuInstanceCreateComputeInstance";
    let fault = ["--call", call, "--from", "12", "--returns", "IN_USE"];
    machine.sim("fault", &fault);
    let (output, lines) = guarantees(&machine);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let is_broken = lines.iter().any(|line| line.ends_with(": no"));
    assert!(is_broken, "{lines:#?}");
}

#[test]
fn guarantees_want_empty_gpus_in_mig_mode() {
    let Some(off) = machine(&["--gpu", "A100-80GB", "--mig", "off"]) else {
        return;
    };
    let used = machine(&["--gpu", "A100-80GB", "--mig", "on"]).unwrap();
    used.sim("create", &["--gpu", "0", "--profile", "1g.10gb"]);
    for (machine, words) in [
        (&off, "no GPU is in MIG mode: nvidia-smi"),
        (&used, "there are MIG instances on a GPU"),
    ] {
        let before = machine.sim("show", &["--json"]);
        let (output, lines) = guarantees(machine);
        assert_eq!(output.status.code(), Some(1));
        has(&text(&output.stderr), words);
        assert_eq!((lines.len(), machine.sim("show", &["--json"])), (0, before));
    }
}

#[test]
fn refuses_unknown_arguments() {
    for arguments in [&["--nonsense"][..], &["--output"]] {
        let output = script("hardware", Path::new("/nowhere"), arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.starts_with(b"hardware: "), "{output:?}");
    }
}
