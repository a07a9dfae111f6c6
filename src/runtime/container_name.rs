//! The name of a container in the ledger.

use super::Front;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths;
use runmig_lease::store::Key;
use std::ffi::OsStr;
use std::io::ErrorKind;

/// Returns the key of a container, with the root as the low-level runtime resolves it.
pub fn of(front: &Front<'_>, id: &OsStr) -> Result<Key> {
    let id = id.to_str().ok_or_else(|| {
        Error::new(format!(
            "container id {} is not UTF-8",
            id.to_string_lossy()
        ))
    })?;
    let family = front.runtime.family;
    let cwd = || std::env::current_dir().context(|| "find the working directory");
    let root = match &front.call.root {
        // An engine may call from a folder that is gone, so runmig needs the folder only for a relative root.
        Some(root) if root.is_absolute() => root.clone(),
        Some(root) => front.call.stands_in(family, &cwd()?).join(root),
        None => {
            let euid = nix::unistd::geteuid().as_raw();
            let environment = |name: &str| std::env::var_os(name);
            let in_user_namespace = !runmig_lease::trust::is_host_root();
            let root = family.default_root(&environment, euid, in_user_namespace);
            if root.is_absolute() {
                root
            } else {
                cwd()?.join(root)
            }
        }
    };
    // The root may not exist yet, and its name must be the same before and after.
    Ok(Key::new(paths::resolve(&root), id.to_owned()))
}

/// Longest file name in bytes, on Linux and every file system that a `--root` could be on.
const MAX_NAME: usize = 255;
/// Longest path in bytes, without the NUL.
const MAX_PATH: usize = 4095;
/// Bytes that a low-level runtime adds to a container's folder, with room for the names of versions to come.
const MAX_RECORD: usize = 64;

/// Refuses a container whose record runmig could not look for. The low-level runtime would fail, and runmig
/// could never find out whether the container lives. So runmig would never release the container's slice.
pub fn check(key: &Key) -> Result<()> {
    check_lengths(key)?;
    let folder = key.root.join(&key.id);
    match std::fs::symlink_metadata(&folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e)
            .context(|| {
                let (id, root) = (&key.id, key.root.display());
                format!("look for container {id} below --root {root}")
            })
            .map_err(|e| e.hint("use a --root that is a folder, or that can be made one")),
        _ => Ok(()),
    }
}

fn check_lengths(key: &Key) -> Result<()> {
    let id = key.id.len();
    if id > MAX_NAME {
        return Err(Error::new(format!(
            "cannot create the container: its id has {id} bytes, and a file name {MAX_NAME} at most"
        ))
        .hint("use a shorter id"));
    }
    let longest = key.root.iter().map(OsStr::len).max().unwrap_or_default();
    let whole = key.root.as_os_str().len() + id + MAX_RECORD;
    let too_long = match (longest > MAX_NAME, whole > MAX_PATH) {
        (true, _) => format!("a part of --root has {longest} bytes, and a file name {MAX_NAME}"),
        (_, true) => format!("the path of its record has {whole} bytes, and a path {MAX_PATH}"),
        _ => return Ok(()),
    };
    Err(Error::new(format!(
        "cannot create container {}: {too_long} at most",
        key.id
    ))
    .hint("use a shorter --root"))
}
