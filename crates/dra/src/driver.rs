//! The name of the driver.

/// The driver's name in claims, in ResourceSlices and at the kubelet.
pub const NAME: &str = "gpu.runmig.dev";
