//! Other programs that make or hold MIG instances.

use super::check::Check;
use super::command::{self, Surroundings};
use super::finding::Finding;
use crate::cli::configure;
use crate::cli::processes;
use runmig_lease::trust;

pub const CHECKS: &[Check] = &[
    Check::new(
        "conflicts.other-programs",
        "no other program makes or holds MIG instances",
        "stop the program, or keep it off the GPUs of runmig",
    ),
    Check::new(
        "conflicts.units",
        "no other unit applies a layout of MIG instances at the boot",
        "systemctl disable nvidia-mig-manager",
    ),
];

const EXPORTER: &str = "dcgm-exporter";

/// The longest command name that the kernel keeps.
const COMM: usize = 15;

/// A program with the reason for which it conflicts, and the repair.
struct Other {
    program: &'static str,
    why: &'static str,
    repair: &'static str,
}

const OTHERS: [Other; 8] = [
    Other {
        program: "nvidia-mig-manager",
        why: "it clears whole GPUs to apply a layout",
        repair: "systemctl disable --now nvidia-mig-manager, or remove it from the GPU Operator: migManager.enabled=false",
    },
    Other {
        program: "nvidia-mig-parted",
        why: "it clears whole GPUs to apply a layout",
        repair: "let it end, and do not call it on GPUs that runmig uses",
    },
    Other {
        program: "nvidia-device-plugin",
        why: "it gives out instances of the same GPUs",
        repair: "take this node out of its DaemonSet, or set exclude_gpus for its GPUs",
    },
    Other {
        program: "gpu-kubelet-plugin",
        why: "NVIDIA's DRA driver gives out the same GPUs, and with DynamicMIG destroys instances that it did not make",
        repair: "take this node out of its DaemonSet",
    },
    Other {
        program: "instaslice-daemonset",
        why: "InstaSlice makes instances on the same GPUs",
        repair: "see docs/instaslice.md",
    },
    Other {
        program: "vgpu-device-plugin",
        why: "HAMi gives out the same GPUs",
        repair: "take this node out of its DaemonSet",
    },
    Other {
        program: "nv-hostengine",
        why: "DCGM can hold an instance open, so a destroy answers in use until DCGM restarts",
        repair: "restart it if migctl list shows a quarantined slice: systemctl restart nvidia-dcgm",
    },
    Other {
        program: EXPORTER,
        why: "it lists instances at its start alone, so later slices have no DCGM series",
        repair: "systemctl enable --now runmig-dcgm.path, or call migctl dcgm reload after slices have changed",
    },
];

/// The unit that applies a layout at each boot, and thereby clears whole GPUs.
const UNIT: &str = "nvidia-mig-manager.service";
/// The folders of the units that systemd starts are below it.
const UNITS: &str = "/etc/systemd/system";

pub fn findings() -> Vec<Finding> {
    let running = processes::commands();
    let found = OTHERS.iter().filter_map(|other| {
        let short = &other.program[..other.program.len().min(COMM)];
        let (pid, _) = running.iter().find(|(_, command)| command == short)?;
        let version = version(other.program).map_or(String::new(), |said| format!(", {said}"));
        let text = format!(
            "{} runs (process {pid}{version}): {}",
            other.program, other.why
        );
        Some(Finding::warn(
            "conflicts.other-programs",
            text,
            other.repair,
        ))
    });
    let mut found: Vec<Finding> = found.collect();
    if found.is_empty() {
        found.push(Finding::ok(
            "conflicts.other-programs",
            "no other program that makes or holds MIG instances runs",
        ));
    }
    found.push(units());
    found
}

/// Returns the version of the exporter, on which its answer to a SIGHUP depends, where the host has its program. The
/// program of a container is none that root may run.
fn version(program: &str) -> Option<String> {
    let found = Some(program).filter(|program| *program == EXPORTER)?;
    let path = configure::search(found)?;
    trust::program(&path).ok()?;
    let said = command::output(&path, &["--version"], &Surroundings::Only(&[])).ok()?;
    Some(said.lines().next()?.to_owned())
}

fn units() -> Finding {
    const ID: &str = "conflicts.units";
    let wants = std::fs::read_dir(UNITS).into_iter().flatten().flatten();
    let mut links = wants.map(|folder| folder.path().join(UNIT));
    match links.find(|link| link.symlink_metadata().is_ok()) {
        Some(link) => Finding::warn(
            ID,
            format!(
                "{UNIT} is enabled ({}), and clears whole GPUs at the boot to apply a layout",
                link.display()
            ),
            format!("systemctl disable {UNIT}"),
        ),
        None => Finding::ok(ID, format!("{UNIT} is not enabled")),
    }
}
