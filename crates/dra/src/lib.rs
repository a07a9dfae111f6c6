//! A Kubernetes DRA driver for MIG slices, over runmig's ledger.
//!
//! `runmig-dra` runs once on each node. It publishes the node's places for slices as devices, and the scheduler
//! allocates them to ResourceClaims. The kubelet then asks it to prepare a claim: the driver makes the slice and a CDI
//! file, which the engine applies to the containers of the claim's pod.
//!
//! ```text
//! run         prints the ResourceSlices of the node, or runs the services until a signal; one process of a node publishes,
//!             promises and sweeps
//! check       reports the problems of the node
//! kubelet     registration and the kubelet's calls, over sockets
//! prepare     prepares and unprepares a claim: claim, lease, CDI file
//! ledger      leases of claims, and the nodes of their slices
//! files       the driver's files for containers
//! changes     tells when the ledger changes
//! room        looks at the node: lays out its ResourceSlices, and tells the health of devices
//! promise     puts the claims of bound pods on record
//! sweep       ends the leases of claims that Kubernetes withdrew
//! report      reports claims to the API
//! rival       looks for other drivers on the node
//! publish     keeps the ResourceSlices of this node in the API
//! api         the API server: reads claims, and writes reports about them
//! resource_slices  pure: the ResourceSlices of a node
//! host        the node's files, seen from a pod
//! claim, cdi, health           pure: from claim, pod, layout, ledger and lease to data
//! memory      gives back what the process has freed
//! log         standard error, and the ledger's log
//! obstacle    says each obstacle once, and makes tries rarer
//! ```

#![warn(unreachable_pub)]

mod api;
mod cdi;
mod changes;
mod check;
mod claim;
mod files;
mod health;
mod host;
#[doc(hidden)]
pub mod kubelet;
mod ledger;
mod log;
mod memory;
mod obstacle;
mod options;
mod prepare;
mod promise;
#[doc(hidden)]
pub mod publish;
mod report;
#[doc(hidden)]
pub mod resource_slices;
mod rival;
mod room;
mod run;
mod sweep;

pub use run::run;
