//! Decides whether a container can reach an MPS daemon. A client that cannot is not limited, and nothing reports it.

use super::lowlevel::LowLevel;
use crate::spec::{self, Document, Door, MPS};
use runmig_lease::driver_files::is_nvidia;
use runmig_lease::{files, paths};
use std::path::{Path, PathBuf};

/// Says `1` on a machine whose SELinux enforces.
const ENFORCES: &str = "/sys/fs/selinux/enforce";

/// Returns why a container cannot reach a daemon of its own, if there is one.
pub fn obstacle(runtime: &LowLevel, original: &Document, bundle: &Path) -> Option<String> {
    let Door {
        selinux_label,
        shared_mount,
        outside,
        rootfs,
    } = spec::door(original);
    if let Some(mount) = shared_mount {
        return Some(format!(
            "mount {mount} is shared with the host, which would get the container's socket"
        ));
    }
    let Some(place) = place(&bundle.join(rootfs)) else {
        return Some(format!(
            "the image has links at {MPS} that may lead into a volume"
        ));
    };
    if let Some(mount) = outside.iter().find(|mount| place.starts_with(mount)) {
        return Some(format!(
            "mount {} is from outside of the container, and who else has it could take the daemon's socket away: \
             mount a tmpfs there",
            mount.display()
        ));
    }
    let is_there = Path::new(MPS).exists();
    if is_there && is_nvidia(&runtime.path) {
        return Some(format!(
            "{} would mount the host's {MPS} over the container's own",
            runtime.path.display()
        ));
    }
    let enforces = files::read(Path::new(ENFORCES), 16).is_ok_and(|text| text.starts_with(b"1"));
    selinux_label.filter(|_| enforces).map(|label| {
        format!(
            "SELinux enforces, and runmig does not know whether {label} may connect to the daemon"
        )
    })
}

/// Returns the path in the container at which the low-level runtime mounts the directory of the socket: none if a link of
/// the image leads to further links.
fn place(rootfs: &Path) -> Option<PathBuf> {
    let on_host = |path: &Path| paths::inside(rootfs, path);
    let mut place = PathBuf::from("/");
    for part in Path::new(&MPS[1..]) {
        let Ok(target) = std::fs::read_link(on_host(&place.join(part))) else {
            place.push(part);
            continue;
        };
        place = spec::clean(place.join(target));
        if place
            .ancestors()
            .any(|at| at != Path::new("/") && on_host(at).is_symlink())
        {
            return None;
        }
    }
    Some(place)
}
