//! The layout of a node: from GPUs, ledger and the last layout to the content of its ResourceSlices. Pure.
//!
//! A node has one pool. Counter sets, one for each GPU, are in ResourceSlices of their own. Devices are in
//! ResourceSlices by profile, and each profile's list is `placement`'s order over all GPUs. So the scheduler, which
//! takes the first device that fits, chooses as runmig would. A reorder replaces one object under the same generation.
//!
//! ```text
//! pool        all of it: counter sets, devices by profile, the generation
//! order       the order of a profile's devices
//! devices     attributes, capacity and consumption of a device
//! counters    the limits of a GPU, and the room that they leave
//! gpus        the GPUs and devices to publish, and the reasons against others
//! node        the facts, with the used places of an inventory
//! names       names of devices, pools and ResourceSlices
//! objects     quantities, texts and times of taints, as the API has them
//! ```

mod counters;
mod devices;
mod gpus;
mod names;
mod node;
pub mod objects;
mod order;
mod pool;

pub use counters::{Amounts, MAX_COUNTERS, consumption, totals};
pub use gpus::{LeftOut, Offer, PublishedGpu, Taint};
pub use names::{
    DeviceName, MAX_LABEL, MAX_NAME, PciAddress, counter_slice, device_slice, pool, profile_label,
};
pub use node::{Node, Use, Uses, uses};
pub use order::settle;
pub use pool::{Layout, MAX_DEVICES, MAX_SETS, Published, lay_out, rank};
