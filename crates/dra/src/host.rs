//! The node's files, seen from the driver's pod: NVIDIA's library, and the hook that the node's engine runs.

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::files::put;
use runmig_lease::paths::{self, LIBRARIES};
use runmig_lease::{programs, trust};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the path of the driver's library for this process. `root` is the path at which the process sees the node's
/// root folder.
///
/// A path that exists here stays as it is. The loader of the image knows none of the node's folders, so others are
/// searched below the root.
///
/// # Errors
/// No such library below the root.
pub(crate) fn library(root: &Path, library: &Path) -> Result<PathBuf> {
    if root == Path::new("/") || library.is_absolute() && library.exists() {
        return Ok(library.to_owned());
    }
    let found = match library.strip_prefix("/") {
        Ok(inside) => resolved(root, inside).ok(),
        Err(_) => { LIBRARIES.iter() }
            .find_map(|folder| resolved(root, &Path::new(folder).join(library)).ok()),
    };
    found.ok_or_else(|| {
        let (library, root) = (library.display(), root.display());
        Error::new(format!(
            "cannot find the NVIDIA driver library {library}: no folder for libraries below {root} has it"
        ))
        .hint("mount the root folder of NVIDIA's driver, and name it with --host-root")
    })
}

/// Removes a file if it is there.
pub(crate) fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn resolved(root: &Path, inside: &Path) -> io::Result<PathBuf> {
    let file = find(root, inside)?;
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Finds a file, and follows links as the node does, for which `root` is the root folder.
pub(crate) fn find(root: &Path, file: &Path) -> nix::Result<OwnedFd> {
    let root = open(root, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    openat2(&root, file, how)
}

/// Copies the hook beside this program into a folder of the node, completely or not at all. The engine may be running
/// the earlier one.
///
/// # Errors
/// A folder that users other than root can write to.
pub(crate) fn install_hook(folder: &Path) -> Result<()> {
    let installed = folder.join(programs::CLAIM);
    let what = || format!("install hook {}", installed.display());
    let ours = std::env::current_exe().context(what)?;
    let ours = ours.with_file_name(programs::CLAIM);
    fs::create_dir_all(folder).context(what)?;
    trust::folder(folder).context(what)?;
    let unfinished = installed.with_extension("new");
    let copied = fs::copy(&ours, &unfinished)
        .and_then(|_| fs::set_permissions(&unfinished, Permissions::from_mode(0o755)));
    put(&unfinished, &installed, copied).context(what)
}

/// Checks the program that the node's engine runs as root for each container with a claim. In a pod the folders above
/// the hook's mount are the image's, so the node's own are checked below `root` too.
///
/// # Errors
/// Others than root can write to the program or to a folder above it.
pub(crate) fn hook(root: &Path, hook: &Path) -> Result<PathBuf> {
    let check = |path: &Path| {
        let found = trust::program(path).context(|| format!("use hook {}", path.display()));
        let hint = "install runmig-claim beside runmig-dra, or name it with --claim-hook";
        found.map(|(found, _)| found).map_err(|e| e.hint(hint))
    };
    if root != Path::new("/") {
        check(&paths::inside(root, hook))?;
    }
    check(hook)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn follows_links_of_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let soname = Path::new("libnvidia-ml.so.1");
        let line = library(&root, soname).unwrap_err().line();
        assert!(line.contains("hint: mount the root folder"), "{line}");

        // Debian's alternatives are absolute links.
        for folder in ["usr/lib64", "etc/alternatives", "opt/nvidia"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("opt/nvidia/lib.so.570"), "").unwrap();
        symlink("/etc/alternatives/ml", root.join("usr/lib64").join(soname)).unwrap();
        symlink("/opt/nvidia/lib.so.570", root.join("etc/alternatives/ml")).unwrap();
        let its = root.join("opt/nvidia/lib.so.570");
        assert_eq!(library(&root, soname).unwrap(), its);
        let path = Path::new("/opt/nvidia/lib.so.570");
        assert_eq!(library(&root, path).unwrap(), its);
        // The folders of libraries are for names without one.
        assert!(library(&root, Path::new("/libnvidia-ml.so.1")).is_err());

        assert_eq!(library(Path::new("/"), soname).unwrap(), soname);
        assert_eq!(library(&root, &its).unwrap(), its);
    }

    #[test]
    fn checks_the_folders_of_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let program = Path::new("/bin/true");
        let folder = dir.path().join("bin");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("true"), "").unwrap();
        testkit::chmod(folder.join("true"), 0o755);
        assert!(hook(dir.path(), program).is_ok());
        testkit::chmod(&folder, 0o777);
        let line = hook(dir.path(), program).unwrap_err().line();
        assert!(line.starts_with("cannot use hook "), "{line}");
        assert!(line.contains("; hint: "), "{line}");
    }
}
