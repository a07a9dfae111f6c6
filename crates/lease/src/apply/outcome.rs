//! What an apply changes, in the words of its callers.

use super::occupants::Present;
use super::plan::GpuPlan;
use crate::error::printable;
use crate::model::{GpuUuid, Placement};
use serde::Serialize;

/// The changes of an apply: those that it made, or those that it would make.
#[derive(Debug)]
pub struct Applied {
    /// The name of the layout.
    pub layout: String,
    /// The GPUs whose MIG mode changes.
    pub modes: Vec<PlannedMode>,
    /// Every instance on the GPUs that the layout names, and the new ones.
    pub instances: Vec<PlannedInstance>,
    /// The leases and processes that have to end first.
    pub obstacles: Vec<String>,
    /// The changes that are made.
    pub made: Made,
}

/// The part of the changes that an apply has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// None.
    Nothing,
    /// Those before the new instances of GPUs whose MIG mode is new.
    Modes,
    /// All.
    All,
}

/// A GPU whose MIG mode changes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMode {
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The UUID of the GPU.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: GpuUuid,
    /// Whether MIG is on after the change.
    pub mig_enabled: bool,
    /// The leases and processes on the GPU as a whole.
    pub holders: Vec<String>,
}

/// An instance that stays, goes or comes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedInstance {
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The UUID of the GPU.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: GpuUuid,
    /// The memory slices.
    pub mig_placement: Placement,
    /// The name of the profile.
    pub profile: String,
    /// The compute slices of each compute instance.
    pub compute_slices: Vec<u32>,
    /// Whether one compute instance fills it.
    #[serde(skip)]
    pub is_whole: bool,
    /// `keep`, `create` or `destroy`.
    pub change: &'static str,
    /// The leases and processes that hold it.
    pub holders: Vec<String>,
}

impl Applied {
    pub(super) fn new(layout: &str, gpus: &[GpuPlan], made: Made) -> Applied {
        let mode = |gpu: &GpuPlan| {
            Some(PlannedMode {
                gpu_index: gpu.index(),
                gpu_uuid: gpu.uuid().clone(),
                mig_enabled: gpu.mode?,
                holders: gpu.busy.clone(),
            })
        };
        Applied {
            layout: layout.to_owned(),
            modes: gpus.iter().filter_map(mode).collect(),
            instances: gpus.iter().flat_map(planned).collect(),
            obstacles: gpus.iter().flat_map(obstacles).collect(),
            made,
        }
    }

    /// Returns the whole of an apply that goes on after new MIG modes: what is in the way now, too.
    pub(super) fn and_then(mut self, rest: Applied) -> Applied {
        self.obstacles.extend(rest.obstacles);
        self.made = match rest.made {
            Made::Nothing => Made::Modes,
            made => made,
        };
        self
    }

    /// Returns the line that names the obstacles, if there are any. It has no limit, since each holder has to be found.
    pub fn refusal(&self) -> Option<String> {
        if self.obstacles.is_empty() {
            return None;
        }
        let changed = match self.made {
            Made::Nothing => "nothing has changed",
            Made::Modes | Made::All => "the MIG modes have changed",
        };
        Some(format!(
            "cannot apply layout {}: {}; hint: end them, or choose a layout that keeps these instances and modes; {changed}",
            printable(&self.layout),
            self.obstacles.join("; ")
        ))
    }
}

/// Returns the instances of a GPU in the order of the memory, an instance before its successor.
fn planned(gpu: &GpuPlan) -> Vec<PlannedInstance> {
    let item = |change, placement, profile_id, parts: &[u32], holders: &[String]| {
        let compute_slices = parts.to_vec();
        let offered = gpu.state.gpu.offered(profile_id);
        PlannedInstance {
            gpu_index: gpu.index(),
            gpu_uuid: gpu.uuid().clone(),
            mig_placement: placement,
            profile: profile_name(gpu, profile_id),
            is_whole: offered.is_some_and(|profile| compute_slices == [profile.compute_slices]),
            compute_slices,
            change,
            holders: holders.to_vec(),
        }
    };
    let there = |change, n: usize| {
        let one = &gpu.state.present[n];
        let parts = one.standing(&gpu.state.gpu).parts;
        item(change, one.placement, one.profile_id, &parts, &one.holders)
    };
    let keep = gpu.changes.keep.iter().map(|n| there("keep", *n));
    let destroy = gpu.changes.destroy.iter().map(|n| there("destroy", *n));
    let create = gpu.changes.create.iter();
    let create = create.map(|new| item("create", new.placement, new.profile_id, &new.parts, &[]));
    let mut all: Vec<PlannedInstance> = keep.chain(destroy).chain(create).collect();
    all.sort_by_key(|one| (one.mig_placement.start, one.change == "create"));
    all
}

fn profile_name(gpu: &GpuPlan, id: u32) -> String {
    let profile = gpu.state.gpu.offered(id);
    profile.map_or_else(|| id.to_string(), |profile| profile.name.clone())
}

fn obstacles(gpu: &GpuPlan) -> Vec<String> {
    let index = gpu.index();
    let on_instance = |present: &Present| {
        format!(
            "{} has {} at {} on GPU {index}",
            printable(&present.holders.join(" and ")),
            profile_name(gpu, present.profile_id),
            present.placement,
        )
    };
    let mut all: Vec<String> = gpu.held().map(on_instance).collect();
    if !gpu.busy.is_empty() {
        let why = match gpu.mode {
            Some(true) => ", whose MIG mode has to be on",
            Some(false) => ", whose MIG mode has to be off",
            None => "",
        };
        let holders = printable(&gpu.busy.join(" and "));
        all.push(format!("{holders} has GPU {index}{why}"));
    }
    all
}
