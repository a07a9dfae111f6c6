//! CRI-O: its configuration, and what this machine needs.

use super::cri::Cri;
use super::images::IMAGE;
use crate::prelude::*;

/// The handler as it is shipped, in a folder of drop-ins.
pub fn configure(cri: &Cri) {
    let shipped = cri.runtime.shipped("crio-config/20-runmig.conf");
    let (there, here) = ("/run/runmig-oci", cri.setup.root("crio"));
    assert!(shipped.contains(there));
    let text = shipped.replace(there, here.to_str().unwrap());
    fs::create_dir_all(cri.path("crio.conf.d")).unwrap();
    cri.write("crio.conf.d/20-runmig.conf", &text);
    let anything = json!({"default": [{"type": "insecureAcceptAnything"}]});
    cri.write("policy.json", &anything.to_string());
    let repository = crate::repository().display();
    let dir = cri.path("");
    let dir = dir.to_str().unwrap().trim_end_matches('/');
    let runc = cri.setup.runtime.display();
    let text = format!(
        r#"[crio]
root = "{dir}/root"
runroot = "{dir}/runroot"
storage_driver = "overlay"
log_dir = "{dir}/logs"
version_file = "{dir}/version"
clean_shutdown_file = "{dir}/clean.shutdown"
[crio.api]
listen = "{dir}/socket"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
apparmor_profile = "unconfined"
container_exits_dir = "{dir}/exits"
container_attach_socket_dir = "{dir}/attach"
namespaces_dir = "{dir}/ns"
pinns_path = "{repository}/tests/engines/conformance/pinns"
hooks_dir = []
cdi_spec_dirs = ["{dir}/cdi"]
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_type = "oci"
runtime_root = "{dir}/runc"
monitor_path = "/usr/bin/conmon"
[crio.image]
pause_image = "{IMAGE}"
pause_command = ""
signature_policy = "{dir}/policy.json"
signature_policy_dir = "{dir}/policies"
[crio.network]
network_dir = "{dir}/cni"
[crio.nri]
enable_nri = false
"#
    );
    cri.write("crio.conf", &text);
}

pub fn command(cri: &Cri) -> Command {
    let mut command = cri.engine_command();
    command.arg("--config").arg(cri.path("crio.conf"));
    command.arg("--config-dir").arg(cri.path("crio.conf.d"));
    command
}

/// By podman, which has the same storage.
pub fn import(cri: &Cri, image: &Path) {
    let mut podman = Command::new("podman");
    for (option, dir) in [
        ("root", "root"),
        ("runroot", "runroot"),
        ("tmpdir", "podman"),
    ] {
        podman.arg(format!("--{option}={}", cri.path(dir).display()));
    }
    podman.args(["--storage-driver=overlay", "load", "--input"]);
    said(podman.arg(image)).ok();
}

/// A sandbox is to have a negative score for the kernel's out-of-memory killer, which takes
/// CAP_SYS_RESOURCE.
pub fn without_oom_scores(setup: &Setup) {
    setup.edit_bundles(r#"s/"oomScoreAdj": *-[0-9]*/"oomScoreAdj": 0/"#);
}
