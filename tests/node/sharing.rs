//! Shares and whole GPUs on the node, on simulated machines with an L4 and MPS.

use super::install::{self, CONFIGURE_CRUN};
use super::machine::{Node, program, quote};
use super::podman::{passed, remove, run};
use super::slices::{STAYS, the_lease};
use super::timer::{self, Often, last_run_succeeded};
use testkit::prelude::*;
use testkit::sharing::{Kind, SHARE_AT_DRIVER, SHARE_AT_MPS, WHOLE_GPU, daemon};

/// Returns the folder of the simulated machine for a kind of request.
fn dir(kind: &Kind) -> &'static str {
    match kind.machine.contains(&"615") {
        true => "/var/lib/l4-615",
        false => "/var/lib/l4",
    }
}

/// The machine is the node's until this is dropped.
pub struct OnL4<'a>(&'a Node);

impl OnL4<'_> {
    #[track_caller]
    pub fn new<'a>(node: &'a Node, kind: &Kind) -> OnL4<'a> {
        let dir = dir(kind);
        node.ok(&format!(
            "[ -d {dir} ] || {} new {dir} {} >/dev/null",
            program("nvml-sim").display(),
            kind.machine.join(" ")
        ));
        let on_it = OnL4(node);
        // The client's container has the host's folders, with the driver's files.
        let keys = format!("driver_files = \"none\"\n{}", kind.config);
        let configure = install::configure_on(dir, &keys, "");
        node.ok(&format!("{configure}\n{CONFIGURE_CRUN}"));
        on_it
    }
}

impl Drop for OnL4<'_> {
    fn drop(&mut self) {
        let configure = install::configure("");
        self.0.run(&format!("{configure}\n{CONFIGURE_CRUN}"));
    }
}

/// Returns the folders of the node in a container with a CUDA client, each with its place there.
pub fn mounts(kind: &Kind) -> Vec<(String, String, &'static str)> {
    let dir = dir(kind);
    let same = |path: &str, access| (path.to_owned(), path.to_owned(), access);
    vec![
        same("/usr", "ro"),
        same("/lib", "ro"),
        same("/lib64", "ro"),
        (
            program("").display().to_string(),
            "/client".to_owned(),
            "ro",
        ),
        same(dir, "rw"),
        ("/proc".to_owned(), format!("{dir}/host-proc"), "ro"),
    ]
}

/// Returns the options of an engine for the request and the simulated libcuda.
pub fn ask(kind: &Kind) -> String {
    let (key, value, dir) = (kind.key, kind.value, dir(kind));
    format!("--annotation={key}={value} --env=LD_LIBRARY_PATH={dir}/lib")
}

/// Starts a container with a request and a CUDA client; its id.
#[track_caller]
fn start(node: &Node, runtime: &str, kind: &Kind) -> String {
    let volume = |(host, inside, access)| format!("--volume={host}:{inside}:{access}");
    let volumes: Vec<String> = mounts(kind).into_iter().map(volume).collect();
    let options = format!("{} {}", ask(kind), volumes.join(" "));
    run(node, runtime, &options, STAYS)
}

/// Checks CUDA's memory in a new process of the container.
#[track_caller]
fn holds(node: &Node, kind: &Kind, id: &str) {
    let info = node.ok(&format!("podman exec {id} /client/cuda-client info"));
    assert_eq!(info, kind.info);
}

pub fn share_at_mps_holds(node: &Node) {
    let kind = SHARE_AT_MPS;
    let on_l4 = OnL4::new(node, &kind);
    let id = start(node, "runmig", &kind);
    let lease = the_lease(node, &id);
    assert_eq!(lease["enforcement"], "mps");
    let pid = daemon(&lease).unwrap();
    // Neither the container nor a unit of systemd has the daemon, so no end of theirs is its end.
    let cgroup = node.ok(&format!("cat /proc/{pid}/cgroup"));
    assert!(cgroup.starts_with("0::/runmig-mps-"), "{cgroup}");
    holds(node, &kind, &id);
    passed(node, kind.row);
    node.ok(&format!(
        "podman update --memory=256m --cpu-shares=512 {id}; systemctl daemon-reload"
    ));
    holds(node, &kind, &id);
    node.ok(&format!("podman restart --time=0 {id}"));
    holds(node, &kind, &id);
    assert!(!node.run(&format!("test -d /proc/{pid}")).status.success());
    passed(node, &format!("{}: exec, update, restart", kind.row));
    remove(node, &id);
    node.no_daemon_is_left();
    drop(on_l4);
    node.nothing_is_left();
}

/// Asserts that the driver limits the container's own cgroup, as deep as the low-level runtime put it.
#[track_caller]
pub fn limits_own_cgroup(node: &Node, kind: &Kind, lease: &Value) {
    assert_eq!(lease["enforcement"], "driver");
    let pid = &lease["initPid"];
    let cgroup = node.ok(&format!("cut -d: -f3 /proc/{pid}/cgroup"));
    let inode = node.ok(&format!("stat -c %i /sys/fs/cgroup{cgroup}"));
    let limits = limits(node, kind);
    let own = limits.iter().find(|limit| limit["cgroup"] == cgroup);
    let own = own.unwrap_or_else(|| panic!("{cgroup}: {limits:?}"));
    assert_eq!(own["inode"].to_string(), inode);
    assert_eq!(own["hard"], 8_u64 << 30);
    assert_eq!(own["soft"], 0);
}

/// Returns the driver's limits on cgroups, those that are gone too.
#[track_caller]
fn limits(node: &Node, kind: &Kind) -> Vec<Value> {
    let show = format!("cat {}/state.json", dir(kind));
    let machine = node.run(&show).ok().json();
    machine["memory_limits"].as_array().unwrap().clone()
}

/// Asserts that no cgroup of a limit is there any more.
#[track_caller]
pub fn no_limit_is_left(node: &Node, kind: &Kind) {
    let limits = limits(node, kind);
    assert!(!limits.is_empty());
    for limit in limits {
        let cgroup = limit["cgroup"].as_str().unwrap();
        node.ok(&format!("[ ! -e '/sys/fs/cgroup{cgroup}' ]"));
    }
}

pub fn share_at_driver_holds(node: &Node) {
    let kind = SHARE_AT_DRIVER;
    let on_l4 = OnL4::new(node, &kind);
    for runtime in ["runmig", "runmig-crun"] {
        let id = start(node, runtime, &kind);
        let before = the_lease(node, &id);
        limits_own_cgroup(node, &kind, &before);
        holds(node, &kind, &id);
        // systemd knows neither of the two controllers that keep such limits, and writes its own again.
        node.ok(&format!(
            "podman update --memory=256m --cpu-shares=512 {id}; systemctl daemon-reload"
        ));
        limits_own_cgroup(node, &kind, &before);
        holds(node, &kind, &id);
        node.ok(&format!("podman restart --time=0 {id}"));
        let after = the_lease(node, &id);
        assert_ne!(after["id"], before["id"]);
        limits_own_cgroup(node, &kind, &after);
        holds(node, &kind, &id);
        remove(node, &id);
        no_limit_is_left(node, &kind);
    }
    passed(node, kind.row);
    passed(node, &format!("{}: exec, update, restart", kind.row));
    drop(on_l4);
    node.nothing_is_left();
}

/// The shipped unit lets `migctl gc` start a daemon, which outlives the unit's service.
/// Failure: a kill of an MPS daemon, on a node with systemd, where the shipped timer calls `gc`
pub fn timer_restarts_daemon(node: &Node) {
    let kind = SHARE_AT_MPS;
    let on_l4 = OnL4::new(node, &kind);
    let id = start(node, "runmig", &kind);
    let before = daemon(&the_lease(node, &id)).unwrap();
    timer::stop(node);
    node.ok(&format!("kill -9 {before}"));
    assert_eq!(the_lease(node, &id)["daemon"]["alive"], false);
    {
        let often = Often::new(node);
        node.until("migctl list -o json | grep -q '\"alive\": true'");
        often.has_run();
    }
    last_run_succeeded(node);
    let lease = the_lease(node, &id);
    assert_eq!(lease["daemon"]["alive"], true);
    let cgroup = node.ok(&format!("cat /proc/{}/cgroup", daemon(&lease).unwrap()));
    assert!(cgroup.starts_with("0::/runmig-mps-"), "{cgroup}");
    holds(node, &kind, &id);
    remove(node, &id);
    node.no_daemon_is_left();
    drop(on_l4);
    node.nothing_is_left();
}

pub fn gives_whole_gpu(node: &Node) {
    let kind = WHOLE_GPU;
    let on_l4 = OnL4::new(node, &kind);
    let id = start(node, "runmig", &kind);
    let lease = the_lease(node, &id);
    assert_eq!(lease["kind"], "gpu");
    holds(node, &kind, &id);
    let inside = |script: &str| node.ok(&format!("podman exec {id} /bin/sh -c {}", quote(script)));
    let seen = inside(&format!("{SHOW}; {OPEN}"));
    assert!(nodes(&seen).contains_key("nvidia0"), "{seen}");
    // An exec gets its environment from podman.
    let environment = inside("tr '\\0' '\\n' </proc/1/environ");
    let uuid = lease["gpuUUID"].as_str().unwrap();
    let visible = format!("NVIDIA_VISIBLE_DEVICES={uuid}");
    has(&environment, &visible);
    assert!(!seen.to_lowercase().contains("not permitted"), "{seen}");
    passed(node, kind.row);
    remove(node, &id);
    drop(on_l4);
    node.nothing_is_left();
}
