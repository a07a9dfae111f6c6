//! Names what keeps GPUs from a reset: programs that hold them for their whole life, and the modules of a display.

use crate::error::printable;
use crate::files;
use crate::gpu::device_nodes::Nodes;
use crate::model::Gpu;
use crate::process;
use std::path::Path;

/// The most of the list of modules that runmig reads, in bytes.
const MODULES: u64 = 1 << 20;

/// Returns the advice that precedes another reset, such as `end process 7 Xorg (a display), then `. Empty if nothing is found.
pub(super) fn advice<'a>(root: &Path, gpus: impl Iterator<Item = &'a Gpu>) -> String {
    let numbers = Nodes::read(root).map(|nodes| {
        let nodes = gpus.map(|gpu| nodes.gpu_node(gpu.minor));
        nodes.map(|node| (node.major, node.minor)).collect()
    });
    let holders = process::holders_of(&[], &numbers.unwrap_or_else(|_| Vec::new()));
    let modules = files::read_text(&root.join("proc/modules"), MODULES).unwrap_or_default();
    let mut all: Vec<String> = holders
        .seen
        .iter()
        .map(|(pid, name)| named(*pid, name))
        .collect();
    all.extend(display(&modules));
    match all.as_slice() {
        [] => String::new(),
        all => format!("end {}, then ", all.join(" and ")),
    }
}

/// Names a process with what it is for. The kernel cuts names after 15 characters.
fn named(pid: i32, name: &str) -> String {
    let process = format!("process {pid} {}", printable(name));
    match name {
        "nvidia-persiste" => format!("{process} (systemctl stop nvidia-persistenced)"),
        "nv-hostengine" | "dcgm" | "dcgm-exporter" => format!("{process} (DCGM)"),
        "Xorg" | "Xwayland" | "gnome-shell" | "kwin_wayland" => format!("{process} (a display)"),
        _ => process,
    }
}

/// Returns the module of displays if something uses it: `name size uses …`.
fn display(modules: &str) -> Option<String> {
    let is_used = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some("nvidia_drm") && words.nth(1).is_some_and(|uses| uses != "0")
    };
    let found = modules.lines().any(is_used);
    found.then(|| "what displays by the module nvidia_drm".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_a_process_is_for() {
        assert_eq!(
            named(7, "nvidia-persiste"),
            "process 7 nvidia-persiste (systemctl stop nvidia-persistenced)"
        );
        assert_eq!(named(8, "nv-hostengine"), "process 8 nv-hostengine (DCGM)");
        assert_eq!(named(9, "Xorg"), "process 9 Xorg (a display)");
        assert_eq!(named(10, "python3"), "process 10 python3");
    }

    #[test]
    fn finds_display_in_use() {
        let modules =
            |uses| format!("nvidia_uvm 1 2 - Live 0x0\nnvidia_drm 131072 {uses} - Live 0x0\n");
        assert!(display(&modules("3")).is_some());
        assert_eq!(display(&modules("0")), None);
        assert_eq!(
            display("nvidia 9 40 nvidia_drm,nvidia_uvm, Live 0x0\n"),
            None
        );
    }
}
