//! Handles paths inside a container as text. Nothing here reads a rootfs.

use std::path::{Component, Path, PathBuf};

/// Returns an absolute path without `.`, `..` and doubled slashes, as low-level runtimes read a
/// destination.
pub fn clean(path: impl AsRef<Path>) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.as_ref().components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}
