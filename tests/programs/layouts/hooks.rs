//! `migctl apply -k` and `migctl restore -k`: the commands of mig-parted's hooks file.

use crate::layouts::ours::Ours;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testkit::Machine;
use testkit::process::said;

const LAYOUT: &str = "version: v1\nmig-configs:\n  one:\n  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 1}}\n  \
                      both:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 1}}\n";

/// Two GPUs that need no reset, the second with MIG off.
fn machine() -> Ours {
    let machine = Machine::with(&["--gpu", "H100-80GB", "--gpu", "H100-80GB"]);
    machine.sim("mig", &["--gpu", "1", "off"]);
    Ours::on(machine)
}

/// Each hook notes its moment; `fails` is the one that then fails.
fn file(ours: &Ours, fails: &str) -> PathBuf {
    let moments = [
        "apply-start",
        "pre-apply-mode",
        "pre-apply-config",
        "apply-exit",
    ];
    let hook = |moment: &&str| {
        let status = u8::from(*moment == fails);
        format!(
            "  {moment}:\n  - command: /bin/sh\n    workdir: {}\n    envs: {{MOMENT: {moment}}}\n    args: [-c, 'echo \
             $MOMENT; echo $MOMENT >>noted; env >environment; exit {status}']\n",
            ours.path("").display()
        )
    };
    let hooks: String = moments.iter().map(hook).collect();
    ours.file(&format!("version: v1\nhooks:\n{hooks}"))
}

/// The moments that were noted since the last look.
fn noted(ours: &Ours) -> Vec<String> {
    let path = ours.path("noted");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn hooks_run_before_their_changes() {
    let ours = machine();
    let layout = ours.file(LAYOUT);
    let hooks = file(&ours, "");
    let apply = |name: &str, more: &[&str]| {
        let (layout, hooks) = (layout.to_str().unwrap(), hooks.to_str().unwrap());
        let call = ["apply", "-f", layout, "-c", name, "-k", hooks];
        let mut command = ours.command(&[&call, more].concat());
        said(command.env("FOREIGN", "x"))
    };
    apply("both", &["--dry-run"]).ok();
    assert_eq!(noted(&ours), [""; 0]);
    apply("one", &[]).ok();
    assert_eq!(
        noted(&ours),
        ["apply-start", "pre-apply-config", "apply-exit"]
    );
    let out = apply("both", &["-o", "json"]).ok();
    assert_eq!(
        noted(&ours),
        [
            "apply-start",
            "pre-apply-mode",
            "pre-apply-config",
            "apply-exit"
        ]
    );
    // Their output does not mix with migctl's.
    assert_eq!(out.json()["applied"], true);
    assert!(out.stderr.contains("pre-apply-mode\n"), "{out:?}");
    apply("both", &[]).ok();
    assert_eq!(noted(&ours), ["apply-start", "apply-exit"]);

    let environment = fs::read_to_string(ours.path("environment")).unwrap();
    let names = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = environment.lines().map(names).collect();
    // The shell's own.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()));
    names.sort();
    let expected = [
        "MIG_PARTED_CONFIG_FILE",
        "MIG_PARTED_HOOKS_FILE",
        "MIG_PARTED_MODE_CHANGE_ONLY",
        "MIG_PARTED_SELECTED_CONFIG",
        "MIG_PARTED_SKIP_RESET",
        "MOMENT",
    ];
    assert_eq!(names, expected);
}

#[test]
fn restore_runs_hooks_too() {
    let ours = machine();
    let saved = ours.path("saved");
    let restore = |fails: &str| {
        let mut command = ours.command(&["restore", "-f", saved.to_str().unwrap()]);
        said(command.arg("-k").arg(file(&ours, fails)))
    };
    ours.machine
        .sim("create", &["--gpu", "0", "--profile", "1g.10gb"]);
    let checkpoint = ["checkpoint", "-f", saved.to_str().unwrap()];
    ours.migctl(&checkpoint).ok();
    restore("").ok();
    assert_eq!(noted(&ours), ["apply-start", "apply-exit"]);
    let environment = fs::read_to_string(ours.path("environment")).unwrap();
    let named = format!("MIG_PARTED_CHECKPOINT_FILE={}\n", saved.display());
    assert!(environment.contains(&named), "{environment}");

    ours.machine.sim("mig", &["--gpu", "1", "on"]);
    let failed = restore("pre-apply-mode").exits(1);
    let words = "run hook pre-apply-mode: run /bin/sh: it ended with exit status: 1";
    assert!(failed.stderr.contains(words), "{failed:?}");
    let ran = ["apply-start", "pre-apply-mode", "apply-exit"];
    assert_eq!(noted(&ours), ran);
    restore("").ok();
    assert_eq!(noted(&ours), ran);
}

#[test]
fn failed_hook_ends_apply() {
    let ours = machine();
    let layout = ours.file(LAYOUT);
    for (fails, ran) in [
        ("apply-start", &["apply-start", "apply-exit"][..]),
        (
            "pre-apply-config",
            &["apply-start", "pre-apply-config", "apply-exit"],
        ),
    ] {
        let mut command = ours.command(&["apply", "-f", layout.to_str().unwrap(), "-c", "one"]);
        let failed = said(command.arg("-k").arg(file(&ours, fails))).exits(1);
        let words = format!("run hook {fails}: run /bin/sh: it ended with exit status: 1");
        assert!(failed.stderr.contains(&words), "{failed:?}");
        assert_eq!(noted(&ours), ran);
        ours.assert(&layout, &["-c", "one"]).exits(1);
    }
}

#[test]
fn refuses_hooks_that_others_can_change() {
    let ours = machine();
    let layout = ours.file(LAYOUT);
    let program = ours.path("program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    let hooks = |program: &Path| {
        let command = program.display();
        ours.file(&format!(
            "version: v1\nhooks:\n  apply-start:\n  - command: {command}\n"
        ))
    };
    let refused = |file: &Path, words: &str| {
        let mut command = ours.command(&["apply", "-f", layout.to_str().unwrap(), "-c", "one"]);
        let line = said(command.arg("-k").arg(file)).refused();
        assert!(line.contains(words), "{words}: {line}");
        ours.assert(&layout, &["-c", "one"]).exits(1);
    };
    fs::set_permissions(&program, Permissions::from_mode(0o777)).unwrap();
    refused(&hooks(&program), "others than root can write to it");
    refused(&hooks(&ours.path("missing")), "use hook apply-start of ");
    let open = hooks(Path::new("/bin/true"));
    fs::set_permissions(&open, Permissions::from_mode(0o666)).unwrap();
    refused(&open, "others than root can write to it (mode 0666)");
    refused(&ours.file("version: v2\nhooks: {}\n"), "unknown version");
}
