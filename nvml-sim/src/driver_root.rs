//! The files that the kernel module and nvidia-modprobe would show under `/proc` and `/dev`.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::engine::{Machine, Mode, Target};
use crate::sys;

const NVIDIA_MAJOR: u32 = 195;
/// The video BIOS of every GPU.
pub const VIDEO_BIOS: &str = "92.00.45.00.03";
/// The minors of the capabilities that belong to no instance.
const CONFIG: u32 = 1;
const MONITOR: u32 = 2;
/// The first minor after those of MIG.
const FABRIC_IMEX_MGMT: u32 = 4323;
const MAX_GPUS: u32 = 32;
const MAX_GPU_INSTANCES: u32 = 15;
const MAX_COMPUTE_INSTANCES: u32 = 8;
const MINORS_PER_GPU: u32 = MAX_GPU_INSTANCES * (MAX_COMPUTE_INSTANCES + 1);
/// Read by all (0444), read by root alone (0400).
const READ_ALL: u32 = 0o444;
const READ_ROOT: u32 = 0o400;

/// The minor of an instance's capability.
pub fn capability_minor(gpu_minor: u32, gi: u32, ci: Option<u32>) -> u32 {
    let first = MONITOR + 1 + MINORS_PER_GPU * gpu_minor + (MAX_COMPUTE_INSTANCES + 1) * gi;
    first + ci.map_or(0, |ci| ci + 1)
}

/// The file by which a process gets at a GPU or an instance, and which it keeps open meanwhile.
pub fn access_path(dir: &Path, machine: &Machine, target: Target) -> Option<PathBuf> {
    let gpu = machine.gpus.get(target.gpu as usize)?;
    Some(match target.gi {
        None => information_path(dir, &gpu.pci_address()),
        Some(gi) => {
            let mut path = mig_dir(dir, gpu.minor).join(format!("gi{gi}"));
            if let Some(ci) = target.ci {
                path.push(format!("ci{ci}"));
            }
            path.join("access")
        }
    })
}

fn information_path(dir: &Path, pci: &str) -> PathBuf {
    dir.join(format!("proc/driver/nvidia/gpus/{pci}/information"))
}

fn mig_dir(dir: &Path, gpu_minor: u32) -> PathBuf {
    let path = format!("proc/driver/nvidia/capabilities/gpu{gpu_minor}/mig");
    dir.join(path)
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn node(path: &Path, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    match sys::make_character_node(path, mode, major, minor) {
        // A caller that may not make nodes gets a file in its place.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => File::create(path).map(drop)?,
        other => other?,
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Whether the capability that lets a process look at instances can be had.
pub fn may_monitor(dir: &Path) -> io::Result<()> {
    File::open(dir.join("proc/driver/nvidia/capabilities/mig/monitor")).map(drop)
}

fn access_text(minor: u32, mode: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
}

/// Lays out everything that does not depend on instances, then what does.
pub fn create(dir: &Path, machine: &Machine) -> io::Result<()> {
    let nvidia = dir.join("proc/driver/nvidia");
    let version = &machine.driver.version;
    let banner = format!(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Sep 23 10:11:16 UTC 2025\n\
         GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    );
    write(&nvidia.join("version"), &banner, READ_ALL)?;
    let params = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n";
    write(&nvidia.join("params"), params, READ_ALL)?;
    for gpu in &machine.gpus {
        let text = format!(
            "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {}\nVideo BIOS: \t {VIDEO_BIOS}\n\
             Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n\
             Bus Location: \t {}\nDevice Minor: \t {}\nGPU Firmware: \t {version}\nGPU Excluded:\t No\n",
            gpu.model().product,
            64 + gpu.minor,
            gpu.uuid,
            gpu.pci_address(),
            gpu.minor
        );
        write(&information_path(dir, &gpu.pci_address()), &text, READ_ALL)?;
    }
    for (name, minor, mode) in [
        ("mig/config", CONFIG, READ_ROOT),
        ("mig/monitor", MONITOR, READ_ALL),
        ("fabric-imex-mgmt", FABRIC_IMEX_MGMT, READ_ROOT),
    ] {
        let path = nvidia.join("capabilities").join(name);
        write(&path, &access_text(minor, mode), mode)?;
    }
    let minors = dir.join("proc/driver/nvidia-caps/mig-minors");
    write(&minors, &mig_minors(), READ_ALL)?;
    settle(dir, machine, None)
}

/// nvidia-modprobe of a machine. It knows no other call than `-u -c 0`. Two may run at once.
fn modprobe(uvm: u32) -> String {
    format!(
        r#"#!/bin/sh
# Loads the module nvidia-uvm of this simulated machine, and makes its nodes.
exec 9<"$0" && flock 9 && cd "$(dirname "$0")/../.." || exit 1
grep -q ' nvidia-uvm$' proc/devices || sed -i 's/^{NVIDIA_MAJOR} nvidiactl$/&\n{uvm} nvidia-uvm/' proc/devices || exit 1
for node in nvidia-uvm:0 nvidia-uvm-tools:1; do
    [ -e "dev/${{node%:*}}" ] || mknod -m 666 "dev/${{node%:*}}" c {uvm} "${{node#*:}}" || exit 1
done
"#
    )
}

/// Renews the state that changes with every boot: the kernel's majors, `/dev`, and the boot id. A new machine has the module
/// nvidia-uvm. After a reboot nothing has loaded it yet.
fn boot(dir: &Path, machine: &Machine) -> io::Result<()> {
    let majors @ [uvm, _, _, caps, _] = free_majors(machine.boots);
    let modeset = match machine.modeset {
        true => format!("{NVIDIA_MAJOR} nvidia-modeset\n"),
        false => String::new(),
    };
    let is_loaded = |driver: &str| machine.has_uvm() || driver != "nvidia-uvm";
    let given = majors.iter().zip(DRIVERS);
    let given = given.filter(|(_, driver)| is_loaded(driver));
    let given: String = given
        .map(|(major, driver)| format!("{major} {driver}\n"))
        .collect();
    let devices = format!(
        "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n 10 misc\n136 pts\n\
         {NVIDIA_MAJOR} nvidia\n{modeset}{NVIDIA_MAJOR} nvidiactl\n{given}\n\
         Block devices:\n  7 loop\n259 blkext\n"
    );
    write(&dir.join("proc/devices"), &devices, 0o644)?;

    let dev = dir.join("dev");
    if dev.exists() {
        fs::remove_dir_all(&dev)?;
    }
    fs::create_dir_all(dev.join("nvidia-caps"))?;
    let open = |name: &str, major, minor| node(&dev.join(name), 0o666, major, minor);
    open("nvidiactl", NVIDIA_MAJOR, 255)?;
    if machine.modeset {
        open("nvidia-modeset", NVIDIA_MAJOR, 254)?;
    }
    if machine.has_uvm() {
        open("nvidia-uvm", uvm, 0)?;
        open("nvidia-uvm-tools", uvm, 1)?;
    }
    write(&dir.join("usr/bin/nvidia-modprobe"), &modprobe(uvm), 0o755)?;
    for gpu in &machine.gpus {
        open(&format!("nvidia{}", gpu.minor), NVIDIA_MAJOR, gpu.minor)?;
    }
    for (minor, mode) in [(CONFIG, READ_ROOT), (MONITOR, READ_ALL)] {
        let path = dev.join(format!("nvidia-caps/nvidia-cap{minor}"));
        node(&path, mode, caps, minor)?;
    }
    // Last: it says that the boot is done.
    let boot_id = format!("{}\n", machine.boot_id());
    write(&boot_id_path(dir), &boot_id, READ_ALL)
}

fn boot_id_path(dir: &Path) -> PathBuf {
    dir.join("proc/sys/kernel/random/boot_id")
}

/// The drivers whose majors the kernel gives out, in the order of the majors.
const DRIVERS: [&str; 5] = [
    "nvidia-uvm",
    "nvidia-nvswitch",
    "nvidia-nvlink",
    "nvidia-caps",
    "nvidia-caps-imex-channels",
];

/// Chooses a major for each of [`DRIVERS`], other ones with each boot, of those that the kernel
/// gives out itself and has given to no driver of the host: a node of ours must not lead to one.
fn free_majors(boots: u64) -> [u32; DRIVERS.len()] {
    let host = fs::read_to_string("/proc/devices").unwrap_or_default();
    let major = |line: &str| line.split_whitespace().next()?.parse().ok();
    let used: BTreeSet<u32> = host.lines().filter_map(major).collect();
    let free: Vec<u32> = (384..512).rev().filter(|m| !used.contains(m)).collect();
    let first = boots as usize * DRIVERS.len();
    let mut majors = std::array::from_fn(|offset| free[(first + offset) % free.len()]);
    majors.sort_unstable();
    majors
}

/// The table of all minors there could be; it never changes.
fn mig_minors() -> String {
    let mut text = format!("config {CONFIG}\nmonitor {MONITOR}\n");
    for gpu in 0..MAX_GPUS {
        for gi in 0..MAX_GPU_INSTANCES {
            let minor = capability_minor(gpu, gi, None);
            text += &format!("gpu{gpu}/gi{gi}/access {minor}\n");
            for ci in 0..MAX_COMPUTE_INSTANCES {
                let minor = capability_minor(gpu, gi, Some(ci));
                text += &format!("gpu{gpu}/gi{gi}/ci{ci}/access {minor}\n");
            }
        }
    }
    text
}

/// The major of a driver, as the machine's `/proc/devices` has it: tests may edit that.
fn major(dir: &Path, driver: &str) -> io::Result<u32> {
    let text = fs::read_to_string(dir.join("proc/devices"))?;
    let mut lines = text.lines().filter_map(|l| l.trim().split_once(' '));
    let found = lines.find(|(_, name)| *name == driver);
    let major = found.and_then(|(major, _)| major.parse().ok());
    let missing = || format!("no {driver} in {}/proc/devices", dir.display());
    major.ok_or_else(|| io::Error::other(missing()))
}

/// Makes the capability files and nodes of one GPU those of its instances; without one those of
/// all, after the boot that has not been shown yet. A file whose instance stays is not touched:
/// somebody may hold it.
pub fn settle(dir: &Path, machine: &Machine, gpu: Option<u32>) -> io::Result<()> {
    if gpu.is_none() {
        let booted = fs::read_to_string(boot_id_path(dir)).unwrap_or_default();
        if booted.trim_end() != machine.boot_id() {
            boot(dir, machine)?;
        }
    }
    let one = |index: u32| gpu.is_none_or(|wanted| wanted == index);
    for (index, gpu) in (0..).zip(&machine.gpus).filter(|(i, _)| one(*i)) {
        let mut files = BTreeSet::new();
        let mut minors = BTreeSet::new();
        let mut want = |gi, ci| {
            let target = Target::new(index, Some(gi), ci);
            let minor = capability_minor(gpu.minor, gi, ci);
            files.extend(access_path(dir, machine, target).map(|path| (path, minor)));
            minors.insert(minor);
        };
        for gi in &gpu.gpu_instances {
            want(gi.id, None);
            for ci in &gi.compute_instances {
                want(gi.id, Some(ci.id));
            }
        }
        settle_files(&mig_dir(dir, gpu.minor), gpu.mode, &files)?;
        settle_nodes(dir, gpu.minor, &minors)?;
    }
    Ok(())
}

fn settle_files(mig: &Path, mode: Mode, files: &BTreeSet<(PathBuf, u32)>) -> io::Result<()> {
    if mode == Mode::Off {
        return match mig.exists() {
            true => fs::remove_dir_all(mig),
            false => Ok(()),
        };
    }
    fs::create_dir_all(mig)?;
    for (path, minor) in files.iter().filter(|(path, _)| !path.exists()) {
        write(path, &access_text(*minor, READ_ALL), READ_ALL)?;
    }
    let is_wanted = |path: &Path| files.iter().any(|(f, _)| *f == path.join("access"));
    remove_directories(mig, &is_wanted)
}

/// Removes the directories below one that stand for no instance. A caller may have few descriptors left, so none stays open
/// over another directory.
fn remove_directories(parent: &Path, wanted: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    let below = fs::read_dir(parent)?.map(|entry| Ok(entry?.path()));
    let below: Vec<PathBuf> = below.collect::<io::Result<_>>()?;
    for path in below.iter().filter(|path| path.is_dir()) {
        remove_directories(path, wanted)?;
        if !wanted(path) {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

fn settle_nodes(dir: &Path, gpu_minor: u32, wanted: &BTreeSet<u32>) -> io::Result<()> {
    let caps = dir.join("dev/nvidia-caps");
    let first = capability_minor(gpu_minor, 0, None);
    let mut there = BTreeSet::new();
    for entry in fs::read_dir(&caps)? {
        let name = entry?.file_name();
        let name = name.to_str().and_then(|n| n.strip_prefix("nvidia-cap"));
        let minor = name.and_then(|minor| minor.parse().ok());
        there.extend(minor.filter(|m| (first..first + MINORS_PER_GPU).contains(m)));
    }
    let path = |minor: &u32| caps.join(format!("nvidia-cap{minor}"));
    for minor in wanted.difference(&there) {
        node(&path(minor), READ_ALL, major(dir, "nvidia-caps")?, *minor)?;
    }
    for minor in there.difference(wanted) {
        fs::remove_file(path(minor))?;
    }
    Ok(())
}
