//! Decides whether a container can reach an MPS daemon. A client that cannot is not limited, and nothing reports it.

use super::lowlevel::LowLevel;
use crate::spec::{self, Door};
use runmig_lease::driver_files::is_nvidia;
use runmig_lease::error::Result;
use runmig_lease::files;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The host's directory, which NVIDIA's runtime mounts into every container with a GPU.
const HOST_PIPES: &str = "/tmp/nvidia-mps";
/// Says `1` on a machine whose SELinux enforces.
const ENFORCES: &str = "/sys/fs/selinux/enforce";

/// Returns the reason for which a container cannot reach a daemon of its own, if there is one.
pub fn obstacle(runtime: &LowLevel, original: &[u8]) -> Result<Option<String>> {
    let Door {
        selinux_label,
        shared_mount,
        sources,
    } = spec::door(original)?;
    if let Some(mount) = shared_mount {
        return Ok(Some(format!(
            "mount {mount} is shared with the host, which would get the container's socket"
        )));
    }
    let is_there = Path::new(HOST_PIPES).exists();
    if let Some(source) = sources.iter().find(|source| !is_there && is_hosts(source)) {
        return Ok(Some(format!(
            "the mount of {} would leave {HOST_PIPES} on the host",
            source.display()
        )));
    }
    if is_there && is_nvidia(&runtime.path) {
        return Ok(Some(format!(
            "{} would mount the host's {HOST_PIPES} over the container's own",
            runtime.path.display()
        )));
    }
    let enforces = files::read(Path::new(ENFORCES), 16).is_ok_and(|text| text.starts_with(b"1"));
    Ok(selinux_label.filter(|_| enforces).map(|label| {
        format!(
            "SELinux enforces, and runmig does not know whether {label} may connect to the daemon"
        )
    }))
}

/// Returns whether a path leads to the host's `/tmp` or above it.
fn is_hosts(source: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    let found = identity(source);
    found.is_some()
        && ["/tmp", "/"]
            .iter()
            .any(|host| identity(Path::new(host)) == found)
}
