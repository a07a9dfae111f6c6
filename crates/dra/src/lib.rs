//! A Kubernetes DRA driver for MIG slices, over runmig's ledger.

#![warn(missing_docs, unreachable_pub)]

pub mod layout;

/// The driver's name in claims, ResourceSlices and at the kubelet.
pub const DRIVER: &str = "gpu.runmig.dev";
