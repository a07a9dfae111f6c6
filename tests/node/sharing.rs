//! Shares and whole GPUs on the node, on a second simulated machine with an L4 and MPS.

use super::install;
use super::machine::{Node, program, quote};
use super::podman::{passed, remove, run};
use super::slices::{STAYS, the_lease};
use super::support::bundle::{OPEN, SHOW, nodes};
use super::support::sharing::{Kind, SHARE_AT_MPS, WHOLE_GPU, daemon};
use super::timer::Often;

/// Folder of the machine.
const L4: &str = "/var/lib/l4";

/// The machine is the node's until this is dropped.
struct OnL4<'a>(&'a Node);

impl OnL4<'_> {
    #[track_caller]
    fn new<'a>(node: &'a Node, kind: &Kind) -> OnL4<'a> {
        node.ok(&format!(
            "[ -d {L4} ] || {} new {L4} {} >/dev/null",
            program("nvml-sim").display(),
            kind.machine.join(" ")
        ));
        let on_it = OnL4(node);
        node.ok(&install::configure_on(L4, kind.config, ""));
        on_it
    }
}

impl Drop for OnL4<'_> {
    fn drop(&mut self) {
        self.0.run(&install::configure(""));
    }
}

/// Starts a container with a request and a CUDA client; its id.
#[track_caller]
fn start(node: &Node, kind: &Kind) -> String {
    let volumes = [
        "/usr:/usr:ro".to_owned(),
        "/lib:/lib:ro".to_owned(),
        "/lib64:/lib64:ro".to_owned(),
        format!("{}:/client:ro", program("").display()),
        format!("{L4}:{L4}"),
        format!("/proc:{L4}/host-proc:ro"),
    ]
    .map(|volume| format!("--volume={volume}"));
    let options = format!(
        "--annotation={}={} --env=LD_LIBRARY_PATH={L4}/lib {}",
        kind.key,
        kind.value,
        volumes.join(" ")
    );
    run(node, "runmig", &options, STAYS)
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
    let id = start(node, &kind);
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

/// The shipped unit lets `migctl gc` start a daemon, which outlives the unit's service.
pub fn timer_restarts_daemon(node: &Node) {
    let kind = SHARE_AT_MPS;
    let on_l4 = OnL4::new(node, &kind);
    let id = start(node, &kind);
    let before = daemon(&the_lease(node, &id)).unwrap();
    node.ok(&format!("kill -9 {before}"));
    assert_eq!(the_lease(node, &id)["daemon"]["alive"], false);
    {
        let _often = Often::new(node);
        node.until("migctl list -o json | grep -q '\"alive\": true'");
        let ended =
            "systemctl show --property=ExecMainExitTimestampMonotonic --value runmig-gc.service";
        let last = node.ok(ended);
        node.until(&format!("[ \"$({ended})\" != '{last}' ]"));
    }
    let result = node.ok("systemctl show --property=Result --value runmig-gc.service");
    assert_eq!(result, "success");
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
    let id = start(node, &kind);
    let lease = the_lease(node, &id);
    assert_eq!(lease["kind"], "gpu");
    holds(node, &kind, &id);
    let inside = |script: &str| node.ok(&format!("podman exec {id} /bin/sh -c {}", quote(script)));
    let seen = inside(SHOW);
    assert!(nodes(&seen).contains_key("nvidia0"), "{seen}");
    // An exec gets its environment from podman.
    let environment = inside("tr '\\0' '\\n' </proc/1/environ");
    let uuid = lease["gpuUUID"].as_str().unwrap();
    let visible = format!("NVIDIA_VISIBLE_DEVICES={uuid}");
    assert!(environment.contains(&visible), "{environment}");
    let opened = inside(OPEN).to_lowercase();
    assert!(!opened.contains("not permitted"), "{opened}");
    passed(node, kind.row);
    remove(node, &id);
    drop(on_l4);
    node.nothing_is_left();
}
