//! All types of the JSON that `migctl -o json` prints. The verbs fill them; nothing else prints JSON.

mod booking;
mod collection;
mod configure;
mod diagnosis;
mod explain;
mod gpus;
mod layouts;
mod leases;
mod reload;

pub use booking::{BookingItem, GpuBookingItem, NodeBooking};
pub use collection::CollectionItem;
pub use configure::ChangeItem;
pub use diagnosis::DiagnosisItem;
pub use explain::{Alternative, Explanation, GpuAnswer, PlaceItem, Restart, SliceSite, WithMigOn};
pub use gpus::{ClosedItem, GpuItem, InstanceItem, MemorySlice, ProfileItem};
pub use layouts::{AssertedGpu, LayoutAssertion, LayoutPlan};
pub use leases::{ForeignItem, LeaseList, WaitingItem};
pub use reload::ReloadItem;

use runmig_lease::events::Event;
use runmig_lease::model;
use serde::Serialize;
use std::fmt;

/// The value of `apiVersion`.
const API_VERSION: &str = "runmig.dev/v1";

/// The fields of one kind of object.
pub trait Kind: Serialize {
    /// The value of `kind`.
    const KIND: &'static str;
}

impl Kind for Items<'_, GpuItem<'_>> {
    const KIND: &'static str = "GpuList";
}

impl Kind for NodeBooking<'_> {
    const KIND: &'static str = "NodeBooking";
}

impl Kind for LeaseList<'_> {
    const KIND: &'static str = "LeaseList";
}

impl Kind for Explanation<'_> {
    const KIND: &'static str = "Explanation";
}

impl Kind for Items<'_, ReloadItem> {
    const KIND: &'static str = "ReloadList";
}

impl Kind for Items<'_, CollectionItem<'_>> {
    const KIND: &'static str = "CollectionList";
}

impl Kind for Items<'_, ChangeItem<'_>> {
    const KIND: &'static str = "ChangeList";
}

impl Kind for LayoutAssertion {
    const KIND: &'static str = "LayoutAssertion";
}

impl Kind for LayoutPlan<'_> {
    const KIND: &'static str = "LayoutPlan";
}

impl Kind for Items<'_, DiagnosisItem<'_>> {
    const KIND: &'static str = "Diagnosis";
}

impl Kind for Event {
    const KIND: &'static str = "Event";
}

/// One object in Kubernetes' form: `apiVersion`, `kind`, and the fields of the kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a, T> {
    /// `runmig.dev/v1`.
    api_version: &'static str,
    /// Names the fields that follow.
    kind: &'static str,
    #[serde(flatten)]
    fields: &'a T,
}

/// The fields of a list that has nothing but items.
#[derive(Serialize)]
pub struct Items<'a, T> {
    /// All items, in the order of the table.
    pub items: &'a [T],
}

fn object<T: Kind>(fields: &T) -> Object<'_, T> {
    Object {
        api_version: API_VERSION,
        kind: T::KIND,
        fields,
    }
}

/// Returns the text of an object.
pub fn text<T: Kind>(fields: &T) -> String {
    serde_json::to_string_pretty(&object(fields)).expect("only strings are keys")
}

/// Returns the text of an object on one line.
pub fn line<T: Kind>(fields: &T) -> String {
    serde_json::to_string(&object(fields)).expect("only strings are keys")
}

/// The memory slices that a MIG instance takes on its GPU.
#[derive(Serialize, Clone, Copy)]
pub struct Placement {
    /// The first memory slice, counted from 0.
    pub start: u32,
    /// The number of memory slices.
    pub size: u32,
}

impl From<model::Placement> for Placement {
    fn from(placement: model::Placement) -> Self {
        let model::Placement { start, size } = placement;
        Placement { start, size }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placement { start, size } = *self;
        model::Placement { start, size }.fmt(f)
    }
}
