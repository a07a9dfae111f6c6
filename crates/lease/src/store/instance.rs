//! The record of an instance: hardware that runmig made or adopted.

use super::resource::{Resource, Slice};
use crate::framed::Record;
use crate::model::{InstanceId, OperationId, Timestamp};
use serde::{Deserialize, Serialize};

/// Hardware that runmig made or adopted. It exists with any number of leases on it; without one it is idle
/// or on its way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// A random id, by which leases name the instance.
    pub id: InstanceId,
    /// The time at which runmig reserved its place or adopted it.
    pub created: Timestamp,
    /// The maker of the instance.
    pub origin: Origin,
    /// The state of the instance.
    pub state: InstanceState,
    /// The hardware.
    pub resource: Resource,
    /// The configuration of a layout: the instance belongs to it once it is *ready*, and its apply makes or destroys
    /// the instance before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// The operation of that apply, while it works on the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// Whether that apply has not begun to make the instance: what lies at its place is foreign.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
}

/// The maker of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// runmig, which destroys it after its last lease.
    Ours,
    /// An administrator. The instance outlives its leases, and only its record ends with the last.
    Administrator,
}

/// The state of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstanceState {
    /// The instance is about to exist, half made, or not validated yet.
    Creating,
    /// Its leases may use it.
    Ready,
    /// It waits for the next request while no lease names it.
    Idle {
        /// The time since which it has no lease.
        since: Timestamp,
    },
    /// runmig destroys it.
    Releasing,
    /// The driver refused to destroy it.
    Quarantined(Attempt),
}

/// The failed attempts to destroy an instance, or to end an MPS daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The number of attempts.
    pub count: u32,
    /// The error of the last attempt.
    pub error: String,
    /// The processes that had it open, such as `12345 python3`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
    /// The time before which only an operator tries again.
    pub next: Timestamp,
}

impl Instance {
    /// Returns the MIG slice, if the instance is one.
    pub fn slice(&self) -> Option<&Slice> {
        match &self.resource {
            Resource::Mig(slice) => Some(slice),
            Resource::Gpu(_) => None,
        }
    }

    /// Changes the MIG slice, if the instance is one.
    pub(crate) fn change_slice(&mut self, change: impl FnOnce(&mut Slice)) {
        match &mut self.resource {
            Resource::Mig(slice) => change(slice),
            Resource::Gpu(_) => {}
        }
    }

    /// Says whether an administrator made the instance.
    pub fn is_adopted(&self) -> bool {
        self.origin == Origin::Administrator
    }

    /// Says whether the instance belongs to a layout. It then outlives its leases, whoever made it.
    pub fn is_of_layout(&self) -> bool {
        self.layout.is_some() && self.state == InstanceState::Ready
    }

    /// Says whether the record only keeps others from a GPU as a whole, while an apply changes its MIG mode.
    pub fn is_hold(&self) -> bool {
        self.layout.is_some() && matches!(self.resource, Resource::Gpu(_))
    }

    /// Says whether the instance stays after its last lease: an administrator made it or wants it.
    pub fn outlives_leases(&self) -> bool {
        match self.layout {
            Some(_) => self.is_of_layout(),
            None => self.is_adopted(),
        }
    }

    /// Returns the failed attempts to destroy the instance.
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.state {
            InstanceState::Quarantined(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// Returns whether runmig destroys the instance.
    pub(crate) fn is_ending(&self) -> bool {
        self.state == InstanceState::Releasing || self.attempt().is_some()
    }

    /// Returns the time since which the instance waits for a request. It is idle only while no lease names
    /// it.
    pub fn idle_since(&self) -> Option<&Timestamp> {
        match &self.state {
            InstanceState::Idle { since } => Some(since),
            _ => None,
        }
    }
}

impl Record for Instance {
    const KIND: &'static str = "Instance";
}
