//! Bounded reading of files that only root can change.

use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::paths;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads a file that only root and this process's user can write to.
///
/// # Errors
/// The file cannot be read, is longer than `max` bytes or not UTF-8, or others can write to it.
pub fn read_to_string(file: &Path, max: u64) -> Result<String> {
    let opened = files::open(file, Links::Follow).map_err(plain)?;
    check_metadata(&opened.meta)?;
    follow(file)?;
    opened.read_text(max).map_err(plain)
}

/// A program that runs as root: the file that its path leads to, every folder and every link on the way
/// belong to root alone. Returns the canonical path and the file's metadata.
pub fn program(path: &Path) -> Result<(PathBuf, Metadata)> {
    let (canonical, meta) = follow(path)?;
    if !meta.is_file() || meta.mode() & 0o111 == 0 {
        return Err(Error::new("it is not an executable file"));
    }
    check_metadata(&meta)?;
    Ok((canonical, meta))
}

/// Checks a library that root loads, as `program`.
pub fn library(path: &Path) -> Result<()> {
    let (_, meta) = follow(path)?;
    if !meta.is_file() {
        return Err(Error::new("it is not a file"));
    }
    check_metadata(&meta)
}

/// Returns where a path leads, and what is there. Only root can make it lead elsewhere: each link on
/// the way is root's, in a folder where others cannot replace it.
fn follow(path: &Path) -> Result<(PathBuf, Metadata)> {
    let path = std::path::absolute(path).map_err(plain)?;
    let mut there = None;
    let end = paths::walk(&path, |at, is_end| {
        let meta = std::fs::symlink_metadata(at).map_err(plain)?;
        if meta.is_symlink() {
            check_owner(&meta).because(|| at.display().to_string())?;
            return std::fs::read_link(at).map(Some).map_err(plain);
        }
        match is_end {
            true => there = Some(meta),
            false => check_folder(at, &meta)?,
        }
        Ok(None)
    })?;
    let end = end.ok_or_else(|| Error::new("it has too many links"))?;
    // None where the way ends with `..`.
    let meta = match there {
        Some(meta) => meta,
        None => std::fs::symlink_metadata(&end).map_err(plain)?,
    };
    Ok((end, meta))
}

/// Checks all folders above a canonical path but `/`. In a folder with the sticky bit (`/tmp`) users cannot
/// replace each other's files, so such a folder may be above it.
fn check_above(canonical: &Path) -> Result<()> {
    let mut at = canonical.ancestors().skip(1);
    at.try_for_each(|folder| match folder.parent() {
        None => Ok(()),
        Some(_) => check_folder(folder, &std::fs::symlink_metadata(folder).map_err(plain)?),
    })
}

/// Checks a folder above a trusted file.
fn check_folder(path: &Path, meta: &Metadata) -> Result<()> {
    let sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
    check_owner(meta)
        .and_then(|()| if sticky { Ok(()) } else { check_mode(meta) })
        .map_err(|e| of_folder(path, e))
        .because(|| path.display().to_string())
}

/// Returns the error with the command that gives the folder to root alone: the line may name other folders too.
fn of_folder(path: &Path, e: Error) -> Error {
    let shown = path.display();
    e.hint(format!("chown root: {shown} && chmod go-w {shown}"))
}

/// Checks a folder that holds runmig's own files. The sticky bit does not help there, since another user
/// could create a file of runmig's name first.
///
/// # Errors
/// The path is not a folder, or users other than root can write to it or to a folder above it.
pub fn folder(path: &Path) -> Result<()> {
    room_for(path)?;
    match std::fs::metadata(path).map_err(plain)?.is_dir() {
        true => Ok(()),
        false => Err(Error::new("it is not a folder")),
    }
}

/// Checks the place for a new folder: the existing part of its path belongs to root alone.
pub fn room_for(path: &Path) -> Result<()> {
    let resolved = paths::resolve(path);
    let there = |at: &&Path| std::fs::symlink_metadata(at).is_ok();
    let last = resolved.ancestors().find(there).unwrap_or(Path::new("/"));
    if last.is_symlink() {
        let why = format!("{} is a link that leads nowhere", last.display());
        return Err(Error::new(why).hint("remove it"));
    }
    check_above(last)?;
    let meta = std::fs::symlink_metadata(last).map_err(plain)?;
    let checked = check_metadata(&meta).map_err(|e| of_folder(last, e));
    match last == resolved {
        true => checked,
        false => checked.because(|| last.display().to_string()),
    }
}

/// Checks the owner and the mode of an open file or folder.
///
/// # Errors
/// An owner other than root and this process's user, and a mode that lets others write.
pub fn check_metadata(meta: &Metadata) -> Result<()> {
    check_owner(meta)?;
    check_mode(meta)
}

fn check_owner(meta: &Metadata) -> Result<()> {
    let me = nix::unistd::geteuid().as_raw();
    if meta.uid() == 0 || meta.uid() == me || is_unmapped_root(meta.uid()) {
        return Ok(());
    }
    Err(Error::new(format!("belongs to user {}, not to root", meta.uid())).hint("chown it to root"))
}

/// Returns whether the id is the host's root in a user namespace that does not map it. There it shows
/// as the overflow id, like every unmapped user. runmig has no rights of the host there, so that is no
/// door. If `/proc` does not tell, that id is a user like any other.
fn is_unmapped_root(uid: u32) -> bool {
    let overflow = || files::read_text(Path::new("/proc/sys/kernel/overflowuid"), 64).ok();
    maps_all_users() == Some(false) && overflow().is_some_and(|id| id.trim() == uid.to_string())
}

fn check_mode(meta: &Metadata) -> Result<()> {
    if meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::new(format!(
        "users other than root can write to it (mode {:04o})",
        meta.mode() & 0o7777
    ))
    .hint("chmod go-w it"))
}

/// Whether we are root on the host, not the root of a user namespace: there the effective id says 0
/// as well.
pub fn is_host_root() -> bool {
    nix::unistd::geteuid().is_root() && maps_all_users() == Some(true)
}

/// Whether this process is in the first user namespace, or in one that maps every user to itself. None
/// where `/proc` does not tell.
fn maps_all_users() -> Option<bool> {
    /// The kernel allows no more than a page of them.
    const MAX_MAP: u64 = 64 * 1024;
    let map = files::read_text(Path::new("/proc/self/uid_map"), MAX_MAP).ok()?;
    let words: Vec<&str> = map.split_ascii_whitespace().take(3).collect();
    Some(words == ["0", "0", "4294967295"])
}

fn plain(e: std::io::Error) -> Error {
    use std::io::ErrorKind;
    Error::new(match e.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x = 1").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn refuses_files_writable_by_others() {
        let (_dir, path) = file(0o646);
        let line = read_to_string(&path, 10).unwrap_err().line();
        assert_eq!(
            line,
            "users other than root can write to it (mode 0646); hint: chmod go-w it"
        );
    }

    #[test]
    fn bounds_size_of_files() {
        let (_dir, path) = file(0o600);
        assert_eq!(read_to_string(&path, 5).unwrap(), "x = 1");
        assert!(read_to_string(&path, 4).is_err());
    }

    #[test]
    fn follows_only_links_of_root() {
        use std::os::unix::fs::symlink;
        let (dir, path) = file(0o600);
        let (open, links) = (dir.path().join("open"), dir.path().join("links"));
        std::fs::create_dir(&links).unwrap();
        std::fs::create_dir(&open).unwrap();
        symlink("../f", links.join("relative")).unwrap();
        symlink(links.join("relative"), links.join("twice")).unwrap();
        symlink(&path, open.join("own")).unwrap();
        symlink(open.join("own"), links.join("through")).unwrap();
        symlink("loop", links.join("loop")).unwrap();
        let read = |name: &str| read_to_string(&links.join(name), 10).map_err(|e| e.line());
        for name in ["relative", "twice", "through"] {
            assert_eq!(read(name).unwrap(), "x = 1", "{name}");
        }
        assert!(read("loop").is_err());
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        let line = read("through").unwrap_err();
        assert!(
            line.contains("/open: users other than root can write"),
            "{line}"
        );
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(
            read("through").is_ok(),
            "nobody can replace a link of root's there"
        );
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::lchown(open.join("own"), Some(65), Some(65)).unwrap();
            let line = read("through").unwrap_err();
            assert!(line.contains("/own: belongs to user 65"), "{line}");
        }
    }

    #[test]
    fn refuses_program_in_foreign_folder() {
        let (dir, path) = file(0o755);
        assert!(program(&path).is_ok());
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(
            program(&path)
                .unwrap_err()
                .line()
                .contains("users other than root")
        );
    }

    #[test]
    fn refuses_program_linked_from_foreign_folder() {
        let (dir, path) = file(0o755);
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::os::unix::fs::symlink(&path, open.join("link")).unwrap();
        let (canonical, meta) = program(&open.join("link")).unwrap();
        assert_eq!(canonical, std::fs::canonicalize(&path).unwrap());
        assert!(meta.is_file());
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        let line = program(&open.join("link")).unwrap_err().line();
        assert!(
            line.contains("/open: users other than root can write"),
            "{line}"
        );
    }

    #[test]
    fn says_plainly_what_keeps_a_file_from_being_read() {
        for (errno, words) in [
            (libc::ENOENT, "no such file or directory"),
            (libc::EACCES, "permission denied"),
            (libc::EISDIR, "Is a directory (os error 21)"),
        ] {
            let e = plain(std::io::Error::from_raw_os_error(errno));
            assert_eq!(e.line(), words);
        }
    }

    #[test]
    fn proc_tells_who_is_root_on_the_host() {
        let all = maps_all_users().unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        assert_eq!(is_host_root(), is_root && all);
    }
}
