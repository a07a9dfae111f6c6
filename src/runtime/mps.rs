//! Decides whether a container can reach an MPS daemon. A client that cannot is not limited, and nothing reports it.

use super::lowlevel::LowLevel;
use crate::spec::{self, Document, Door, MPS, Mount};
use runmig_lease::driver_files::is_nvidia;
use runmig_lease::{files, paths};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Says `1` on a machine whose SELinux enforces.
const ENFORCES: &str = "/sys/fs/selinux/enforce";

/// The most links on the way to a path; the kernel follows as many.
const MOST_LINKS: usize = 40;

/// Returns why a container cannot reach a daemon of its own, if there is one.
pub fn obstacle(runtime: &LowLevel, original: &Document, bundle: &Path) -> Option<String> {
    let door = spec::door(original);
    if let Some(why) = in_the_way(&door, &bundle.join(&door.rootfs)) {
        return Some(why);
    }
    if is_nvidia(&runtime.path) && Path::new(MPS).exists() {
        return Some(format!(
            "{} would mount the host's {MPS} over the container's own",
            runtime.path.display()
        ));
    }
    let enforces = files::read(Path::new(ENFORCES), 16).is_ok_and(|text| text.starts_with(b"1"));
    door.selinux_label.filter(|_| enforces).map(|label| {
        format!(
            "SELinux enforces, and runmig does not know whether {label} may connect to the daemon"
        )
    })
}

/// Returns what lies between the container's processes and the socket: a mount, a mask or a closed folder.
fn in_the_way(door: &Door, rootfs: &Path) -> Option<String> {
    let Some(socket) = place(rootfs, Path::new(MPS)) else {
        return Some(format!("the image has a loop of links at {MPS}"));
    };
    // What leads in a loop counts as the root.
    let leads = |path: &Path| place(rootfs, path).unwrap_or_default();
    let above =
        { door.mounts.iter() }.filter(|mount| socket.starts_with(leads(&mount.destination)));
    let above: Vec<&Mount> = above.collect();
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
    let hides = |path: &&PathBuf| {
        let path = leads(path);
        socket.starts_with(&path) || path.starts_with(&socket)
    };
    if let Some(path) = door.masked.iter().find(hides) {
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
    mounts: &[&Mount],
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
    let parts = |path: &Path| -> Vec<OsString> {
        { path.components().rev() }
            .map(|part| part.as_os_str().to_owned())
            .collect()
    };
    let (mut place, mut left, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => place = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(place.pop()),
            Some(Component::Normal(name)) => {
                let next = place.join(name);
                match std::fs::read_link(paths::inside(rootfs, &next)) {
                    Ok(_) if links == MOST_LINKS => return None,
                    Ok(target) => {
                        links += 1;
                        left.extend(parts(&target));
                    }
                    Err(_) => place = next,
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Some(place)
}
