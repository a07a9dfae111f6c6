//! Reads the config.json of a bundle, replaces it atomically and restores it.
//!
//! ```text
//! <bundle>/config.json          the file that the low-level runtime reads
//! <bundle>/config.json.runmig   the sidecar: one line of JSON (the edit's author, the hashes of runmig's
//!                               files), then the original bytes; runmig writes it before config.json
//! <bundle>/.config.json.runmig-PID-N   an unfinished file; only a killed writer leaves one
//! ```
//!
//! The hashes tell the writer of config.json. A file with one of them is runmig's edit, and the original is
//! in the sidecar. A file with none of them is runmig's edit if it still has the hook of that lease.
//! nvidia-container-runtime rewrites the edit so, with edits of its own. Any other file is a new one of the
//! engine, and the sidecar is out of date. So a kill between any two steps leaves a state that the next
//! call understands.

use super::document::LIMIT;
use super::edit::strip;
use super::peek::{Peek, peek};
use super::sidecar::Sidecar;
use super::{env, hooks};
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fstat};
use runmig_lease::Author;
use runmig_lease::effect;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::files::{self, Links, Opened};
use runmig_lease::model::{LeaseId, NvidiaNumbers};
use runmig_lease::{paths, trust};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const CONFIG: &str = "config.json";
const SIDECAR: &str = "config.json.runmig";
const TEMPORARY: &str = ".config.json.runmig-";

/// An open bundle directory. runmig reads and replaces files in the same directory, even after its path
/// changes.
#[derive(Debug)]
pub struct Bundle {
    dir: File,
    path: PathBuf,
}

/// Returns whether a config.json is the edit of the sidecar's original: as runmig wrote it, or as the
/// low-level runtime rewrote it. An engine's new file has no hook of an earlier lease.
fn is_edit_of(bytes: &[u8], sidecar: &Sidecar) -> bool {
    sidecar.wrote(bytes) || hooks::edit_for(bytes, &sidecar.author.lease).is_some()
}

/// Peeks at a file other than a bundle's config.json: crun's `--config` names one.
pub fn peek_config(file: &Path, reads_all: bool) -> Result<Peek> {
    let missing = || Error::new(format!("cannot find {}", file.display()));
    let dir = file.parent().filter(|p| !p.as_os_str().is_empty());
    let dir = Bundle::open(dir.unwrap_or(Path::new(".")))?;
    let name = file.file_name().and_then(|n| n.to_str());
    let name = name.ok_or_else(missing)?;
    dir.peek_file(name, reads_all)?.ok_or_else(missing)
}

/// Returns whether the bundle or its config.json has been removed. A rewritten file counts as there, and so
/// does an unreadable one.
pub fn is_gone(bundle: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let looked = std::fs::symlink_metadata(bundle.join(CONFIG));
    looked.is_err_and(|e| matches!(e.kind(), NotFound | NotADirectory))
}

/// Returns whether the path has no bundle any more. In doubt it returns false.
pub fn is_removed(bundle: &Path) -> bool {
    !paths::is_there(bundle)
}

impl AsFd for Bundle {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Bundle {
    /// Returns whether runmig can look at a bundle without waiting for its file system. It asks for each
    /// file that runmig reads there.
    pub fn answers(path: &Path) -> bool {
        runmig_lease::process::answers(&[path.to_owned(), path.join(CONFIG), path.join(SIDECAR)])
    }

    /// Opens a bundle. The path may be a link, as it may for runc.
    #[allow(clippy::disallowed_methods)] // It only reads.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(path, flags, Mode::empty())
            .context(|| format!("open bundle {}", path.display()))?;
        Ok(Bundle {
            dir: dir.into(),
            path: path.to_owned(),
        })
    }

    /// Peeks for a request in config.json, which may be a link, as for runc. An edit lacks the marks of CDI devices, so its
    /// original tells, if there is one.
    pub fn peek(&self, reads_all: bool) -> Result<Peek> {
        let seen = self.peek_file(CONFIG, reads_all)?;
        let seen = seen.ok_or_else(|| self.missing())?;
        if !seen.marked {
            return Ok(seen);
        }
        match self.config_and_kept()?.2 {
            Some(original) => Ok(Peek {
                marked: true,
                ..super::peek::peek_for(&original, reads_all)?
            }),
            None => Ok(seen),
        }
    }

    fn peek_file(&self, file: &str, reads_all: bool) -> Result<Option<Peek>> {
        let Some(opened) = self.open_file(file, Links::Follow)? else {
            return Ok(None);
        };
        let what = || format!("read {}", self.name(file));
        let seen = super::peek::peek_file(&opened.file, reads_all);
        seen.context(what)?.map(Some)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the device and inode numbers of the directory.
    pub fn id(&self) -> Result<(u64, u64)> {
        let stat = fstat(&self.dir).context(|| format!("look at {}", self.path.display()))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Returns the engine's file, also from under the edit of an earlier create. `unmarked`: bytes known to have no
    /// hook of runmig.
    pub fn original(&self, numbers: &NvidiaNumbers, unmarked: Option<&[u8]>) -> Result<Vec<u8>> {
        let (now, _, kept) = self.config_and_kept()?;
        match kept {
            Some(original) => Ok(original),
            None if unmarked == Some(&now) => Ok(now),
            None if peek(&now)?.marked => strip(&now, numbers),
            None => Ok(now),
        }
    }

    /// Replaces config.json by `edited`, after it has saved `original` in the sidecar.
    pub fn install(&self, author: Author, original: &[u8], edited: &[u8]) -> Result<()> {
        self.remove_leftovers();
        let (now, stat, kept) = self.config_and_kept()?;
        let mut sidecar = Sidecar::new(author, original, edited);
        if kept.is_some() {
            // Until the rename below, the file is still the earlier edit.
            sidecar.also_wrote(&now);
        }
        self.replace(SIDECAR, &sidecar.bytes()?, None)?;
        let replaced = self.replace(CONFIG, edited, Some(&stat));
        if replaced.is_err() {
            // config.json is unchanged, so no sidecar may stay.
            let _ = self.restore(&sidecar.author.lease);
        }
        replaced
    }

    /// Restores the original if the file is still the one that the lease's create wrote. It is idempotent.
    pub fn restore(&self, lease: &LeaseId) -> Result<()> {
        self.remove_leftovers();
        let sidecar = self.sidecar()?;
        let Some(sidecar) = sidecar.filter(|sidecar| sidecar.author.lease == *lease) else {
            return Ok(());
        };
        if let Some((now, stat)) = self.read_file(CONFIG, LIMIT, Links::Refuse)?
            && now != sidecar.original
            && is_edit_of(&now, &sidecar)
        {
            self.replace(CONFIG, &sidecar.original, Some(&stat))?;
        }
        self.remove_sidecar()
    }

    /// Returns the author of the edit that the sidecar belongs to.
    pub fn author(&self) -> Result<Option<Author>> {
        Ok(self.sidecar()?.map(|sidecar| sidecar.author))
    }

    /// Returns the MIG devices that the edit of this lease names. An unreadable file counts as naming none.
    pub fn granted_to(&self, lease: &LeaseId) -> Vec<String> {
        let found = self.read_file(CONFIG, LIMIT, Links::Follow).ok().flatten();
        let edit = found.and_then(|(bytes, _)| hooks::edit_for(&bytes, lease));
        edit.map_or(Vec::new(), |edit| env::granted(&edit))
    }

    /// Restores the engine's file from under any lease's edit, for a container that has no request any
    /// more.
    pub fn restore_original(&self, numbers: &NvidiaNumbers) -> Result<()> {
        let original = self.original(numbers, None)?;
        let (now, stat) = self.config()?;
        if now != original {
            self.replace(CONFIG, &original, Some(&stat))?;
        }
        self.remove_sidecar()
    }

    fn remove_sidecar(&self) -> Result<()> {
        self.unlink(SIDECAR)
            .and_then(|()| effect::sync(&self.dir))
            .context(|| format!("remove {}", self.name(SIDECAR)))
    }

    fn name(&self, file: &str) -> String {
        self.path.join(file).display().to_string()
    }

    fn missing(&self) -> Error {
        Error::new(format!(
            "cannot find {CONFIG} in bundle {}",
            self.path.display()
        ))
    }

    /// Reads the file to edit, and refuses a link. Through a link runmig would replace the link and leave
    /// its target, and the next create would not find its original.
    fn config(&self) -> Result<(Vec<u8>, Metadata)> {
        self.read_file(CONFIG, LIMIT, Links::Refuse)?
            .ok_or_else(|| self.missing())
    }

    /// Reads the file to edit, and the original that a sidecar keeps if the file is its edit.
    fn config_and_kept(&self) -> Result<(Vec<u8>, Metadata, Option<Vec<u8>>)> {
        let (now, stat) = self.config()?;
        let sidecar = self.sidecar()?;
        let kept = sidecar.filter(|sidecar| is_edit_of(&now, sidecar));
        Ok((now, stat, kept.map(|sidecar| sidecar.original)))
    }

    /// Reads the sidecar. A sidecar of another user, a damaged one and a newer version's count as none.
    /// runmig strips an edit without a sidecar.
    fn sidecar(&self) -> Result<Option<Sidecar>> {
        let limit = LIMIT + Sidecar::HEADER_LIMIT;
        let Some((bytes, meta)) = self.read_file(SIDECAR, limit, Links::Refuse)? else {
            return Ok(None);
        };
        // The original becomes config.json again, whose hooks run as root. So the sidecar must be root's
        // alone.
        let ours = trust::check_metadata(&meta).is_ok();
        Ok(ours.then(|| Sidecar::parse(bytes)).flatten())
    }

    fn read_file(
        &self,
        file: &str,
        limit: u64,
        links: Links,
    ) -> Result<Option<(Vec<u8>, Metadata)>> {
        let Some(opened) = self.open_file(file, links)? else {
            return Ok(None);
        };
        let meta = opened.meta.clone();
        let bytes = opened.read(limit);
        let bytes = bytes.context(|| format!("read {}", self.name(file)))?;
        Ok(Some((bytes, meta)))
    }

    fn open_file(&self, file: &str, links: Links) -> Result<Option<Opened>> {
        match files::if_there(files::open_at(&self.dir, Path::new(file), links)) {
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                let hint = if file == CONFIG {
                    "a config.json that gets a slice is replaced, so it has to be a file"
                } else {
                    "nothing of ours is one; remove it"
                };
                Err(Error::new(format!("{} is a link", self.name(file))).hint(hint))
            }
            opened => opened.context(|| format!("read {}", self.name(file))),
        }
    }

    /// Replaces a file atomically, with the mode and owner of `like`. Without `like` only root can read it,
    /// because an original holds the container's environment.
    fn replace(&self, file: &str, bytes: &[u8], like: Option<&Metadata>) -> Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{TEMPORARY}{}-{count}", std::process::id());
        self.write(&temporary, bytes, like)
            .and_then(|()| effect::rename_at(&self.dir, &temporary, file))
            .and_then(|()| effect::sync(&self.dir))
            .map_err(|e| {
                let _ = self.unlink(&temporary);
                Error::new(format!("cannot write {}", self.name(file))).caused_by(e)
            })
    }

    fn write(&self, file: &str, bytes: &[u8], like: Option<&Metadata>) -> io::Result<()> {
        let mut out = effect::create_at(&self.dir, file)?;
        if let Some(like) = like {
            effect::set_owner_of(&out, like.uid(), like.gid())?;
            // The mode follows the owner: a change of owner clears mode bits.
            effect::set_mode_of(&out, like.mode())?;
        }
        effect::write_all(&mut out, bytes)?;
        effect::sync(&out)
    }

    fn unlink(&self, file: &str) -> io::Result<()> {
        files::if_there(effect::remove_file_at(&self.dir, file)).map(drop)
    }

    /// Removes the files of killed writers. A leftover file does no harm.
    fn remove_leftovers(&self) {
        let path = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        for left in paths::entries(Path::new(&path)) {
            let name = left.file_name().unwrap_or_default();
            if name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
                let _ = effect::remove_file_at(&self.dir, name);
            }
        }
    }
}
