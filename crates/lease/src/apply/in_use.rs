//! The processes that are in the way of a plan, and what keeps GPUs from a reset: programs that hold them for their whole life,
//! and the modules of a display.

use super::occupants::Present;
use super::plan::GpuPlan;
use crate::error::{Result, printable};
use crate::gpu::device_nodes::Nodes;
use crate::gpu::{DetailedGpu, Queries};
use crate::leases::Leases;
use crate::model::{Gpu, GpuUuid};
use crate::process::{self, Holders};
use crate::{files, reclaim};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The id under which [`InUse`] has the processes of a whole GPU.
pub(super) const WHOLE: u32 = u32::MAX;

/// The processes on instances that a plan destroys and on GPUs that it switches to MIG, as far as they were looked at: by GPU
/// and the driver's id.
#[derive(Default)]
pub(super) struct InUse(BTreeMap<(GpuUuid, u32), Vec<String>>);

impl InUse {
    pub(super) fn of(&self, gpu: &GpuUuid, id: u32) -> &[String] {
        let known = self.0.get(&(gpu.clone(), id));
        known.map_or(&[], |processes| processes.as_slice())
    }

    /// Looks at the instances that plans destroy and that were not looked at before, and at the GPUs that they switch to MIG.
    /// Returns whether a process holds one, so that other plans may be better.
    pub(super) fn look_at(
        &mut self,
        context: &Leases<'_>,
        driver: &impl Queries,
        gpus: &[GpuPlan],
    ) -> Result<bool> {
        let mut found = false;
        for (gpu, present, id) in ending(gpus) {
            let key = (gpu.uuid().clone(), id);
            if self.0.contains_key(&key) || present.is_some_and(|one| !one.holders.is_empty()) {
                continue;
            }
            let holders = match present {
                Some(present) => holders(context, driver, &gpu.state.gpu, present, id)?,
                None => processes(driver, gpu.uuid())?,
            };
            found |= !holders.is_empty();
            self.0.insert(key, holders);
        }
        Ok(found)
    }

    /// Returns whether all these instances and GPUs were looked at.
    pub(super) fn knows(&self, gpus: &[GpuPlan]) -> bool {
        ending(gpus).all(|(gpu, _, id)| self.0.contains_key(&(gpu.uuid().clone(), id)))
    }
}

/// Returns the instances that plans destroy, each with its id, and the GPUs that they switch to MIG.
fn ending(gpus: &[GpuPlan]) -> impl Iterator<Item = (&GpuPlan, Option<&Present>, u32)> {
    gpus.iter().flat_map(|gpu| {
        let doomed = gpu.doomed();
        let doomed = doomed.filter_map(move |present| Some((gpu, Some(present), present.id?)));
        let whole = (gpu.mode == Some(true)).then_some((gpu, None, WHOLE));
        doomed.chain(whole)
    })
}

/// Returns the processes on a GPU outside of MIG mode.
fn processes(driver: &impl Queries, gpu: &GpuUuid) -> Result<Vec<String>> {
    let load = driver.load(gpu)?;
    let all = load.processes.iter().chain(&load.graphics);
    let pids: BTreeSet<u32> = all.map(|process| process.pid).collect();
    Ok(pids.iter().map(|pid| format!("process {pid}")).collect())
}

/// Returns the processes on an instance. One that cannot be seen counts.
fn holders(
    context: &Leases<'_>,
    driver: &impl Queries,
    gpu: &DetailedGpu,
    present: &Present,
    id: u32,
) -> Result<Vec<String>> {
    let Some(slice) = present.slice(gpu) else {
        return Ok(Vec::new());
    };
    let Holders { seen, unseen } = reclaim::holders(context, Some(&slice));
    let named = |(pid, name): (i32, String)| format!("process {pid} {}", printable(&name));
    let mut all: Vec<String> = seen.into_iter().map(named).collect();
    for ci in &present.compute {
        for pid in driver.processes(&gpu.gpu.uuid, id, ci.id)? {
            let begin = format!("process {pid}");
            let is_it = |known: &String| known.split(' ').take(2).eq(begin.split(' '));
            if !all.iter().any(is_it) {
                all.push(begin);
            }
        }
    }
    let doubt = unseen.map(|why| format!("a process that runmig cannot see ({why})"));
    all.extend(doubt);
    Ok(all)
}

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
