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
pub use explain::{Alternative, Explanation, GpuAnswer, PlaceItem, Restart, WithMigOn};
pub use gpus::{ClosedItem, GpuItem, InstanceItem, MemorySlice, ProfileItem};
pub use layouts::{AssertedGpu, LayoutAssertion, LayoutPlan};
pub use leases::{ForeignItem, LeaseList, WaitingItem};
pub use reload::ReloadItem;

use serde::Serialize;

/// The value of `apiVersion`.
const API_VERSION: &str = "runmig.dev/v1";

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

fn object<'a, T>(kind: &'static str, fields: &'a T) -> Object<'a, T> {
    Object {
        api_version: API_VERSION,
        kind,
        fields,
    }
}

/// Returns the text of an object.
pub fn text(kind: &'static str, fields: &impl Serialize) -> String {
    serde_json::to_string_pretty(&object(kind, fields)).expect("only strings are keys")
}

/// Returns the text of an object on one line.
pub fn line(kind: &'static str, fields: &impl Serialize) -> String {
    serde_json::to_string(&object(kind, fields)).expect("only strings are keys")
}
