//! An update of a container's resources, on crun: engines send their own rules for devices with it,
//! which know nothing of the slice, and crun, unlike runc, takes them. Without them it leaves the
//! container's as they are.

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

/// The most that we read of resources, in bytes. Engines write some 2 KiB.
const LIMIT: u64 = 1024 * 1024;

/// The low-level runtime takes our place, with the same resources but for the rules for devices.
pub fn but_for_devices(front: &Front<'_>, update: &Update) -> Result<i32> {
    let bytes = match read(&update.resources) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::FileTooLarge && e.raw_os_error().is_none() => {
            let what = format!("update: the resources are longer than {LIMIT} bytes");
            return Err(Error::new(what).hint("give fewer"));
        }
        // The low-level runtime refuses unreadable resources, and finds them as we did.
        Err(_) => return Err(front.runtime.exec(front.args)),
    };
    let what = || "hand the resources to the low-level runtime";
    // Stays open across the exec.
    let fd = memfd_create(c"resources", MFdFlags::empty()).context(what)?;
    let mut file = File::from(fd);
    file.write_all(&without_devices(&bytes)?).context(what)?;
    let mut args = front.args.to_vec();
    // The last one counts.
    let ours = format!("--resources=/proc/self/fd/{}", file.as_raw_fd());
    args.insert(update.options_end, OsString::from(ours));
    Err(front.runtime.exec(&args))
}

/// Opens it as crun does: it may be a pipe, which this waits for.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let path = match path.to_str() {
        Some("-") => Path::new("/dev/stdin"),
        _ => path,
    };
    files::read_rest(File::open(path)?, LIMIT)
}

/// Refuses what crun could read and we cannot: it takes comments, and ends a key at a NUL.
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
