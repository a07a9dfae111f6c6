//! The machine: kernel, clock, timers, and the driver's files for containers.

use super::breaking::{breaks, breaks_inside, ids, repairs_inside};
use super::conflicts::process;
use super::programs::etc;
use super::{Diagnosis, setup};
use runmig_lease::model::Timestamp;
use runmig_lease::store::{Entry, Store};
use std::fs;
use std::time::{Duration, SystemTime};

#[test]
fn names_missing_cgroups() {
    let Some(setup) = setup() else { return };
    let bad = "mount -t tmpfs none /sys/fs/cgroup";
    let (text, repair) = breaks_inside(&setup, "machine", "fail", "machine.cgroups", ["", bad]);
    assert!(text.starts_with("no devices controller"), "{text}");
    assert_eq!(repair, "mount cgroup v2 at /sys/fs/cgroup");
    // The repair, as a command.
    let repair = "mount -t cgroup2 none /sys/fs/cgroup";
    repairs_inside(&setup, "machine", ["", bad], repair);
}

#[test]
fn names_low_limit_on_inotify() {
    let Some(setup) = setup() else { return };
    let file = setup.path("few");
    fs::write(&file, "8\n").unwrap();
    let few = "/proc/sys/fs/inotify/max_user_instances";
    let bad = format!("mount --bind {} {few}", file.display());
    let (text, repair) = breaks_inside(&setup, "machine", "warn", "machine.inotify", ["", &bad]);
    assert!(
        text.starts_with("a user may have 8 inotify instances"),
        "{text}"
    );
    repairs_inside(&setup, "machine", ["", &bad], &repair);
}

#[test]
fn names_missing_login_uids() {
    let Some(setup) = setup() else { return };
    let empty = setup.path("empty");
    fs::write(&empty, "").unwrap();
    let bad = format!("mount --bind {} /proc/$$/loginuid", empty.display());
    // Without a rule by user nothing needs them.
    let seen = Diagnosis::inside(&setup, &bad, &["--only=machine.login-uid"]);
    assert_eq!(seen.ids("skip"), ids(["machine.login-uid"]));
    let good = fs::read_to_string(setup.config()).unwrap();
    let rule = "[[policy.limit]]\nuser = \"*\"\nslices = 2\n";
    fs::write(setup.config(), format!("{good}\n{rule}")).unwrap();
    let (text, _) = breaks_inside(&setup, "machine", "warn", "machine.login-uid", ["", &bad]);
    assert!(text.ends_with("so they never apply"), "{text}");
}

#[test]
fn names_enforcing_selinux() {
    let Some(setup) = setup() else { return };
    let with = |enforces: &str| {
        let there = setup.path(&format!("fs-{enforces}"));
        let there = there.display();
        format!(
            "mkdir -p {there}/cgroup {there}/selinux
             mount --rbind /sys/fs/cgroup {there}/cgroup
             echo {enforces} >{there}/selinux/enforce
             mount --rbind {there} /sys/fs"
        )
    };
    let (good, bad) = (with("0"), with("1"));
    let id = "machine.selinux";
    let (_, repair) = breaks_inside(&setup, "machine", "warn", id, [&good, &bad]);
    assert_eq!(repair, "setsebool -P container_use_devices=true");
}

/// As snap confines docker.
#[test]
fn names_confined_engine() {
    let Some(setup) = setup() else { return };
    let engine = process(&setup, "dockerd");
    let with = |profile: &str, n: u32| {
        let there = setup.path(&format!("modules-{n}"));
        let there = there.display();
        format!(
            "{engine}
             mkdir -p {there}/apparmor/parameters
             echo Y >{there}/apparmor/parameters/enabled
             echo '{profile}' >{there}/profile
             mount --bind {there}/profile /proc/$pid/attr/current
             mount --bind {there} /sys/module"
        )
    };
    let (good, bad) = (
        with("unconfined", 0),
        with("snap.docker.dockerd (enforce)", 1),
    );
    let id = "machine.apparmor";
    let (text, repair) = breaks_inside(&setup, "machine", "warn", id, [&good, &bad]);
    assert!(
        text.contains("by the profile snap.docker.dockerd"),
        "{text}"
    );
    assert!(
        repair.starts_with("aa-complain snap.docker.dockerd"),
        "{repair}"
    );
}

#[test]
fn names_user_namespaces_of_docker() {
    let Some(setup) = setup() else { return };
    let with = |text: &str| {
        let etc = etc(&setup);
        format!("{etc}\nmkdir /etc/docker; echo '{text}' >/etc/docker/daemon.json")
    };
    let (good, bad) = (with("{}"), with("{\"userns-remap\": \"default\"}"));
    let id = "machine.userns-remap";
    let (text, _) = breaks_inside(&setup, "machine", "warn", id, [&good, &bad]);
    assert!(text.starts_with("/etc/docker/daemon.json maps"), "{text}");
}

#[test]
fn names_missing_driver_files() {
    let Some(setup) = setup() else { return };
    let good = fs::read_to_string(setup.config()).unwrap();
    fs::write(
        setup.config(),
        good.replace("driver_files = \"none\"", "driver_files = \"cdi\""),
    )
    .unwrap();
    let file = setup.path("libcuda.so.1");
    let specification = |file: &str| {
        let etc = etc(&setup);
        format!(
            "{etc}
             mkdir /etc/cdi
             cat >/etc/cdi/nvidia.yaml <<END
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices: [{{name: all, containerEdits: {{env: [A=b]}}}}]
containerEdits: {{mounts: [{{hostPath: {file}, containerPath: /usr/lib/libcuda.so.1}}]}}
END"
        )
    };
    fs::write(&file, "").unwrap();
    let present = || specification(file.to_str().unwrap());
    let (id, good) = ("files.cdi", present());
    let gone = specification("/nowhere/libcuda.so.535");
    let (text, repair) = breaks_inside(&setup, "files", "fail", id, [&good, &gone]);
    assert!(
        text.contains("the first is /nowhere/libcuda.so.535"),
        "{text}"
    );
    assert!(repair.starts_with("nvidia-ctk cdi generate"), "{repair}");
    let (text, _) = breaks_inside(&setup, "files", "fail", id, [&present(), &etc(&setup)]);
    assert!(
        text.starts_with("no CDI specification of nvidia.com/gpu"),
        "{text}"
    );
    let other = format!("{}\necho '{{' >/etc/cdi/other.yaml", present());
    let id = "files.skipped";
    let (text, _) = breaks_inside(&setup, "files", "warn", id, [&present(), &other]);
    assert!(text.contains("/etc/cdi/other.yaml"), "{text}");
}

#[test]
fn names_clock_behind_the_ledger() {
    let Some(setup) = setup() else { return };
    let bundle = setup.asking("1g.10gb", "true");
    setup.runmig(&["create", "-b", bundle.as_str(), "web"]).ok();
    let created = |time: SystemTime| {
        let store = Store::existing(&setup.state(), Duration::from_secs(60));
        let store = store.unwrap().unwrap();
        let entries = store.list().unwrap().entries;
        let Entry::Held(held) = &entries[0] else {
            panic!("no lease: {entries:?}")
        };
        let ledger = store.lock("a test").unwrap();
        let change = |lease: &mut runmig_lease::store::Lease| {
            lease.created = Timestamp::seconds(time);
        };
        ledger.update_lease(&held.lease, change).unwrap().unwrap();
    };
    let now = SystemTime::now();
    let (text, repair) = breaks(
        &setup,
        "clock",
        "warn",
        "clock.time",
        || created(now + Duration::from_secs(24 * 3600)),
        || created(now - Duration::from_secs(3600)),
    );
    assert!(text.ends_with("so the clock was set back"), "{text}");
    assert!(repair.starts_with("set the clock"), "{repair}");
    setup.runmig(&["delete", "--force", "web"]).ok();
}

#[test]
fn names_unreadable_boot_id() {
    let Some(setup) = setup() else { return };
    let file = setup.machine.dir().join("proc/sys/kernel/random/boot_id");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let kept = fs::read(&file).ok();
    let (text, _) = breaks(
        &setup,
        "clock",
        "fail",
        "clock.boot",
        || fs::write(&file, "").unwrap(),
        || match &kept {
            Some(kept) => fs::write(&file, kept).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        },
    );
    assert!(text.contains(file.to_str().unwrap()), "{text}");
}

/// systemd that does not answer is unknown, and not well.
#[test]
fn unanswered_systemd_is_not_well() {
    let Some(setup) = setup() else { return };
    let run = setup.path("run");
    fs::create_dir_all(run.join("systemd/system")).unwrap();
    let booted = format!("mount --bind {} /run", run.display());
    let checks = "--only=timers,clock.synchronised";
    let seen = Diagnosis::inside(&setup, &booted, &[checks]);
    let all = ["timers.gc", "timers.textfile", "clock.synchronised"];
    assert_eq!(seen.ids("warn"), ids(all), "{:?}", seen.items);
    let seen = Diagnosis::inside(&setup, "mount -t tmpfs none /run", &[checks]);
    assert_eq!(seen.ids("skip"), ids(all), "{:?}", seen.items);
}
