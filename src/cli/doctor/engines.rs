//! The engines that call runmig, the driver's files for their containers, and other programs at the same GPUs.

use super::host::Host;
use crate::cli::command;
use crate::cli::configure::{self, Engine};
use runmig_lease::cdi::Node;
use runmig_lease::config::{Config, DriverFiles};
use runmig_lease::driver_files::{self, is_nvidia};
use runmig_lease::finding::{Finding, Found};
use runmig_lease::paths;
use runmig_lease::process;
use runmig_lease::programs::{HOOK, podman_version};
use runmig_lease::trust;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub fn registered(host: &Host) -> Found {
    let root = Path::new("/");
    let (mut found, mut unknown, mut has_devices) = (Vec::new(), Vec::new(), false);
    let all = [Engine::Cdi].into_iter().chain(Engine::all());
    for engine in all.filter(|engine| configure::is_there(*engine, root)) {
        let (name, is_cdi) = (engine.name(), engine == Engine::Cdi);
        let its = match configure::registration(engine, &host.folder, root) {
            Ok(Some(its)) => its,
            Ok(None) => {
                unknown.extend((!is_cdi).then_some(name));
                continue;
            }
            Err(e) => {
                found.push(Finding::warned(e));
                continue;
            }
        };
        let (version, files) = (&its.engine, its.files());
        if its.has_changes() {
            let files = paths::shown(&files, ", ");
            let text =
                format!("the registration with {version} is not that of this runmig: {files}");
            let default = its.is_default.then_some(" --set-as-default");
            let repair = format!("migctl configure {name}{}", default.unwrap_or_default());
            found.push(Finding::warn(text, repair));
            continue;
        }
        has_devices |= is_cdi;
        if its.loses_devices() && has_devices {
            let (of, repair) = match engine {
                Engine::Podman => ("kube play of ", "ask by annotation there, or update podman"),
                _ => (
                    "",
                    "set enable_cdi = true in containerd 1.7 or later, or ask by annotation there",
                ),
            };
            let text = format!(
                "{of}{version} starts a container without the CDI devices that it names, and says nothing"
            );
            found.push(Finding::warn(text, repair));
        }
        if let (Some(restart), Some(file)) = (its.restart, newer(engine, &files)) {
            let text = format!("{version} has run since before {} changed", file.display());
            found.push(Finding::warn(text, restart));
        }
    }
    if found.is_empty() && !unknown.is_empty() {
        let engines = unknown.join(", ");
        return Ok(vec![Finding::ok(format!(
            "no engine calls another runmig; migctl configure registers it with {engines}"
        ))]);
    }
    Ok(found)
}

pub fn programs(_: &Host) -> Found {
    let wrong = |(file, program): &(PathBuf, PathBuf)| {
        let configuration = configure::configuration(program);
        let read = configuration.map(|file| Config::read(&file)).transpose();
        let e = trust::program(program).and(read).err()?;
        let (file, program) = (file.display(), program.display());
        let text = format!("{file} calls {program}: {}", e.reason());
        Some(Finding::fail(
            text,
            "migctl configure ENGINE --name NAME, for the handler of this file, or take it out of the file",
        ))
    };
    Ok(configure::programs()?.iter().filter_map(wrong).collect())
}

pub fn default(_: &Host) -> Found {
    let asks = |engine: Engine| {
        let file = configure::default_configuration(engine, Path::new("/"))?;
        Config::read(&file).ok()?.request?;
        let (name, file) = (engine.name(), file.display());
        Some(Finding::fail(
            format!("{name} gives each container that names no runtime the request of {file}"),
            format!(
                "remove the line or the flag of {name} that makes it the default, or [request]"
            ),
        ))
    };
    Ok(Engine::all().filter_map(asks).collect())
}

/// Returns a file that changed after the engine's process began.
fn newer(engine: Engine, files: &[PathBuf]) -> Option<PathBuf> {
    let (pid, _) = server(engine)?;
    let began = SystemTime::now().checked_sub(process::age(pid)?)?;
    let is_newer = |file: &&PathBuf| {
        let changed = file.metadata().and_then(|meta| meta.modified());
        changed.is_ok_and(|changed| changed > began)
    };
    files.iter().find(is_newer).cloned()
}

/// Returns the process of an engine's server.
fn server(engine: Engine) -> Option<(i32, &'static str)> {
    let name = engine.process()?;
    let pid = *process::called(name).first()?;
    Some((pid, name))
}

/// Looks through the mounts of each engine that calls runmig. It may be in a container, or its unit may hide folders.
pub fn hook(host: &Host) -> Found {
    let hook = host.folder.join(HOOK);
    let misses = |engine: Engine| {
        let (pid, name) = server(engine)?;
        configure::registration(engine, &host.folder, Path::new("/")).ok()??;
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        if let Err(e) = root.read_dir() {
            let text = format!("cannot read the mounts of {name} (process {pid}): {e}");
            return Some(Finding::skip(text));
        }
        if paths::inside(&root, &hook).is_file() {
            return None;
        }
        let hook = hook.display();
        let text = format!("{name} (process {pid}) has mounts of its own, without {hook}");
        let repair = format!("let its unit or container show the folder: systemctl cat {name}");
        Some(Finding::fail(text, repair))
    };
    Ok(Engine::all().filter_map(misses).collect())
}

/// podman's versions with CVE-2026-94603.
const RESTORES: [[(u32, u32, u32); 2]; 2] = [[(4, 4, 0), (5, 8, 7)], [(6, 0, 0), (6, 1, 2)]];

pub fn podman(_: &Host) -> Found {
    let Some(podman) = configure::search("podman") else {
        return Ok(Vec::new());
    };
    let said = command::output(&podman, &["--version"], &[]).map_err(Finding::warned)?;
    let Some(version) = podman_version(&said) else {
        let text = format!("cannot tell podman's version: {said}");
        return Err(Finding::skip(text));
    };
    let mut ranges = RESTORES.iter();
    if !ranges.any(|[first, last]| (first..=last).contains(&&version)) {
        return Ok(Vec::new());
    }
    let text = format!(
        "{said} restores a checkpoint image with the image's own settings (CVE-2026-94603); runmig refuses only those that ask for a GPU"
    );
    let repair = "update podman to 5.8.8, 6.1.3 or later, and run no checkpoint images of others";
    Err(Finding::warn(text, repair))
}

/// Looks for the driver's files as a create does.
pub fn driver_files(host: &Host) -> Found {
    let config = host.config()?;
    if matches!(
        config.driver_files,
        DriverFiles::None | DriverFiles::NvidiaRuntime
    ) {
        let text =
            "driver_files leaves the driver's files to the images or to nvidia-container-runtime";
        return Ok(vec![Finding::ok(text)]);
    }
    let below = config.runtime.as_ref().map(|path| paths::resolve(path));
    let others_bring = below.as_deref().is_some_and(is_nvidia);
    let source = driver_files::find(config, others_bring, Node::HERE)?;
    Ok(source.warnings.into_iter().map(Finding::warned).collect())
}

/// For each program its name, how it conflicts with runmig, and the repair.
const OTHERS: [[&str; 3]; 7] = [
    [
        "nvidia-mig-manager",
        "it clears whole GPUs to apply a layout",
        "systemctl disable --now nvidia-mig-manager, or remove it from the GPU Operator: migManager.enabled=false",
    ],
    [
        "nvidia-mig-parted",
        "it clears whole GPUs to apply a layout",
        "let it end, and do not call it on GPUs that runmig uses",
    ],
    [
        "nvidia-device-plugin",
        "it gives out instances of the same GPUs",
        "take this node out of its DaemonSet, or set exclude_gpus for its GPUs",
    ],
    [
        "gpu-kubelet-plugin",
        "NVIDIA's DRA driver gives out the same GPUs, and with DynamicMIG destroys instances that it did not make",
        "take this node out of its DaemonSet",
    ],
    [
        "instaslice-daemonset",
        "InstaSlice makes instances on the same GPUs",
        "see docs/instaslice.md",
    ],
    [
        "vgpu-device-plugin",
        "HAMi gives out the same GPUs",
        "take this node out of its DaemonSet",
    ],
    [
        "nv-hostengine",
        "DCGM can hold an instance open, so a destroy answers in use until DCGM restarts",
        "restart it if migctl list shows a quarantined slice: systemctl restart nvidia-dcgm",
    ],
];

pub fn conflicts(_: &Host) -> Found {
    /// The longest command name that the kernel keeps.
    const COMM: usize = 15;
    const UNIT: &str = "nvidia-mig-manager.service";
    let running = process::commands();
    let mut found = Vec::new();
    for [program, why, repair] in OTHERS {
        let short = &program[..program.len().min(COMM)];
        if let Some((pid, _)) = running.iter().find(|(_, command)| command == short) {
            let text = format!("{program} runs (process {pid}): {why}");
            found.push(Finding::warn(text, repair));
        }
    }
    // The folders of the units that systemd starts at the boot.
    let wants = paths::entries(Path::new("/etc/systemd/system"));
    let mut links = wants.map(|folder| folder.join(UNIT));
    if let Some(link) = links.find(|link| link.symlink_metadata().is_ok()) {
        let link = link.display();
        let does = "clears whole GPUs at the boot to apply a layout";
        let text = format!("{UNIT} is enabled ({link}), and {does}");
        found.push(Finding::warn(text, format!("systemctl disable {UNIT}")));
    }
    Ok(found)
}
