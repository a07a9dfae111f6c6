//! Updates a container's resources on crun. Engines send their own device rules with an update, and these
//! lack the slice. crun applies them, and runc does not. Without device rules in the update, crun leaves the
//! container's own as they are.

use super::Front;
use super::args::Update;
use crate::spec::Document;
use nix::sys::memfd::{MFdFlags, memfd_create};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::files;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The most bytes of resources that runmig reads. Engines write some 2 KiB.
const LIMIT: u64 = 1024 * 1024;

/// Replaces this process with the low-level runtime, on the same resources without their device rules.
pub fn but_for_devices(front: &Front<'_>, update: &Update) -> Result<i32> {
    let bytes = match read(&update.resources) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::FileTooLarge && e.raw_os_error().is_none() => {
            let what = format!("update: the resources are longer than {LIMIT} bytes");
            return Err(Error::new(what).hint("give fewer"));
        }
        // The low-level runtime finds the same unreadable resources, and refuses them.
        Err(_) => return Err(front.runtime.exec(front.args)),
    };
    let what = || "hand the resources to the low-level runtime";
    // The descriptor stays open across the exec.
    let fd = memfd_create(c"resources", MFdFlags::empty()).context(what)?;
    let mut file = File::from(fd);
    file.write_all(&without_devices(&bytes)?).context(what)?;
    let mut args = front.args.to_vec();
    // crun uses the last `--resources`.
    let ours = format!("--resources=/proc/self/fd/{}", file.as_raw_fd());
    args.insert(update.options_end, OsString::from(ours));
    Err(front.runtime.exec(&args))
}

/// Opens the resources as crun does. They may come from a pipe, and then this waits for them.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let path = match path.to_str() {
        Some("-") => Path::new("/dev/stdin"),
        _ => path,
    };
    files::read_rest(File::open(path)?, LIMIT)
}

/// Returns the resources without their device rules. Refuses those that crun may read and runmig cannot: crun
/// takes comments, and ends a key at a NUL.
fn without_devices(bytes: &[u8]) -> Result<Vec<u8>> {
    let Ok(mut resources) = Document::parse(bytes) else {
        return Err(Error::new(
            "cannot take the device rules out of this update: its resources are no JSON object, or low-level runtimes differ in reading them",
        )
        .hint("give the resources as one JSON object, each key once"));
    };
    resources.root.shift_remove("devices");
    resources.to_bytes()
}
