//! Finds the source of a bind mount on the host. A name proves nothing (`-v /dev/nvidia4:/x`, `-v
//! /dev/zero:/dev/nvidia4`); the device number and the inode do.

use runmig_lease::error::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Absent,
    CharDevice {
        major: u32,
        minor: u32,
    },
    /// The host's /dev, where nodes come and go.
    Dev,
    /// A directory of the driver's nodes, or a file of the driver in /proc.
    Driver,
    Other,
}

/// Returns a function that finds the source at a path. It follows links on the host, as the low-level runtime does. A
/// relative path starts at the bundle.
pub fn sources(bundle: &Path, driver_root: &Path) -> impl Fn(&Path) -> Result<Source> + use<> {
    // The second is another than the first where the driver is installed elsewhere.
    let mut roots = vec![PathBuf::from("/")];
    roots.extend(fs::canonicalize(driver_root).ok());
    roots.dedup();
    let bundle = bundle.to_owned();
    move |path| source(&bundle.join(path), &roots)
}

fn source(path: &Path, roots: &[PathBuf]) -> Result<Source> {
    let what = || format!("look at mount source {}", path.display());
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Source::Absent);
        }
        Err(e) => return Err(e).context(what),
    };
    if meta.file_type().is_char_device() {
        return Ok(Source::CharDevice {
            major: libc::major(meta.rdev()),
            minor: libc::minor(meta.rdev()),
        });
    }
    let real = fs::canonicalize(path).context(what)?;
    for root in roots {
        let dev = root.join("dev");
        let same = |other: fs::Metadata| (other.dev(), other.ino()) == (meta.dev(), meta.ino());
        if fs::metadata(&dev).is_ok_and(same) {
            return Ok(Source::Dev);
        }
        if of_driver(&real, &dev) || of_driver(&real, &root.join("proc/driver")) {
            return Ok(Source::Driver);
        }
    }
    Ok(Source::Other)
}

/// Returns whether the path is `<dir>/nvidia…` or below it.
fn of_driver(path: &Path, dir: &Path) -> bool {
    path.strip_prefix(dir)
        .ok()
        .and_then(|rest| rest.components().next())
        .is_some_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"nvidia"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn resolves_sources_to_devices() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        make("dev/nvidia-caps/nvidia-cap12");
        make("dev/shm/x");
        make("proc/driver/nvidia/gpus/0/information");
        make("bundle/data");
        symlink("/dev/null", root.path().join("bundle/link")).unwrap();
        symlink("../dev", root.path().join("bundle/devices")).unwrap();
        let host = sources(&root.path().join("bundle"), root.path());
        let look = |path: &str| {
            let path = path.replace("ROOT", root.path().to_str().unwrap());
            host(Path::new(&path)).unwrap()
        };
        let null = Source::CharDevice { major: 1, minor: 3 };
        for (path, want) in [
            ("/dev/null", null),
            ("link", null),
            ("ROOT/bundle/link", null),
            ("/dev", Source::Dev),
            ("/dev/../dev/.", Source::Dev),
            ("/proc/self/root/dev", Source::Dev),
            ("devices", Source::Dev),
            ("ROOT/dev", Source::Dev),
            ("ROOT/dev/nvidia-caps", Source::Driver),
            ("devices/nvidia-caps/nvidia-cap12", Source::Driver),
            ("ROOT/proc/driver/nvidia", Source::Driver),
            ("ROOT/proc/driver/nvidia/gpus", Source::Driver),
            ("ROOT/proc", Source::Other),
            ("ROOT/dev/shm", Source::Other),
            ("data", Source::Other),
            ("/", Source::Other),
            ("absent", Source::Absent),
            ("data/absent", Source::Absent),
        ] {
            assert_eq!(look(path), want, "{path}");
        }
    }
}
