//! The Debian package on the node: over `scripts/install`, upgraded under a container, removed, and alone.
//! The cases follow each other.

use super::machine::Node;
use super::podman::{remove, run, state};
use super::slices::{ASK, STAYS, opens_its_slice_alone, the_lease};
use super::timer::{Often, last_run_succeeded};
use std::sync::Once;
use testkit::packages::{self, PROGRAMS};
use testkit::prelude::*;

/// Folder on the node: the packages, and the tarball's content.
const AT: &str = "/root/package";
const CONFIG: &str = "/etc/runmig/config.toml";
const WANTED: &str = "/etc/systemd/system/timers.target.wants/runmig-gc.timer";
/// All that lies on the disk and that runmig could have made. The disk changes without it in these places.
const FILES: &str = "find / -xdev \\( -path /root -o -path /var/lib/dpkg -o -path /var/lib/sim -o -path /var/tmp \\) -prune -o -print | sort";

/// Copies the packages and returns true, or skips the case.
fn has_packages(node: &Node) -> bool {
    let found = [".deb", ".tar.gz"].map(packages::package);
    let [Some(deb), Some(tarball)] = found else {
        return false;
    };
    static COPIED: Once = Once::new();
    COPIED.call_once(|| copy(node, &deb, &tarball));
    true
}

fn copy(node: &Node, deb: &Path, tarball: &Path) {
    let stage = tempfile::tempdir().unwrap();
    packages::earlier_deb(deb, &stage.path().join("earlier.deb"));
    fs::copy(deb, stage.path().join("new.deb")).unwrap();
    let mut unpack = Command::new("tar");
    unpack.args(["--strip-components=1", "-xzf"]).arg(tarball);
    said(unpack.arg("-C").arg(stage.path())).ok();
    node.copy(stage.path(), AT).unwrap();
}

/// Returns what dpkg prints; it does not ask.
#[track_caller]
fn dpkg(node: &Node, arguments: &str) -> String {
    node.ok(&format!(
        "dpkg --force-unsafe-io --force-confold {arguments} 2>&1"
    ))
}

fn status(node: &Node) -> String {
    node.ok("dpkg-query --show --showformat '${db:Status-Status} ${Version}' runmig || true")
}

/// Whether the programs of the package are those of the tarball, and so of the present version.
#[track_caller]
fn are_new(node: &Node) -> bool {
    let each = format!(
        "for name in {}; do cmp -s /usr/bin/$name {AT}/bin/$name && echo new || echo old; done | sort --unique",
        PROGRAMS.join(" ")
    );
    match node.ok(&each).as_str() {
        "new" => true,
        "old" => false,
        mixed => panic!("{mixed}"),
    }
}

#[track_caller]
fn only_the_timer_is_enabled(node: &Node) {
    assert_eq!(node.ok("systemctl is-enabled runmig-gc.timer"), "enabled");
    assert_eq!(node.ok("systemctl is-active runmig-gc.timer"), "active");
    let links = node.ok("find /etc/systemd -name '*runmig*'");
    assert_eq!(links, WANTED);
    let runs = node.ok("systemctl show --property=ExecStart --value runmig-gc.service");
    has(&runs, "path=/usr/bin/migctl");
}

/// The configuration is there already, so dpkg asks, and a closed standard input ends it. Its next start goes on.
/// Failure: an installation over `scripts/install`
pub fn replaces_scripts_install(node: &Node) {
    if !has_packages(node) {
        return;
    }
    let before = node.ok(&format!("cat {CONFIG}"));
    let said = node.run(&format!("dpkg --force-unsafe-io -i {AT}/earlier.deb"));
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stderr.contains("at conffile prompt"), "{said:?}");
    assert_eq!(status(node), "unpacked 0.0.1-1");
    dpkg(node, "--configure --pending");
    assert_eq!(node.ok(&format!("cat {CONFIG}")), before);

    // The copy of scripts/install still comes first, in PATH and for systemd.
    assert_eq!(node.ok("command -v migctl"), "/usr/local/bin/migctl");
    node.ok(&format!(
        "{AT}/scripts/install --uninstall; systemctl daemon-reload"
    ));
    assert_eq!(node.ok(&format!("cat {CONFIG}")), before);
    only_the_timer_is_enabled(node);
    node.ok("migctl configure podman");
    assert_eq!(status(node), "installed 0.0.1-1");
}

/// The container was started by the earlier version, and the new hook releases its lease.
/// Failure: an upgrade under a container with a lease
pub fn upgrade_keeps_leases(node: &Node) {
    if !has_packages(node) {
        return;
    }
    assert!(!are_new(node), "{}", status(node));
    let id = run(node, "runmig", &format!("--cap-add=MKNOD {ASK}"), STAYS);
    let lease = the_lease(node, &id);
    node.ok(&format!("echo '# mine' >>{CONFIG}"));
    let before = node.ok(&format!("cat {CONFIG}"));

    dpkg(node, &format!("-i {AT}/new.deb"));
    assert!(are_new(node), "{}", status(node));
    assert_eq!(node.ok(&format!("cat {CONFIG}")), before);
    assert_eq!(node.ok(&format!("ls {CONFIG}*")).lines().count(), 2);
    only_the_timer_is_enabled(node);
    let after = the_lease(node, &id);
    assert_eq!(after["id"], lease["id"]);
    assert_eq!(after["migUUID"], lease["migUUID"]);
    opens_its_slice_alone(node, &format!("podman exec {id}"));

    // Without podman's monitor no process calls runmig, so runc calls the hook of the container alone.
    let (monitor, init) = (state(node, &id, "ConmonPid"), state(node, &id, "Pid"));
    node.ok(&format!(
        "kill -9 {monitor} {init}; runc delete --force {id}"
    ));
    node.nothing_is_left();
    node.run(&format!("podman rm --force --time=0 {id}"));
}

/// Failure: a removal while leases are held
pub fn removal_waits_for_leases(node: &Node) {
    if !has_packages(node) {
        return;
    }
    let id = run(node, "runmig", ASK, STAYS);
    let said = node.run("dpkg --force-unsafe-io --remove runmig 2>&1");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    has(&said.stdout, "slices, shares or GPUs are leased");
    only_the_timer_is_enabled(node);
    the_lease(node, &id);
    remove(node, &id);
    node.nothing_is_left();

    node.ok("migctl configure podman --remove");
    dpkg(node, "--remove runmig");
    let state = node.run("systemctl is-active runmig-gc.timer").stdout;
    assert_eq!(state, "inactive\n");
    assert_eq!(node.ok("find /usr -name '*runmig*'"), "");
    node.ok(&format!("grep -qx '# mine' {CONFIG}"));
    dpkg(node, "--purge runmig");
    let left =
        node.ok("ls -d /run/runmig /etc/runmig 2>/dev/null; find /etc/systemd -name '*runmig*'");
    assert_eq!(left, "");
}

/// The node has neither runmig nor a driver that runmig finds.
pub fn fresh_node_gets_one_timer(node: &Node) {
    if !has_packages(node) {
        return;
    }
    let before = node.ok(FILES);
    assert!(!before.contains("bin/runmig"), "{before}");
    dpkg(node, &format!("-i {AT}/new.deb"));
    only_the_timer_is_enabled(node);
    let doctor = node.run("migctl doctor").exits(1).stdout;
    let first = doctor.lines().find(|line| line.starts_with("fail"));
    has(first.unwrap_or_default(), "driver.library");

    node.reboot();
    only_the_timer_is_enabled(node);
    Often::new(node).has_run();
    last_run_succeeded(node);

    dpkg(node, "--purge runmig");
    let after = node.ok(FILES);
    packages::same_files(&before, &after);
}
