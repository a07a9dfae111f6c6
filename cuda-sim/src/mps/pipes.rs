//! The files of a daemon's pipe directory.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use fs2::FileExt;

use crate::protocol::{CONTROL, PRIVILEGED};
use crate::sys;

/// A pipe directory that belongs to this process until it ends.
pub struct Pipes {
    pub control: UnixListener,
    pub privileged: UnixListener,
    /// Locked as long as the daemon lives.
    pub lock: File,
}

/// Makes the files, those of an earlier daemon anew.
///
/// # Errors
/// Another daemon lives in the directory, or the path of a socket has more than 107 bytes.
pub fn create(dir: &Path) -> io::Result<Pipes> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)?;
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("control_lock"))?;
    if FileExt::try_lock_exclusive(&lock).is_err() {
        let text = "An instance of this daemon is already running";
        return Err(io::Error::other(text));
    }
    for name in [CONTROL, PRIVILEGED, "log", "nvidia-cuda-mps-control.pid"] {
        match fs::remove_file(dir.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    sys::make_fifo(&dir.join("log"), 0o644)?;
    let pid = format!("{}\0", std::process::id());
    fs::write(dir.join("nvidia-cuda-mps-control.pid"), pid)?;
    // Clients look for the first of them, so it is there last.
    let privileged = listen(&dir.join(PRIVILEGED), 0o755)?;
    let control = listen(&dir.join(CONTROL), 0o666)?;
    Ok(Pipes {
        control,
        privileged,
        lock,
    })
}

fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}
