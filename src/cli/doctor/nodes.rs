//! The device nodes: each exists, has its number, and opens.

use super::finding::Finding;
use super::host::Host;
use nix::errno::Errno;
use runmig_lease::gpu::nodes::Nodes;
use runmig_lease::model::{DeviceNode, MigMode};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const MAKE: &str = "nvidia-modprobe -u -c 0";

pub fn findings(host: &Host) -> Vec<Finding> {
    let root = host.driver_root();
    let nodes = match Nodes::read(&root) {
        Ok(nodes) => nodes,
        Err(e) => return vec![Finding::failed("majors", &e)],
    };
    let mut findings = vec![Finding::ok(
        "majors",
        "the kernel lists the majors of NVIDIA's drivers",
    )];
    let [ctl, uvm] = nodes.required_nodes();
    findings.push(check(&root, "nvidiactl", &ctl));
    findings.push(check(&root, "nvidia-uvm", &uvm));
    for node in nodes.optional_nodes() {
        findings.push(check(&root, "optional", &node));
    }
    let seen = match host.seen() {
        Ok(seen) => seen,
        Err(why) => {
            findings.push(Finding::skip("gpu", why));
            return findings;
        }
    };
    let gpus = &seen.inventory.snapshot.gpus;
    findings.extend(
        gpus.iter()
            .map(|gpu| check(&root, "gpu", &nodes.gpu_node(gpu.minor))),
    );
    if gpus.iter().any(|gpu| gpu.mig == MigMode::Enabled) {
        findings.extend(capabilities(&root));
    }
    for held in &seen.inventory.leases {
        let Some(slice) = held.instance.slice() else {
            continue;
        };
        let gpu = gpus.iter().find(|gpu| gpu.uuid == slice.gpu_uuid);
        let (Some(gpu), Some(gi), Some(ci)) = (gpu, slice.gpu_instance, slice.compute_instance)
        else {
            continue;
        };
        match nodes.capability_nodes(gpu.minor, gi, ci) {
            Ok(both) => findings.extend(both.iter().map(|node| check(&root, "instance", node))),
            Err(e) => findings.push(Finding::failed("instance", &e)),
        }
    }
    findings
}

/// The nodes by which root makes and watches instances.
fn capabilities(root: &Path) -> Vec<Finding> {
    let one = |name: &'static str| match Nodes::read(root).and_then(|nodes| nodes.mig_node(name)) {
        Ok(node) => check(root, name, &node),
        Err(e) => Finding::failed(name, &e),
    };
    vec![one("config"), one("monitor")]
}

pub fn check(root: &Path, id: &'static str, node: &DeviceNode) -> Finding {
    let path = root.join(node.path.strip_prefix("/").unwrap_or(&node.path));
    let (shown, wanted) = (path.display(), format!("{}:{}", node.major, node.minor));
    let meta = match fs::metadata(&path) {
        Ok(meta) => meta,
        Err(e) => return Finding::fail(id, format!("cannot find {shown}: {e}"), MAKE),
    };
    let found = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    if !meta.file_type().is_char_device() {
        return Finding::fail(
            id,
            format!("{shown} is no device"),
            format!("rm {shown} && {MAKE}"),
        );
    }
    if found != (node.major, node.minor) {
        let text = format!(
            "{shown} has the number {}:{}, and the driver {wanted}",
            found.0, found.1
        );
        return Finding::fail(id, text, format!("rm {shown} && {MAKE}"));
    }
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(&path);
    match opened {
        Ok(_) => Finding::ok(id, format!("{shown} ({wanted}) opens")),
        Err(e) if is_simulated(root, &e) => Finding::ok(
            id,
            format!("{shown} ({wanted}) is there; no driver owns it, since the GPUs are simulated"),
        ),
        Err(e) => Finding::fail(
            id,
            format!("cannot open {shown} ({wanted}): {e}"),
            repair(&e),
        ),
    }
}

/// No driver owns the majors of a simulated machine, whose files are below another root.
fn is_simulated(root: &Path, e: &io::Error) -> bool {
    root != Path::new("/") && e.raw_os_error() == Some(Errno::ENXIO as i32)
}

fn repair(e: &io::Error) -> &'static str {
    match e.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM) => {
            "run migctl doctor outside of a container: a device rule of its cgroup forbids the node"
        }
        Some(Errno::EACCES) => "sudo migctl doctor",
        Some(Errno::ENXIO | Errno::ENODEV) => {
            "modprobe nvidia nvidia-uvm, then nvidia-modprobe -u -c 0"
        }
        _ => "dmesg shows what the driver says",
    }
}
