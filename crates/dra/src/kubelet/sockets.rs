//! Sockets that belong to root alone.

use runmig_lease::error::{Context, Error, Result};
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// A socket in the file system. Its file goes with it.
pub(super) struct Socket {
    path: PathBuf,
    inode: u64,
    listener: Option<UnixListener>,
}

impl Socket {
    /// Listens on a socket, and makes its folder. It takes the place of a socket that an earlier process left.
    ///
    /// The socket gets its name only after it belongs to root alone. The kubelet passes over names with a dot first.
    pub(super) fn listen(dir: &Path, name: &str) -> Result<Socket> {
        let path = dir.join(name);
        let what = || format!("listen on {}", path.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(dir)
            .context(what)?;
        let unfinished = dir.join(format!(".{name}.new"));
        remove(&unfinished).context(what)?;
        let listener = UnixListener::bind(&unfinished).context(what)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600)).context(what)?;
        let inode = inode(&unfinished).context(what)?;
        fs::rename(&unfinished, &path).context(what)?;
        Ok(Socket {
            path,
            inode,
            listener: Some(listener),
        })
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the connections to the socket.
    pub(super) fn connections(&mut self) -> Result<UnixListenerStream> {
        let listener = self.listener.take();
        let listener = listener.ok_or_else(|| Error::new("the socket is served already"))?;
        Ok(UnixListenerStream::new(listener))
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

fn inode(path: &Path) -> std::io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.ino())
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn takes_over_left_socket() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("plugins");
        let first = Socket::listen(&folder, "a@b.sock").unwrap();
        let second = Socket::listen(&folder, "a@b.sock").unwrap();
        assert_ne!(second.inode, first.inode);
        // The end of the earlier process spares the socket of the next.
        drop(first);
        let mode = fs::metadata(second.path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        drop(second);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
