//! CDI specifications of the driver's files, as `nvidia-ctk cdi generate` writes them.

use serde_json::{Value, json};
use std::path::Path;

/// A specification that brings a file of the host as libcuda.
pub fn with_library(library: &Path) -> Value {
    specification("nvidia.com/gpu", &json!({"mounts": [libcuda(library)]}))
}

/// A specification with these edits at its top, and a device `all` without the driver's files.
pub fn specification(kind: &str, top: &Value) -> Value {
    let all = json!({"name": "all", "containerEdits": {"env": ["DEVICE=all"]}});
    json!({"cdiVersion": "0.5.0", "kind": kind, "devices": [all], "containerEdits": top})
}

/// The mount of a file of the host as libcuda.
pub fn libcuda(library: &Path) -> Value {
    json!({
        "hostPath": library,
        "containerPath": "/usr/lib/libcuda.so.1",
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    })
}
