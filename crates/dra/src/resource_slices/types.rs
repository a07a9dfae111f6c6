//! The content of ResourceSlices, as plain data.

use super::names::DeviceName;
use std::collections::BTreeMap;

/// Amounts by name.
pub type Amounts = BTreeMap<String, u64>;

/// A ResourceSlice of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedSlice {
    /// The name of the object.
    pub name: String,
    /// The name of the pool.
    pub pool: String,
    /// The name of the node.
    pub node: String,
    /// The generation of the pool.
    pub generation: i64,
    /// The number of ResourceSlices in the pool.
    pub slice_count: i64,
    /// The content.
    pub content: Content,
}

/// The content of a ResourceSlice, which is of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The counter sets of GPUs.
    Counters(Vec<CounterSet>),
    /// Devices, in the order in which the scheduler tries them.
    Devices(Vec<Device>),
}

/// The counters of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSet {
    /// The name, by which devices consume from the set.
    pub name: String,
    /// The room for claims, by counter.
    pub counters: Amounts,
}

/// A place of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The name.
    pub name: DeviceName,
    /// The attributes by name. A name without a domain is in the driver's.
    pub attributes: BTreeMap<&'static str, Attribute>,
    /// The capacity by name, `memory` in bytes.
    pub capacity: BTreeMap<&'static str, u64>,
    /// The name of the counter set of the device's GPU.
    pub counter_set: String,
    /// The consumption from the counter set.
    pub consumes: Amounts,
    /// The reason for which no other claim gets the device.
    pub taint: Option<Taint>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text of at most 64 bytes.
    Text(String),
    /// A version by the rules of semver.org, of at most 64 bytes.
    Version(String),
}

/// A reason for which no other claim gets a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taint {
    /// The GPU does not work, for this reason.
    Unhealthy(String),
    /// An administrator has cordoned the GPU, for this reason.
    Cordoned(String),
    /// The device is published only until its claim ends, for this reason.
    Withdrawn(String),
}

/// Writes an amount as a quantity of Kubernetes, in its canonical form.
pub fn quantity(amount: u64) -> String {
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let fits = |(bits, _): &&(u32, &str)| amount > 0 && amount.trailing_zeros() >= *bits;
    match units.iter().find(fits) {
        Some((bits, unit)) => format!("{}{unit}", amount >> bits),
        None => amount.to_string(),
    }
}
