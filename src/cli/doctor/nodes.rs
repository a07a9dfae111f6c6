//! The device nodes: each exists, has its number, and opens.

use super::check::Check;
use super::finding::Finding;
use super::host::{Host, Seen};
use nix::errno::Errno;
use runmig_lease::gpu::nodes::Nodes;
use runmig_lease::model::{DeviceNode, MigMode};
use runmig_lease::store::Held;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const MAKE: &str = "nvidia-modprobe -u -c 0";

pub const CHECKS: &[Check] = &[
    Check::new(
        "nodes.majors",
        "the kernel lists the majors of NVIDIA's drivers",
        "modprobe nvidia nvidia-uvm",
    ),
    Check::new(
        "nodes.nvidiactl",
        "nvidiactl exists, has its number and opens",
        MAKE,
    ),
    Check::new(
        "nodes.nvidia-uvm",
        "nvidia-uvm exists, has its number and opens",
        MAKE,
    ),
    Check::new(
        "nodes.optional",
        "nvidia-uvm-tools, for profilers, exists and opens, and nvidia-modeset where it exists",
        MAKE,
    ),
    Check::new(
        "nodes.gpu",
        "the node of each GPU exists, has its number and opens",
        MAKE,
    ),
    Check::new(
        "nodes.config",
        "the capability node exists by which root makes instances",
        MAKE,
    ),
    Check::new(
        "nodes.monitor",
        "the capability node exists by which root watches instances",
        MAKE,
    ),
    Check::new(
        "nodes.instance",
        "the capability nodes of each slice on record exist and open",
        MAKE,
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let root = host.driver_root();
    let nodes = match Nodes::read(&root) {
        Ok(nodes) => nodes,
        Err(e) => {
            let mut findings = vec![Finding::failed("nodes.majors", &e)];
            let why = "the majors are unknown, see nodes.majors";
            findings.extend(Finding::skip_all(&CHECKS[1..], why));
            return findings;
        }
    };
    let mut findings = vec![Finding::ok(
        "nodes.majors",
        "the kernel lists the majors of NVIDIA's drivers",
    )];
    let [ctl, uvm] = nodes.required_nodes();
    findings.push(check(&root, "nodes.nvidiactl", &ctl));
    findings.push(check(&root, "nodes.nvidia-uvm", &uvm));
    findings.extend(optional(&root, &nodes));
    let seen = match host.seen() {
        Ok(seen) => seen,
        Err(why) => {
            findings.extend(Finding::skip_all(&CHECKS[4..], why));
            return findings;
        }
    };
    let gpus = &seen.inventory.snapshot.gpus;
    findings
        .extend({ gpus.iter() }.map(|gpu| check(&root, "nodes.gpu", &nodes.gpu_node(gpu.minor))));
    if gpus.is_empty() {
        findings.push(Finding::skip("nodes.gpu", "no GPU answers"));
    }
    findings.extend(match gpus.iter().any(|gpu| gpu.mig == MigMode::Enabled) {
        true => capabilities(&root, &nodes),
        false => Finding::skip_all(&CHECKS[5..7], "no GPU is in MIG mode"),
    });
    findings.extend(instances(&root, &nodes, seen));
    findings
}

/// The nodes that containers get where the host has them.
fn optional(root: &Path, nodes: &Nodes) -> Vec<Finding> {
    const ID: &str = "nodes.optional";
    const TOOLS: &str = "dev/nvidia-uvm-tools";
    let optional = nodes.optional_nodes();
    let mut findings: Vec<Finding> = { optional.iter() }
        .map(|node| check(root, ID, node))
        .collect();
    if !optional.iter().any(|node| node.path.ends_with(TOOLS)) {
        let shown = root.join(TOOLS);
        let text = format!(
            "{} is missing or has another number, so profilers do not work in containers",
            shown.display()
        );
        findings.push(Finding::warn(ID, text, MAKE));
    }
    findings
}

/// The nodes by which root makes and watches instances.
fn capabilities(root: &Path, nodes: &Nodes) -> Vec<Finding> {
    let one = |(id, name)| match nodes.mig_node(name) {
        Ok(node) => check(root, id, &node),
        Err(e) => Finding::failed(id, &e),
    };
    [("nodes.config", "config"), ("nodes.monitor", "monitor")]
        .map(one)
        .into()
}

/// The nodes of the slices on record.
fn instances(root: &Path, nodes: &Nodes, seen: &Seen) -> Vec<Finding> {
    const ID: &str = "nodes.instance";
    let gpus = &seen.inventory.snapshot.gpus;
    let ids = |held: &Held| {
        let slice = held.instance.resource.mig_slice()?;
        let gpu = gpus.iter().find(|gpu| gpu.uuid == slice.gpu_uuid)?;
        Some((gpu.minor, slice.gpu_instance?, slice.compute_instance?))
    };
    let slices: BTreeSet<_> = seen.inventory.leases.iter().filter_map(ids).collect();
    if slices.is_empty() {
        return vec![Finding::skip(ID, "no slice is on record")];
    }
    let one = |(gpu, gi, ci)| match nodes.capability_nodes(gpu, gi, ci) {
        Ok(both) => both.iter().map(|node| check(root, ID, node)).collect(),
        Err(e) => vec![Finding::failed(ID, &e)],
    };
    slices.into_iter().flat_map(one).collect()
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
