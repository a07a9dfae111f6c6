//! The programs, the low-level runtime and the hook.

use super::breaking::{breaks, breaks_inside, repairs_inside};
use super::{Diagnosis, setup};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testkit::process::copy_program;
use testkit::runtimes::script;
use testkit::{Low, Machine, Setup};

/// Gives the setup a hook of its own, which is a link to the built one before.
fn own_hook(setup: &Setup) -> PathBuf {
    let (hook, built) = (setup.program("runmig-hook"), setup.path("built-hook"));
    fs::rename(&hook, &built).unwrap();
    copy_program(&built, &hook);
    hook
}

#[test]
fn names_untrusted_program() {
    let Some(setup) = setup() else { return };
    let hook = own_hook(&setup);
    let mode = |mode| fs::set_permissions(&hook, Permissions::from_mode(mode)).unwrap();
    let (text, repair) = breaks(
        &setup,
        "programs,hooks",
        "fail",
        "programs.files",
        || mode(0o777),
        || mode(0o755),
    );
    assert!(
        text.starts_with(&format!("cannot trust {}", hook.display())),
        "{text}"
    );
    assert!(repair.starts_with("install runmig again"), "{repair}");
    // doctor does not run what others may have written.
    mode(0o777);
    let seen = Diagnosis::of(&setup, &["--only=programs.version,hooks.runs"]);
    assert_eq!(seen.ids("skip").len(), 2, "{:?}", seen.items);
}

#[test]
fn names_noexec_mount() {
    let Some(setup) = setup() else { return };
    let hook = setup.program("runmig-hook");
    let hook = hook.display();
    let bad = format!("mount --bind {hook} {hook}\nmount -o remount,bind,noexec {hook}");
    let worlds = ["", bad.as_str()];
    let (text, repair) = breaks_inside(&setup, "programs,hooks", "fail", "programs.noexec", worlds);
    assert!(
        text.contains(&format!("the file system of {hook} forbids")),
        "{text}"
    );
    repairs_inside(&setup, "programs,hooks", worlds, &repair);
}

/// A hook that says another version still runs.
#[test]
fn names_other_version() {
    let Some(setup) = setup() else { return };
    let (hook, kept) = (setup.program("runmig-hook"), setup.path("kept"));
    let (text, _) = breaks(
        &setup,
        "programs,hooks",
        "fail",
        "programs.version",
        || {
            fs::rename(&hook, &kept).unwrap();
            script(&hook, "echo 'runmig-hook 9.9.9: a hook'");
        },
        || fs::rename(&kept, &hook).unwrap(),
    );
    assert!(text.contains("says runmig-hook 9.9.9"), "{text}");
}

/// It works in the administrator's shell, and not as an engine starts it.
#[test]
fn names_hook_that_needs_more() {
    let Some(setup) = setup() else { return };
    let (hook, kept) = (setup.program("runmig-hook"), setup.path("kept"));
    let version = format!("echo 'runmig-hook {}: a hook'", env!("CARGO_PKG_VERSION"));
    let here = format!("[ \"$PWD\" != / ] || exit 1; {version}");
    let variable = format!("[ -n \"$HOME\" ] || exit 1; {version}");
    for body in [variable, here] {
        let (text, _) = breaks(
            &setup,
            "programs,hooks",
            "fail",
            "hooks.runs",
            || {
                fs::rename(&hook, &kept).unwrap();
                script(&hook, &body);
            },
            || fs::rename(&kept, &hook).unwrap(),
        );
        assert!(text.contains("exit status: 1"), "{text}");
    }
}

#[test]
fn names_old_crun() {
    let (Some(old), Some(new)) = (
        Setup::on(Low::Crun, Machine::new("A100-80GB", 1)),
        Setup::on(Low::NewCrun, Machine::new("A100-80GB", 1)),
    ) else {
        return;
    };
    let named = |setup: &Setup| fs::read_to_string(setup.config()).unwrap();
    let (text, repair) = breaks(
        &new,
        "programs",
        "warn",
        "programs.crun",
        || {
            fs::write(
                new.config(),
                named(&new).replace(new.runtime.to_str().unwrap(), old.runtime.to_str().unwrap()),
            )
            .unwrap()
        },
        || new.configure(""),
    );
    assert!(text.starts_with("crun version 1.8"), "{text}");
    assert!(repair.starts_with("install crun 1.21"), "{repair}");
}

/// The crun of CRI-O lies where runmig does not look.
#[test]
fn names_crun_of_an_engine() {
    let (Some(setup), Some(crun)) = (setup(), Low::Crun.find()) else {
        return;
    };
    let text = fs::read_to_string(setup.config()).unwrap();
    let without = text.lines().filter(|line| !line.starts_with("runtime"));
    let without: Vec<&str> = without.collect();
    fs::write(setup.config(), without.join("\n")).unwrap();
    let there = setup.path("libexec");
    fs::create_dir_all(there.join("crio")).unwrap();
    copy_program(&crun, &there.join("crio/crun"));
    let engine = format!("mount --bind {} /usr/libexec", there.display());
    // No runc and no crun in the usual places; mount itself is in the last of them.
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    let hide: Vec<String> = { folders.iter() }
        .map(|folder| format!("mount -t tmpfs none {folder}"))
        .collect();
    let hide = hide.join("\n");
    let bad = format!("{engine}\n{hide}");
    let worlds = [engine.as_str(), bad.as_str()];
    let only = "programs.low-level-runtime";
    let (_, repair) = breaks_inside(&setup, only, "fail", only, worlds);
    assert!(
        repair.starts_with("set runtime = \"/usr/libexec/crio/crun\", which CRI-O brings"),
        "{repair}"
    );
    // Without the engine's crun the repair is another one.
    let (_, repair) = breaks_inside(&setup, only, "fail", only, ["", &hide]);
    assert!(repair.starts_with("install runc"), "{repair}");
}

/// Another handler has a low-level runtime of its own.
#[test]
fn names_runtime_of_other_handler() {
    let Some(setup) = setup() else { return };
    let with = |runtime: &Path| {
        let (etc, file) = (etc(&setup), "/etc/runmig/crun.toml");
        let text = format!("runtime = \"{}\"", runtime.display());
        format!("{etc}\nmkdir /etc/runmig; echo '{text}' >{file}")
    };
    let (good, bad) = (with(&setup.runtime), with("/nowhere/crun".as_ref()));
    let id = "programs.low-level-runtime";
    let group = "programs,configuration";
    let (text, _) = breaks_inside(&setup, group, "fail", id, [&good, &bad]);
    assert!(text.contains("/nowhere/crun"), "{text}");
}

/// A script that gives a mount namespace an `/etc` with little in it.
pub fn etc(setup: &Setup) -> String {
    let folder = setup.path(&format!("etc-{}", testkit::unique()));
    let folder = folder.display();
    format!(
        "mkdir {folder}
         cp -a /etc/ld.so* /etc/passwd /etc/group /etc/nsswitch.conf {folder}
         mount --bind {folder} /etc"
    )
}
