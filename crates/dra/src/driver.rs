//! The names of the driver and of its pool.

/// The driver's name in claims, in ResourceSlices and at the kubelet.
pub(crate) const NAME: &str = "gpu.runmig.dev";

/// Returns the name of a node's pool. It differs from the node's name, because other drivers name their pool by that,
/// and Kubernetes 1.36 confuses the counters of pools with one name.
pub(crate) fn pool(node: &str) -> String {
    format!("runmig.{node}")
}
