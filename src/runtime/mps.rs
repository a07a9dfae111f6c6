//! Decides whether a container can reach an MPS daemon. A client that cannot is not limited, and nothing reports it.

use super::lowlevel::LowLevel;
use crate::spec::{self, Document, MPS};
use runmig_lease::driver_files::is_nvidia;
use runmig_lease::paths::clean;
use runmig_lease::{files, paths};
use serde_json::Value;
use std::convert::Infallible;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Says `1` on a machine whose SELinux enforces.
const ENFORCES: &str = "/sys/fs/selinux/enforce";

/// A mount that may stand between a container and the socket.
struct Mount {
    /// Its destination, as the specification has it.
    destination: PathBuf,
    /// Says whether it is a tmpfs of the container's own.
    is_own: bool,
    /// Says whether mounts below it reach the host.
    is_shared: bool,
    /// The mode of its folder, if an option gives one.
    mode: Option<u32>,
}

impl Mount {
    /// Reads a mount; none at the very place, which runmig removes.
    fn of(mount: &Value) -> Option<Mount> {
        let options = mount.get("options").and_then(Value::as_array);
        let options: Vec<&str> = { options.into_iter().flatten() }
            .filter_map(Value::as_str)
            .collect();
        let is_one_of = |words: &[&str]| options.iter().any(|option| words.contains(option));
        let is_tmpfs = mount.get("type").is_some_and(|typ| typ == "tmpfs");
        let mut latest = options.iter().rev();
        let mode = latest.find_map(|option| option.strip_prefix("mode="));
        Some(Mount {
            destination: spec::destination(mount).filter(|to| to != Path::new(MPS))?,
            is_own: is_tmpfs && !is_one_of(&["bind", "rbind"]),
            is_shared: is_one_of(&["shared", "rshared"]),
            mode: mode.and_then(|mode| u32::from_str_radix(mode, 8).ok()),
        })
    }
}

/// Returns why a container cannot reach a daemon of its own, if there is one.
pub fn obstacle(runtime: &LowLevel, original: &Document, bundle: &Path) -> Option<String> {
    let rootfs = original.text(&["root", "path"]).unwrap_or_default();
    if let Some(why) = in_the_way(original, &bundle.join(rootfs)) {
        return Some(why);
    }
    if is_nvidia(&runtime.path) && Path::new(MPS).exists() {
        return Some(format!(
            "{} would mount the host's {MPS} over the container's own",
            runtime.path.display()
        ));
    }
    let enforces = files::read(Path::new(ENFORCES), 16).is_ok_and(|text| text.starts_with(b"1"));
    let label = original.text(&["process", "selinuxLabel"]);
    let label = label.filter(|label| enforces && !label.is_empty())?;
    Some(format!(
        "SELinux enforces, and runmig does not know whether {label} may connect to the daemon"
    ))
}

/// Returns what lies between the container's processes and the socket: a mount, a mask or a closed folder.
fn in_the_way(original: &Document, rootfs: &Path) -> Option<String> {
    let Some(socket) = place(rootfs, Path::new(MPS)) else {
        return Some(format!("the image has a loop of links at {MPS}"));
    };
    // What leads in a loop counts as the root.
    let leads = |path: &Path| place(rootfs, path).unwrap_or_default();
    let mounts = original.mounts().iter().filter_map(Mount::of);
    let above: Vec<Mount> = { mounts }
        .filter(|mount| socket.starts_with(leads(&mount.destination)))
        .collect();
    if let Some(mount) = above.iter().find(|mount| mount.is_shared) {
        return Some(format!(
            "mount {} is shared with the host, which would get the container's socket",
            mount.destination.display()
        ));
    }
    if let Some(mount) = above.iter().find(|mount| !mount.is_own) {
        return Some(format!(
            "mount {} is from outside of the container, and who else has it could take the daemon's socket away: \
             mount a tmpfs there",
            mount.destination.display()
        ));
    }
    let hides = |path: &PathBuf| {
        let path = leads(path);
        socket.starts_with(&path) || path.starts_with(&socket)
    };
    if let Some(path) = original.masked_paths().map(clean).find(hides) {
        return Some(format!(
            "linux.maskedPaths hides {}, where the daemon's socket is",
            path.display()
        ));
    }
    let mut folders = { socket.ancestors().skip(1) }.filter(|at| *at != Path::new("/"));
    let closed = folders.find(|folder| !is_open(rootfs, folder, &above, leads))?;
    Some(format!(
        "{} of the image keeps some users from the daemon's socket: mount a tmpfs there, with mode=1777",
        closed.display()
    ))
}

/// Says whether every user may go through a folder of the container. The low-level runtime gives a tmpfs the mode of the
/// image's folder below it, unless an option gives another.
fn is_open(
    rootfs: &Path,
    folder: &Path,
    mounts: &[Mount],
    leads: impl Fn(&Path) -> PathBuf,
) -> bool {
    let mut here = { mounts.iter().rev() }.filter(|mount| leads(&mount.destination) == folder);
    let given = here.find_map(|mount| mount.mode);
    let of_image = || {
        let found = paths::inside(rootfs, folder).symlink_metadata();
        found.map_or(0o755, |found| found.mode())
    };
    given.unwrap_or_else(of_image) & 0o001 != 0
}

/// Returns where a path of the container leads in its root filesystem, as the low-level runtime finds it: none after too
/// many links. Only links are read, each at a place that no link leads to.
fn place(rootfs: &Path, path: &Path) -> Option<PathBuf> {
    let target = |at: &Path, _| {
        let link = std::fs::read_link(paths::inside(rootfs, at));
        Ok::<_, Infallible>(link.ok())
    };
    let Ok(place) = paths::walk(path, target);
    place
}
