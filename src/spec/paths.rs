//! Paths inside a container, as words: nothing here looks into a rootfs.

use std::path::{Component, Path, PathBuf};

/// Absolute, without `.`, `..` and doubled slashes, as low-level runtimes take a destination.
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
