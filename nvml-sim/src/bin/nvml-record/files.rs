//! The driver's files and nodes. Majors differ from boot to boot, so they are not recorded.

use crate::row;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub fn record(root: &Path, gpus: u32) {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let devices = read("proc/devices").unwrap_or_default();
    let characters = devices.split("Block devices").next().unwrap_or_default();
    let name = |line: &'_ str| Some(line.trim().split_once(' ')?.1.trim().to_owned());
    let mut names: Vec<String> = characters.lines().filter_map(name).collect();
    names.retain(|name| name.starts_with("nvidia"));
    names.sort_unstable();
    row("/proc/devices", names.join(" "));

    let caps = "proc/driver/nvidia/capabilities";
    for file in ["mig/config", "mig/monitor", "fabric-imex-mgmt"] {
        let path = format!("{caps}/{file}");
        let answer = read(&path).map_or_else(|| "absent".to_owned(), |text| fields(&text));
        row(&format!("/{path}"), answer);
    }
    for gpu in 0..gpus {
        let path = format!("{caps}/gpu{gpu}");
        row(&format!("/{path}"), mode(root, &path, |_| "there".into()));
    }
    let minors = read("proc/driver/nvidia-caps/mig-minors").unwrap_or_default();
    let (first, last) = (minors.lines().next(), minors.lines().last());
    let [first, last] = [first, last].map(|line| line.unwrap_or("none"));
    let shown = format!("{} lines, {first} … {last}", minors.lines().count());
    row("/proc/driver/nvidia-caps/mig-minors", shown);
    let params = read("proc/driver/nvidia/params").unwrap_or_default();
    for name in ["ModifyDeviceFiles", "DeviceFileMode"] {
        let mut pairs = params.lines().filter_map(|line| line.split_once(": "));
        let value = pairs.find(|(key, _)| *key == name);
        let value = value.map_or("absent", |(_, value)| value);
        row(&format!("/proc/driver/nvidia/params {name}"), value);
    }
    for node in ["ctl", "-uvm", "-uvm-tools", "-modeset"] {
        let path = format!("dev/nvidia{node}");
        row(&format!("/{path}"), mode(root, &path, octal));
    }
    let entries = fs::read_dir(root.join("dev/nvidia-caps"));
    let shown = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mode = mode(root, &format!("dev/nvidia-caps/{name}"), octal);
        format!("{name} {mode}")
    };
    let mut caps: Vec<String> = entries.into_iter().flatten().flatten().map(shown).collect();
    caps.sort();
    row("/dev/nvidia-caps", caps.join(", "));
    let drm = mode(root, "sys/class/drm", |_| "there".into());
    row("/sys/class/drm", drm);
}

/// The minor and the mode that a capability's file tells, in one line.
fn fields(text: &str) -> String {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let fields: Vec<String> = fields
        .filter_map(|(key, value)| match key {
            "DeviceFileMinor" => Some(format!("minor {}", value.trim())),
            "DeviceFileMode" => Some(format!("mode {}", value.trim())),
            _ => None,
        })
        .collect();
    fields.join(" ")
}

fn octal(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

fn mode(root: &Path, path: &str, shown: impl Fn(u32) -> String) -> String {
    match fs::metadata(root.join(path)) {
        Ok(meta) => shown(meta.permissions().mode()),
        Err(_) => "absent".to_owned(),
    }
}
