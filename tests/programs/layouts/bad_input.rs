//! Files and contents that migctl refuses. It names object and remedy, and exits with 1.

use crate::layouts::ours::Ours;
use std::fs::Permissions;
use testkit::prelude::*;

/// A file with one entry.
fn one(entry: &str) -> String {
    format!("version: v1\nmig-configs:\n  one:\n  - {entry}\n")
}

const EMPTY: &str = "{devices: all, mig-enabled: true, mig-devices: {}}";

#[track_caller]
fn refuses(ours: &Ours, text: &str, words: &[&str]) {
    let file = ours.file(text);
    let line = ours.assert(&file, &[]).refused();
    for word in words.iter().chain(&["hint: "]) {
        assert!(line.contains(word), "no {word:?} in: {line}\n{text}");
    }
}

/// Failure: a configuration file has an unknown version or key, is too large or too deep, or has aliases that explode
#[test]
fn refuses_bad_files() {
    let ours = Ours::on(Machine::new("A100-80GB", 1));
    let swap = |from: &str, to: &str| one(EMPTY).replace(from, to);
    refuses(
        &ours,
        &swap("v1", "v2"),
        &["unknown version \"v2\"", "version: v1"],
    );
    refuses(
        &ours,
        &swap("devices: all", "gpus: all"),
        &["configuration one", "entry 1", "\"gpus\""],
    );
    let mut bomb = "version: v1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let before = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{before}]\n");
    }
    let line = ours.assert(&ours.file(&bomb), &[]).refused();
    has(&line, "more than 100000 values");
    let large = one(EMPTY) + &"#".repeat(10 << 20);
    let line = ours.assert(&ours.file(&large), &[]).refused();
    has(&line, "longer than 1048576 bytes");
    let piped = File::open(ours.file(&large)).unwrap();
    let mut command = ours.command(&["assert", "-f", "-"]);
    let line = going(command.stdin(Stdio::from(piped))).end().refused();
    has(&line, "longer than 1048576 bytes");
    let deep = format!("version: v1\nmig-configs: {}", "[".repeat(5000));
    let line = ours.assert(&ours.file(&deep), &[]).refused();
    begins_with(&line, "migctl: cannot read configuration file /");
}

/// Failure: users other than root can change the file, or a link to it
#[test]
fn refuses_file_writable_by_others() {
    let ours = Ours::on(Machine::new("A100-80GB", 1));
    let file = ours.file(&one(EMPTY));
    ours.assert(&file, &[]).ok();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let line = ours.assert(&file, &[]).refused();
    has(&line, "users other than root can write to it (mode 0666)");
    assert!(line.ends_with("hint: chmod go-w it"), "{line}");
    // A link that another user could turn.
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let open = ours.path("open");
    fs::create_dir(&open).unwrap();
    let link = open.join("layouts.yaml");
    symlink(&file, &link).unwrap();
    ours.assert(&link, &[]).ok();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let line = ours.assert(&link, &[]).refused();
    has(&line, "/open: users other than root can write");
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
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
    let fine = ours.file(&of("[0]", "1g.10gb: 3"));
    ours.migctl(&["apply", "-f", fine.to_str().unwrap()]).ok();
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
        of("[0]", "1g.10gb: -1") => "1g.10gb has the count -1";
        of("[0]", "1g.10gb: 0") => "every count is 0";
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
        refuses(&ours, &text, &[words]);
        let line = ours
            .migctl(&["apply", "-f", ours.file(&text).to_str().unwrap()])
            .refused();
        assert!(
            line.contains(words) && line.contains("; hint: "),
            "{words}: {line}"
        );
        assert_eq!(ours.machine.instances(), before, "{words}");
    }
}

/// Failure: a GPU does not answer during a verb of layouts
#[test]
fn lost_gpu_ends_each_verb() {
    let ours = Ours::on(Machine::new("A30", 2));
    let file = ours.file(&one(EMPTY));
    ours.machine.sim("lose", &["--gpu", "1"]);
    for verb in [
        &["export"][..],
        &["apply", "-f", file.to_str().unwrap()],
        &["assert", "-f", file.to_str().unwrap()],
    ] {
        let line = ours.migctl(verb).refused();
        has(&line, "GPU is lost (NVML 15); hint: ");
    }
}
