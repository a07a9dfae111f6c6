//! Paths: those that mean the same before and after they exist, and those in a container.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// The folders in which distributions keep NVIDIA's library.
pub const LIBRARIES: [&str; 8] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",
    "lib",
];

/// Follows links as far as the path exists; the rest is taken as it is written, without `.` and
/// `..`. For an absolute path.
pub fn resolve(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            part => clean.push(part),
        }
        if let Ok(real) = std::fs::canonicalize(&clean) {
            clean = real;
        }
    }
    clean
}

/// The most links on the way to a path; the kernel follows as many.
const MOST_LINKS: usize = 40;

/// Goes along a path from the root, and returns where it ends; none after too many links. At each place `target` tells where
/// a link there leads. Its second argument is whether this is the last part of the path.
///
/// # Errors
/// Those of `target`.
pub fn walk<E>(
    path: &Path,
    mut target: impl FnMut(&Path, bool) -> Result<Option<PathBuf>, E>,
) -> Result<Option<PathBuf>, E> {
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components().rev();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut at, mut rest, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                match target(&next, rest.is_empty())? {
                    Some(_) if links == MOST_LINKS => return Ok(None),
                    Some(to) => {
                        links += 1;
                        rest.extend(parts(&to));
                    }
                    None => at = next,
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok(Some(at))
}

/// Returns an absolute path without `.`, `..` and doubled slashes, as low-level runtimes read a destination in a container. It
/// works on the text alone.
pub fn clean(path: impl AsRef<Path>) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.as_ref().components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => drop(out.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// Returns where a path that is absolute below a root lies.
pub fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns whether something is at a path, or where its link leads. What cannot be looked at counts as there.
pub fn is_there(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    !matches!(found, Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// Returns what is in a folder; nothing where it is missing.
///
/// # Errors
/// The folder cannot be read.
pub fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Returns what is in a folder; nothing where it cannot be read.
pub fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Returns paths as people read them.
pub fn shown(paths: &[PathBuf], joint: &str) -> String {
    let all: Vec<String> = { paths.iter() }
        .map(|path| path.display().to_string())
        .collect();
    all.join(joint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_path_alike_before_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(real.join("a")).unwrap();
        std::os::unix::fs::symlink("a", real.join("link")).unwrap();
        let path = real.join("link/./x/../root");
        assert_eq!(resolve(&path), real.join("a/root"));
        std::fs::create_dir(real.join("a/root")).unwrap();
        assert_eq!(resolve(&path), real.join("a/root"));
    }

    #[test]
    fn lists_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(list(dir.path()).unwrap(), [file.as_path()]);
        assert_eq!(
            list(&dir.path().join("gone")).unwrap(),
            [""; 0].map(PathBuf::from)
        );
        assert!(list(&file).is_err());
        assert_eq!(entries(&file).count(), 0);
        let (absolute, relative) = (Path::new("/a"), Path::new("a"));
        assert_eq!(
            [absolute, relative].map(|path| inside(Path::new("/root"), path)),
            ["/root/a"; 2].map(PathBuf::from)
        );
        assert!(
            is_there(&file)
                && !is_there(&file.join("below"))
                && !is_there(&dir.path().join("gone"))
        );
        assert_eq!(shown(&["/a".into(), "/b".into()], " and "), "/a and /b");
    }

    #[test]
    fn cleans_destinations_by_their_text() {
        for (path, expected) in [
            ("/a/./b//../c/", "/a/c"),
            ("/../../a", "/a"),
            ("a/b", "/a/b"),
            ("", "/"),
        ] {
            assert_eq!(clean(path), Path::new(expected), "{path}");
        }
    }
}
