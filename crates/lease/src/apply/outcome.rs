//! The plan of an apply in the words of its callers.

use super::look::{GpuState, Present};
use super::plan::Plan;
use crate::error::{Error, printable};
use crate::model::{GpuUuid, Part, Placement};

/// The changes of an apply: those that it made, or those that it would make.
#[derive(Debug)]
pub struct Applied {
    /// The name of the layout.
    pub layout: String,
    /// The GPUs whose MIG mode changes.
    pub modes: Vec<PlannedMode>,
    /// Every instance on the GPUs that the layout names and that are not left out, and the new ones.
    pub instances: Vec<PlannedInstance>,
    /// The leases and processes that have to end first, and the GPUs that cannot have the layout.
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
    /// All, on the GPUs without an obstacle.
    All,
}

/// A GPU whose MIG mode changes.
#[derive(Debug)]
pub struct PlannedMode {
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The UUID of the GPU.
    pub gpu_uuid: GpuUuid,
    /// Whether MIG is on after the change.
    pub enabled: bool,
    /// The leases and processes on the GPU as a whole.
    pub holders: Vec<String>,
}

/// An instance that stays, goes or comes.
#[derive(Debug)]
pub struct PlannedInstance {
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The UUID of the GPU.
    pub gpu_uuid: GpuUuid,
    /// The memory slices.
    pub placement: Placement,
    /// The name of the profile.
    pub profile: String,
    /// The compute slices of each compute instance, after the change.
    pub compute: Vec<u32>,
    /// Whether one compute instance fills it.
    pub is_whole: bool,
    /// Whether it stays and gets more compute instances.
    pub grows: bool,
    /// The change.
    pub change: Change,
    /// The leases and processes that hold it.
    pub holders: Vec<String>,
}

/// A change to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The instance stays.
    Keep,
    /// It is created.
    Create,
    /// It is destroyed.
    Destroy,
}

impl Change {
    /// Returns the word of the change.
    pub fn word(self) -> &'static str {
        match self {
            Change::Keep => "keep",
            Change::Create => "create",
            Change::Destroy => "destroy",
        }
    }
}

impl Applied {
    pub(super) fn new(
        layout: &str,
        (states, plans): (&[GpuState], &[Plan]),
        made: Made,
    ) -> Applied {
        let both = states.iter().zip(plans).filter(|(_, plan)| plan.is_named);
        // An apply leaves a blocked GPU out.
        let shown = both
            .clone()
            .filter(|(_, plan)| !(made == Made::All && plan.is_blocked()));
        let obstacles = both.clone().flat_map(|(state, plan)| {
            let held = plan.held.iter().map(|n| &state.present[*n]);
            let held = held.map(|present| obstacle(state, present));
            let busy = (!plan.busy.is_empty()).then(|| busy(state, plan));
            held.chain(busy)
                .chain(plan.refusal.as_ref().map(Error::line))
        });
        Applied {
            layout: layout.to_owned(),
            obstacles: obstacles.collect(),
            modes: { shown.clone() }
                .filter_map(|(state, plan)| Some((state, plan, plan.mode?)))
                .map(|(state, plan, enabled)| PlannedMode {
                    gpu_index: state.gpu.gpu.index,
                    gpu_uuid: state.gpu.gpu.uuid.clone(),
                    enabled,
                    holders: plan.busy.clone(),
                })
                .collect(),
            instances: shown
                .flat_map(|(state, plan)| planned(state, plan))
                .collect(),
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
        let others = match self.made {
            Made::All => "the other GPUs have it",
            Made::Modes => "the MIG modes have changed",
            Made::Nothing => "nothing has changed",
        };
        Some(format!(
            "cannot apply layout {}: {}; hint: end them, or choose a layout that keeps these instances and modes; {others}",
            printable(&self.layout),
            self.obstacles.join("; ")
        ))
    }
}

fn planned(state: &GpuState, plan: &Plan) -> Vec<PlannedInstance> {
    let item =
        |placement, profile_id, compute: Vec<u32>, change, holders: &[String]| PlannedInstance {
            gpu_index: state.gpu.gpu.index,
            gpu_uuid: state.gpu.gpu.uuid.clone(),
            placement,
            profile: profile_name(state, profile_id),
            is_whole: { state.gpu.offered(profile_id) }
                .is_some_and(|profile| compute == [profile.compute_slices]),
            compute,
            grows: false,
            change,
            holders: holders.to_vec(),
        };
    let of = |n: usize, more: &[Part], change| {
        let present = &state.present[n];
        let compute = sizes(&[&present.standing(&state.gpu).parts, more].concat());
        let (id, holders) = (present.profile_id, &present.holders);
        PlannedInstance {
            grows: !more.is_empty(),
            ..item(present.placement, id, compute, change, holders)
        }
    };
    let keep = plan.keep.iter().map(|(n, more)| of(*n, more, Change::Keep));
    let destroy = plan.destroy.iter().map(|n| of(*n, &[], Change::Destroy));
    let create = plan.create.iter().map(|new| {
        let change = Change::Create;
        item(
            new.placement,
            new.profile_id,
            sizes(&new.parts),
            change,
            &[],
        )
    });
    let mut all: Vec<PlannedInstance> = keep.chain(destroy).chain(create).collect();
    // In the order of the memory, an instance before its successor.
    all.sort_by_key(|one| (one.placement.start, one.change == Change::Create));
    all
}

fn sizes(parts: &[Part]) -> Vec<u32> {
    parts.iter().map(|part| part.slices).collect()
}

fn profile_name(state: &GpuState, id: u32) -> String {
    let profile = state.gpu.offered(id);
    profile.map_or_else(|| id.to_string(), |profile| profile.name.clone())
}

fn busy(state: &GpuState, plan: &Plan) -> String {
    let why = match plan.mode {
        Some(true) => ", whose MIG mode has to be on",
        Some(false) => ", whose MIG mode has to be off",
        None => "",
    };
    let holders = printable(&plan.busy.join(" and "));
    format!("{holders} has GPU {}{why}", state.gpu.gpu.index)
}

fn obstacle(state: &GpuState, present: &Present) -> String {
    format!(
        "{} has {} at {} on GPU {}",
        printable(&present.holders.join(" and ")),
        profile_name(state, present.profile_id),
        present.placement,
        state.gpu.gpu.index
    )
}
