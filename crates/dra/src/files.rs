//! The driver's files for containers, by the configuration: libcuda, nvidia-smi and so on.

use crate::host;
use nix::errno::Errno;
use runmig_lease::cdi::{self, DIRS, Edits};
use runmig_lease::config::DriverFiles;
use runmig_lease::error::{Error, Result};
use std::path::Path;

/// The root of the host, also for a driver in a container that sees the host's processes.
const HOST: &str = "/proc/1/root";

/// The variable that the claim's own edits set.
const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES=";

/// Returns the edits that bring the driver's files.
///
/// # Errors
/// A CDI specification that cannot be used, or is required and missing; a file of it that is not there.
pub(crate) fn edits(choice: DriverFiles) -> Result<Edits> {
    let mut edits = match choice {
        DriverFiles::None | DriverFiles::NvidiaRuntime => return Ok(Edits::default()),
        DriverFiles::Auto => found()?.files.unwrap_or_default(),
        DriverFiles::Cdi => found()?.required()?,
    };
    edits.env.retain(|entry| !entry.starts_with(VISIBLE));
    match missing(Path::new(HOST), &edits) {
        None => Ok(edits),
        Some(file) => Err(Error::new(format!(
            "the CDI specification of nvidia.com/gpu names {}, which is not there",
            file.display()
        ))
        .hint("write it anew: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")),
    }
}

fn found() -> Result<cdi::Found> {
    let found = cdi::read(&DIRS.map(Path::new))?;
    for why in &found.skipped {
        tracing::warn!("passed over: {}", why.line());
    }
    Ok(found)
}

/// Returns the first file of these edits that is not below the root. A file that cannot be looked at counts as there.
fn missing<'a>(root: &Path, edits: &'a Edits) -> Option<&'a Path> {
    let mounts = edits.mounts.iter().map(|mount| mount.host_path.as_path());
    let hooks = edits.hooks.iter().map(|hook| hook.path.as_path());
    let is_missing = |file: &&Path| {
        let found = host::find(root, file);
        matches!(found, Err(Errno::ENOENT | Errno::ENOTDIR))
    };
    mounts.chain(hooks).find(is_missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runmig_lease::cdi::Mount;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn finds_missing_files_of_host() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/libcuda.so.570"), "").unwrap();
        symlink("/usr/lib/libcuda.so.570", root.join("usr/lib/libcuda.so.1")).unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        let mount = |path: &str| Mount {
            host_path: path.into(),
            container_path: path.into(),
            options: None,
            typ: None,
        };
        let edits = |paths: &[&str]| Edits {
            mounts: paths.iter().map(|path| mount(path)).collect(),
            ..Edits::default()
        };
        let there = edits(&["/lib/libcuda.so.570", "/usr/lib/libcuda.so.1"]);
        assert_eq!(missing(root, &there), None);
        let gone = edits(&["/lib/libcuda.so.570", "/lib/libcuda.so.565"]);
        assert_eq!(missing(root, &gone), Some(Path::new("/lib/libcuda.so.565")));
    }
}
