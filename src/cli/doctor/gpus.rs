//! The driver, its GPUs and their device nodes, MIG, and shares.

use super::host::Host;
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use runmig_lease::Inventory;
use runmig_lease::error::printable;
use runmig_lease::finding::{Finding, Found, Status};
use runmig_lease::gpu::device_nodes::Nodes;
use runmig_lease::gpu::uvm;
use runmig_lease::model::{DeviceNode, Gpu, Level, MigMode, Shut};
use runmig_lease::store::{Held, Instance, InstanceState};
use runmig_lease::{known_gpus, paths};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const MAKE: &str = "nvidia-modprobe -u -c 0";

pub fn library(host: &Host) -> Found {
    host.config()?;
    let seen = { host.seen.as_ref() }.map_err(|e| Finding::in_words(Status::Fail, &e.line()))?;
    if seen.missing.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!("the library lacks {}", seen.missing.join(", "));
    let repair = "install a driver of release 525 or newer";
    Err(Finding::fail(text, repair))
}

pub fn gpus(host: &Host) -> Found {
    let snapshot = &host.seen()?.inventory.snapshot;
    let reset = "nvidia-smi --gpu-reset for that GPU, or reboot";
    let lost = { snapshot.unreadable.iter() }.map(|(_, why)| Finding::fail(why, reset));
    let closed = snapshot.gpus.iter().filter_map(|gpu| {
        let Shut { why, remedy } = gpu.shut()?;
        let text = format!("GPU {} gives nothing new: {why}", gpu.index);
        Some(match gpu.closed.as_ref()?.cordon.is_some() {
            true => Finding::warn(text, remedy),
            false => Finding::fail(text, remedy),
        })
    });
    let lost: Vec<Finding> = lost.chain(closed).collect();
    if lost.is_empty() && snapshot.gpus.is_empty() {
        let repair = "lspci -d 10de: shows whether the machine has one";
        return Err(Finding::fail("the driver shows no GPU", repair));
    }
    Ok(lost)
}

pub fn missing(host: &Host) -> Found {
    let gpus = &host.seen()?.inventory.snapshot.gpus;
    let missing = known_gpus::missing(host.config()?, gpus)?.into_iter();
    let repair = "dmesg and lspci -d 10de: show whether it failed; a GPU that was removed is forgotten at the next boot";
    let missing = missing.map(|gpu| format!("the driver no longer shows {}", printable(&gpu)));
    Ok(missing.map(|text| Finding::warn(text, repair)).collect())
}

pub fn devices(host: &Host) -> Found {
    let driver = &host.config()?.driver;
    let root = &driver.root;
    let mut loaders =
        uvm::loaders(driver.nvidia_modprobe.as_deref(), root, &driver.host_root).into_iter();
    if Nodes::lacks_uvm(root)
        && let Some(loader) = loaders.find(uvm::Loader::makes_nodes)
    {
        loader.check()?;
        let text = "the module nvidia-uvm is not loaded; the first create of a slice, share or GPU loads it";
        return Err(Finding::warn(text, loader.command()));
    }
    let nodes = Nodes::read(root)?;
    let mut wanted = Vec::from(nodes.required_nodes());
    if let Ok(seen) = &host.seen {
        let gpus = seen.inventory.snapshot.gpus.iter();
        wanted.extend(gpus.map(|gpu| nodes.gpu_node(gpu.minor)));
    }
    Ok(unusable(root, &wanted))
}

pub fn capabilities(host: &Host) -> Found {
    let gpus = &host.seen()?.inventory.snapshot.gpus;
    if gpus.iter().all(|gpu| gpu.mig != MigMode::Enabled) {
        return Err(Finding::skip("no GPU is in MIG mode"));
    }
    let root = &host.config()?.driver.root;
    let why = "the numbers of nodes are unknown, see nodes.devices";
    let nodes = Nodes::read(root).map_err(|_| Finding::skip(why))?;
    for gpu in gpus.iter().filter(|gpu| gpu.mig == MigMode::Enabled) {
        nodes.check_table(gpu.minor)?;
    }
    let both = [nodes.mig_node("config")?, nodes.mig_node("monitor")?];
    Ok(unusable(root, &both))
}

/// Returns what keeps nodes from being opened.
pub fn unusable(root: &Path, nodes: &[DeviceNode]) -> Vec<Finding> {
    let failed = nodes.iter().filter_map(|node| open(root, node).err());
    failed.collect()
}

fn open(root: &Path, node: &DeviceNode) -> Result<(), Finding> {
    let path = paths::inside(root, &node.path);
    let (shown, wanted) = (path.display(), format!("{}:{}", node.major, node.minor));
    let meta = fs::metadata(&path)
        .map_err(|e| Finding::fail(format!("cannot find {shown}: {e}"), MAKE))?;
    let again = format!("rm {shown} && {MAKE}");
    if !meta.file_type().is_char_device() {
        return Err(Finding::fail(format!("{shown} is not a device"), again));
    }
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    if (major, minor) != (node.major, node.minor) {
        let text = format!("{shown} has the number {major}:{minor}, and the driver {wanted}");
        return Err(Finding::fail(text, again));
    }
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let e = match options.read(true).open(&path) {
        Err(e) if !is_simulated(root, &e) => e,
        _ => return Ok(()),
    };
    let repair = match e.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM) => {
            "run migctl doctor outside of a container: a device rule of its cgroup forbids the node"
        }
        Some(Errno::EACCES) if is_nodev(&path) => "mount its file system without the option nodev",
        Some(Errno::EACCES) => "sudo migctl doctor",
        Some(Errno::ENXIO | Errno::ENODEV) => {
            "modprobe nvidia nvidia-uvm, then nvidia-modprobe -u -c 0"
        }
        _ => "dmesg shows what the driver says",
    };
    let text = format!("cannot open {shown} ({wanted}): {e}");
    Err(Finding::fail(text, repair))
}

fn is_nodev(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.flags().contains(FsFlags::ST_NODEV))
}

/// No driver owns the majors of a simulated machine, whose files are below another root.
fn is_simulated(root: &Path, e: &io::Error) -> bool {
    root != Path::new("/") && e.raw_os_error() == Some(Errno::ENXIO as i32)
}

pub fn mode(host: &Host) -> Found {
    let gpus = host.seen()?.inventory.snapshot.gpus.iter();
    let pending = gpus.filter(|gpu| gpu.mig_pending.is_some()).map(|gpu| {
        let (index, name) = (gpu.index, &gpu.name);
        let text = format!("the MIG mode of GPU {index} ({name}) changes at its next reset");
        Finding::warn(text, format!("nvidia-smi --gpu-reset -i {index}"))
    });
    Ok(pending.collect())
}

/// Instances that an administrator or another tool made, some without a compute instance.
pub fn foreign(host: &Host) -> Found {
    let inventory = recorded(host)?;
    let mut found = Vec::new();
    for gpu in &inventory.snapshot.gpus {
        let is_foreign = |at| inventory.at(gpu, at).is_empty();
        let foreign = { gpu.instances.iter() }.filter(|i| is_foreign(i.placement));
        found.extend(foreign.map(|i| {
            let (id, at, index) = (i.id, i.placement, gpu.index);
            Finding::warn(
                format!("runmig did not make GPU instance {id} at {at} on GPU {index}, and leaves its place alone"),
                format!("nvidia-smi mig -i {index} -gi {id} -dci; nvidia-smi mig -i {index} -gi {id} -dgi, or set adopt = true"),
            )
        }));
    }
    Ok(found)
}

/// Returns what the ledger has. Without it nobody knows which instance is whose.
fn recorded(host: &Host) -> Result<&Inventory, Finding> {
    let inventory = &host.seen()?.inventory;
    match inventory.unread {
        None => Ok(inventory),
        Some(_) => Err(Finding::skip(
            "the ledger cannot be read, see state.records",
        )),
    }
}

pub fn records(host: &Host) -> Found {
    let inventory = recorded(host)?;
    let lost = { inventory.leases.iter() }.filter(|held| is_lost(inventory, held));
    let mut found: Vec<Finding> = lost.map(lost_slice).collect();
    found.extend(inventory.instances().filter_map(quarantined));
    Ok(found)
}

fn is_lost(inventory: &Inventory, held: &Held) -> bool {
    let Some(slice) = held.instance.slice() else {
        return false;
    };
    let is_there = |gpu: &Gpu| gpu.instances.iter().any(|i| i.placement == slice.placement);
    let gpu = inventory.snapshot.gpu(&slice.gpu_uuid);
    held.instance.state == InstanceState::Ready && gpu.is_some_and(|gpu| !is_there(gpu))
}

fn lost_slice(held: &Held) -> Finding {
    let (slice, holder) = (&held.instance.resource, held.lease.holder.title());
    let text = format!("the driver does not have {slice}, which is on record for {holder}");
    let lease = held.lease.id.as_str();
    let repair = format!("end its container, then migctl release {lease}");
    Finding::fail(text, repair)
}

fn quarantined(instance: &Instance) -> Option<Finding> {
    let InstanceState::Quarantined(attempt) = &instance.state else {
        return None;
    };
    let (slice, why) = (&instance.resource, &attempt.error);
    Some(Finding::fail(
        format!("the driver did not destroy {slice}: {why}"),
        "migctl list names the processes that hold it; end them, then migctl gc",
    ))
}

pub fn levels(host: &Host) -> Found {
    let config = host.config()?;
    let levels = runmig_lease::levels(config);
    if levels.iter().any(|(_, obstacle)| obstacle.is_none()) {
        let mps = levels.into_iter().find(|(level, _)| *level == Level::Mps);
        let why = mps.and_then(|(_, why)| why);
        let why = why.filter(|_| config.sharing.mps_control.is_some());
        let text = why.map(|why| format!("no share gets the level mps: {why}"));
        let warn = |text| Finding::warn(text, "correct sharing.mps_control");
        return Ok(text.map(warn).into_iter().collect());
    }
    let why = levels.into_iter();
    let why = why.map(|(level, why)| format!("{level}: {}", why.unwrap_or_default()));
    let why = why.collect::<Vec<_>>().join("; ");
    Err(Finding::warn(
        format!("this machine refuses every share, since it has no permitted level ({why})"),
        "fix one of these causes (mps needs nvidia-cuda-mps-control), or permit another level with sharing.enforcement",
    ))
}
