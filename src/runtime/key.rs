//! What a container is called in the ledger.

use super::Front;
use super::args::Family;
use crate::error::{Context, Error, Result};
use crate::paths;
use crate::store::Key;
use std::ffi::OsStr;

/// With the root as the low-level runtime resolves it.
pub fn of(front: &Front<'_>, id: &OsStr) -> Result<Key> {
    let id = id.to_str().ok_or_else(|| {
        Error::new(format!(
            "container id {} is not UTF-8",
            id.to_string_lossy()
        ))
    })?;
    let family = Family::of(front.runtime.path());
    let cwd = || std::env::current_dir().context(|| "find the working directory");
    let root = match &front.call.root {
        // An engine may call from a folder that is gone.
        Some(root) if root.is_absolute() => root.clone(),
        Some(root) => front.call.stands_in(family, &cwd()?).join(root),
        None => {
            let euid = nix::unistd::geteuid().as_raw();
            let environment = |name: &str| std::env::var_os(name);
            let in_user_namespace = !crate::trust::is_host_root();
            let root = family.default_root(&environment, euid, in_user_namespace);
            if root.is_absolute() {
                root
            } else {
                cwd()?.join(root)
            }
        }
    };
    // It may not be there yet, and must be called the same before and after.
    Ok(Key {
        runtime: front.runtime.path().to_owned(),
        root: paths::resolve(&root),
        id: id.to_owned(),
    })
}
