//! The driver's files for containers, by the configuration: libcuda, nvidia-smi and so on.

use crate::host;
use nix::errno::Errno;
use runmig_lease::cdi::{Edits, Node};
use runmig_lease::config::Config;
use runmig_lease::driver_files::{self, is_nvidia};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::trust;
use std::fs::File;
use std::path::Path;

/// The root of the host, also for a driver in a container that sees the host's processes.
const HOST: &str = "/proc/1/root";

/// The variable that the claim's own edits set.
const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES=";

/// Returns the edits that bring the driver's files.
///
/// # Errors
/// Nothing brings libcuda, or a CDI specification cannot be used or names a file that is not there.
pub(crate) fn edits(config: &Config) -> Result<Edits> {
    let others_bring = config.runtime.as_deref().is_some_and(is_nvidia);
    let node = Node {
        is_there: &|file| is_there(Path::new(HOST), file),
        check_program: &|file| check_program(Path::new(HOST), file),
    };
    let source = driver_files::find(config, others_bring, node)?;
    for why in &source.warnings {
        tracing::warn!("{}", why.line());
    }
    let edits = source.specification.map(|it| it.edits(&[]));
    let mut edits = edits.unwrap_or_default();
    edits.env.retain(|entry| !entry.starts_with(VISIBLE));
    Ok(edits)
}

/// Returns whether a file is below the root. A file that cannot be looked at counts as there.
fn is_there(root: &Path, file: &Path) -> bool {
    let found = host::find(root, file);
    !matches!(found, Err(Errno::ENOENT | Errno::ENOTDIR))
}

/// Fails for a program that users other than root can write to, or one of the folders of its path. The node's engine runs it as
/// root.
fn check_program(root: &Path, path: &Path) -> Result<()> {
    path.ancestors().try_for_each(|at| {
        let found = host::find(root, at).map(File::from);
        let meta = found.context(|| "open it")?.metadata();
        trust::check_metadata(&meta.context(|| "open it")?)
            .map_err(|e| Error::new(at.display().to_string()).caused_by(e))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use testkit::chmod;

    #[test]
    fn finds_missing_files_of_host() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/libcuda.so.570"), "").unwrap();
        symlink("/usr/lib/libcuda.so.570", root.join("usr/lib/libcuda.so.1")).unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        for there in ["/lib/libcuda.so.570", "/usr/lib/libcuda.so.1", "/usr/lib"] {
            assert!(is_there(root, Path::new(there)), "{there}");
        }
        for gone in ["/lib/libcuda.so.565", "/lib/libcuda.so.570/x"] {
            assert!(!is_there(root, Path::new(gone)), "{gone}");
        }
    }

    #[test]
    fn refuses_programs_that_users_can_write() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, hook) = (dir.path().join("bin"), Path::new("/bin/hook"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("hook"), "").unwrap();
        chmod(folder.join("hook"), 0o755);
        check_program(dir.path(), hook).unwrap();
        for (path, shown) in [(folder.join("hook"), "/bin/hook"), (folder, "/bin")] {
            chmod(&path, 0o777);
            let line = check_program(dir.path(), hook).unwrap_err().line();
            let words = format!("{shown}: users other than root can write to it");
            assert!(line.starts_with(&words), "{line}");
            chmod(&path, 0o755);
        }
    }
}
