//! Other programs that make or hold MIG instances.

use super::finding::Finding;
use super::processes;

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
        program: "dcgm-exporter",
        why: "it lists instances at its start alone, so later slices have no DCGM series",
        repair: "kill -HUP its process after slices have changed",
    },
];

pub fn findings() -> Vec<Finding> {
    let running = processes::commands();
    let found = OTHERS.iter().filter_map(|other| {
        let short = &other.program[..other.program.len().min(COMM)];
        let (pid, _) = running.iter().find(|(_, command)| command == short)?;
        let text = format!("{} runs (process {pid}): {}", other.program, other.why);
        Some(Finding::warn("other-programs", text, other.repair))
    });
    let found: Vec<Finding> = found.collect();
    match found.is_empty() {
        true => vec![Finding::ok(
            "other-programs",
            "no other program that makes or holds MIG instances runs",
        )],
        false => found,
    }
}
