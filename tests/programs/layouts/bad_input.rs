//! Files and contents that migctl refuses. It names object and remedy, and exits with 1.

use crate::layouts::ours::Ours;
use testkit::prelude::*;

/// A file with one entry.
fn one(entry: &str) -> String {
    format!("version: v1\nmig-configs:\n  one:\n  - {entry}\n")
}

const EMPTY: &str = "{devices: all, mig-enabled: true, mig-devices: {}}";

#[track_caller]
fn refuses(ours: &Ours, file: &Path, words: &[&str]) {
    let line = ours.assert(file, &[]).refused();
    begins_with(&line, "migctl: ");
    words.iter().for_each(|word| has(&line, word));
}

/// Failure: a configuration file has an unknown version or key, is too large or too deep, or has aliases that explode
#[test]
fn refuses_bad_files() {
    let ours = Ours::on(Machine::new("A100-80GB", 1));
    let mut bomb = "version: v1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let before = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{before}]\n");
    }
    let large = one(EMPTY) + &"#".repeat(10 << 20);
    let deep = format!("version: v1\nmig-configs: {}", "[".repeat(5000));
    for (text, words) in testkit::rows! {
        &one(EMPTY).replace("devices: all", "gpus: all") => &["configuration one", "entry 1", "\"gpus\"", "hint: "][..];
        &bomb => &["more than 100000 values"];
        &large => &["longer than 1048576 bytes"];
        &deep => &["migctl: cannot read configuration file /"];
    } {
        refuses(&ours, &ours.file(text), words);
    }
    let piped = File::open(ours.file(&large)).unwrap();
    let mut command = ours.command(&["assert", "-f", "-"]);
    let said = going(command.stdin(Stdio::from(piped))).end();
    said.refused_for("longer than 1048576 bytes");
}

/// Failure: users other than root can change the file, or a link to it
#[test]
fn refuses_file_writable_by_others() {
    let ours = Ours::on(Machine::new("A100-80GB", 1));
    let file = ours.file(&one(EMPTY));
    ours.assert(&file, &[]).ok();
    chmod(&file, 0o666);
    let line = ours.assert(&file, &[]).refused();
    has(&line, "users other than root can write to it (mode 0666)");
    ends_with(&line, "hint: chmod go-w it");
    // A link that another user could turn.
    chmod(&file, 0o644);
    let open = ours.path("open");
    fs::create_dir(&open).unwrap();
    let link = open.join("layouts.yaml");
    symlink(&file, &link).unwrap();
    ours.assert(&link, &[]).ok();
    chmod(&open, 0o777);
    let why = "/open: users other than root can write";
    ours.assert(&link, &[]).refused_for(why);
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    chmod(&open, 0o755);
    ours.assert(&link, &[]).refused_for("belongs to user 65534");
}

/// Neither a look nor an apply changes anything then.
/// Failure: a layout has a profile, a count or a device that the machine lacks, or two targets for a GPU
#[test]
fn refuses_content_that_gpus_lack() {
    let gpus = ["--gpu", "A100-80GB", "--gpu", "A30", "--gpu", "T4"];
    let ours = Ours::on(Machine::with(&gpus));
    let entry = |devices: &str, instances: &str| {
        format!("{{devices: {devices}, mig-enabled: true, mig-devices: {{{instances}}}}}")
    };
    let of = |devices: &str, instances: &str| one(&entry(devices, instances));
    ours.apply(&ours.file(&of("[0]", "1g.10gb: 3")), &[]).ok();
    let before = ours.machine.instances();
    for (text, words) in testkit::rows! {
        of("[0]", "9g.90gb: 1") => "has no profile 9g.90gb; hint: use 1g.10gb, ";
        of("[1]", "1g.10gb: 1") => "GPU 1: NVIDIA A30 has no profile 1g.10gb";
        of("[0]", "5c.4g.40gb: 1") => "has no profile 5c.4g.40gb";
        of("[0]", "2c.2g.20gb: 1") => "has no profile 2c.2g.20gb";
        of("[2]", "") => "GPU 2: Tesla T4 has no MIG";
        of("[0]", "1g.10gb: 8") => "holds 7 of 1g.10gb, not 8; hint: write 7 or less";
        of("[0]", "1c.3g.40gb: 7") => "holds 6 of 1c.3g.40gb, not 7";
        of("[0]", "4g.40gb: 1, 3g.40gb: 1, 1g.10gb: 1") =>
            "cannot hold 1 × 1g.10gb, 1 × 3g.40gb, 1 × 4g.40gb; hint: want fewer";
        of("[0]", "1g.10gb: 1099511627776") => "not 1099511627776";
        of("[0]", "1g.10gb: 1, 2g.20gb: 0") => "2g.20gb has the count 0; hint: remove 2g.20gb";
        of("[3]", "") => "devices names GPU 3, and the machine has 3; hint: use 0 to 2";
        of("[-1]", "") => "devices names GPU -1";
        one("{devices: all, device-filter: A100, mig-enabled: false}") => "device-filter \"A100\" is not the number";
        one(&format!("{{devices: all, mig-enabled: false}}\n  - {}", entry("[1]", ""))) =>
            "configuration one has two targets for GPU 1, in the entries 1 and 2; hint: leave";
        of("[]", "") => "configuration one names no GPU of this machine; hint: see the models";
        one("{devices: all, device-filter: \"0x233010DE\", mig-enabled: false}") => "names no GPU of this machine";
        // The first GPU could have it.
        one(&format!("{}\n  - {}", entry("[0]", "7g.80gb: 1"), entry("[1]", "1g.6gb: 5"))) => "GPU 1";
    } {
        let file = ours.file(&text);
        refuses(&ours, &file, &[words, "hint: "]);
        let line = ours.apply(&file, &[]).refused();
        has(&line, words);
        has(&line, "; hint: ");
        assert_eq!(ours.machine.instances(), before, "{words}");
    }
}

/// Failure: a GPU does not answer during a verb of layouts
#[test]
fn lost_gpu_ends_each_verb() {
    let ours = Ours::on(Machine::new("A30", 2));
    let file = ours.file(&one(EMPTY));
    ours.machine.sim("lose", &["--gpu", "1"]);
    for said in [
        ours.migctl(&["export"]),
        ours.apply(&file, &[]),
        ours.assert(&file, &[]),
    ] {
        said.refused_for("GPU is lost (NVML 15); hint: ");
    }
}
