//! Sockets that belong to root alone. Two processes of the driver have sockets side by side, while one takes over.

use crate::host::remove;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use runmig_lease::error::{Context, Error, Result};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;

/// The time that another process gets to open its sockets.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket in the file system. Its file goes with it.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    inode: u64,
}

/// Waits for other processes that open sockets in a folder, which this makes. Returns the right to open some, so that two
/// processes never choose one name.
pub(super) async fn turn(dir: &Path) -> Result<Flock<File>> {
    let what = || format!("open sockets in {}", dir.display());
    make(dir).context(what)?;
    let mut folder = File::open(dir).context(what)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(folder) => return Ok(folder),
            Err((back, Errno::EAGAIN | Errno::EINTR)) if Instant::now() < end => folder = back,
            Err((_, Errno::EAGAIN)) => {
                return Err(Error::new(format!(
                    "cannot open sockets in {}: another process has opened some there for {} seconds",
                    dir.display(),
                    PATIENCE.as_secs()
                ))
                .hint("end the other runmig-dra of this node"));
            }
            Err((_, e)) => return Err(e).context(what),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes sockets without a process from a folder. `is_ours` tells their names. The caller holds the turn.
pub(super) async fn remove_dead(dir: &Path, is_ours: impl Fn(&str) -> bool) -> Result<()> {
    let what = || format!("look for sockets in {}", dir.display());
    make(dir).context(what)?;
    for entry in fs::read_dir(dir).context(what)? {
        let entry = entry.context(what)?;
        let name = entry.file_name();
        if name.to_str().is_some_and(&is_ours) && !is_live(&entry.path()).await {
            remove(&entry.path()).context(what)?;
        }
    }
    Ok(())
}

impl Socket {
    /// Listens on a socket, and makes its folder. Returns the connections too. It takes the place of a socket that an
    /// earlier process left.
    ///
    /// The socket gets its name only after it belongs to root alone. The kubelet passes over names with a dot first.
    pub(super) fn listen(dir: &Path, name: &str) -> Result<(Socket, UnixListenerStream)> {
        let path = dir.join(name);
        let what = || format!("listen on {}", path.display());
        make(dir).context(what)?;
        let unfinished = dir.join(format!(".{name}.new"));
        remove(&unfinished).context(what)?;
        let listener = UnixListener::bind(&unfinished).context(what)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600)).context(what)?;
        let inode = inode(&unfinished).context(what)?;
        fs::rename(&unfinished, &path).context(what)?;
        Ok((Socket { path, inode }, UnixListenerStream::new(listener)))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A socket without a process is taken over by the next process, which may have done so already.
        if inode(&self.path).is_ok_and(|now| now == self.inode) {
            let _ = remove(&self.path);
        }
    }
}

fn make(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(dir)
}

/// Returns whether a process listens on a socket. A process that is too busy to answer lives.
pub(super) async fn is_live(path: &Path) -> bool {
    let dead = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
    match UnixStream::connect(path).await {
        Ok(_) => true,
        Err(e) => !dead.contains(&e.kind()),
    }
}

fn inode(path: &Path) -> std::io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn takes_over_left_socket() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("plugins");
        let [(first, _), (second, _)] =
            [(); 2].map(|()| Socket::listen(&folder, "a@b.sock").unwrap());
        assert_ne!(second.inode, first.inode);
        // The end of the earlier process spares the socket of the next.
        drop(first);
        let mode = fs::metadata(&second.path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        drop(second);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn removes_dead_sockets_alone() {
        let dir = tempfile::tempdir().unwrap();
        let _turn = turn(dir.path()).await.unwrap();
        let (live, _connections) = Socket::listen(dir.path(), "ours-1").unwrap();
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("ours-2")).unwrap());
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("other")).unwrap());
        let is_ours = |name: &str| name.starts_with("ours");
        remove_dead(dir.path(), is_ours).await.unwrap();
        let names = testkit::process::names_in(dir.path());
        assert_eq!(names, ["other", "ours-1"]);
        assert!(is_live(&live.path).await);
    }
}
