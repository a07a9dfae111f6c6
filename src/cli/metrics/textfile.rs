//! A file for node_exporter. The collector reads names that end in `.prom`, at any moment, so the text goes into a
//! hidden file beside it that replaces the old one in a single step.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::trust;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest wait for another writer, which takes a moment unless it is stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const GAP: Duration = Duration::from_millis(20);

/// The place of a file, and the folder that it stays in: a path that changes later does not lead elsewhere.
pub struct Textfile {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    /// The name of the file until it is whole.
    draft: OsString,
}

impl Textfile {
    /// Checks the place before any work is done for it.
    ///
    /// # Errors
    /// A name without `.prom`, a missing folder, one that others can write to, and a link in the place of the folder or
    /// the file.
    pub fn at(path: &Path) -> Result<Textfile> {
        let what = || format!("write {}", path.display());
        let name = path.file_name().filter(|name| is_read(name));
        let Some(name) = name else {
            return Err(Error::new("its name does not end in .prom")
                .hint("name it runmig.prom, since node_exporter reads no other names"))
            .context(what);
        };
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let folder = open_folder(folder).context(what)?;
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(".new");
        let file = Textfile {
            path: path.to_owned(),
            folder,
            name: name.to_owned(),
            draft,
        };
        file.check_target().context(what)?;
        Ok(file)
    }

    /// Refuses to replace anything but a file.
    fn check_target(&self) -> Result<()> {
        let found = fstatat(
            &self.folder,
            self.name.as_os_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        );
        let kind = match found {
            Err(Errno::ENOENT) => return Ok(()),
            found => kind(&found.context(|| "look at it")?),
        };
        match kind {
            SFlag::S_IFREG => Ok(()),
            SFlag::S_IFLNK => {
                Err(Error::new("it is a link").hint("name the file that it leads to"))
            }
            _ => Err(Error::new("it is no file").hint("name a file")),
        }
    }

    /// Replaces the file. After a kill the old one is still whole.
    pub fn replace(&self, text: &str) -> Result<()> {
        self.write(text)
            .context(|| format!("write {}", self.path.display()))
    }

    fn write(&self, text: &str) -> Result<()> {
        let mut draft = self.lock_draft()?;
        draft.set_len(0).context(|| "write its new version")?;
        let written = draft.write_all(text.as_bytes());
        // No umask of the caller hides the file from node_exporter.
        let written = written.and_then(|()| Ok(fchmod(&*draft, Mode::from_bits_truncate(0o644))?));
        let moved = written.and_then(|()| {
            Ok(renameat(
                &self.folder,
                self.draft.as_os_str(),
                &self.folder,
                self.name.as_os_str(),
            )?)
        });
        if moved.is_err() {
            let flags = nix::unistd::UnlinkatFlags::NoRemoveDir;
            let _ = nix::unistd::unlinkat(&self.folder, self.draft.as_os_str(), flags);
        }
        moved.context(|| format!("write its new version {}", self.draft.display()))
    }

    /// Opens the draft, alone. A killed writer leaves it over, and another writer may have it now.
    fn lock_draft(&self) -> Result<Flock<File>> {
        let flags = OFlag::O_WRONLY
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC;
        let what = || format!("open its new version {}", self.draft.display());
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            let opened = openat(
                &self.folder,
                self.draft.as_os_str(),
                flags,
                Mode::from_bits_truncate(0o600),
            );
            let draft = File::from(opened.context(what)?);
            let draft = match Flock::lock(draft, FlockArg::LockExclusiveNonblock) {
                Ok(draft) => draft,
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() < end => {
                    std::thread::sleep(GAP);
                    continue;
                }
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(Error::new("another process is writing it")
                        .hint("let it end, or end it if it is stopped"))
                    .context(what);
                }
                Err((_, e)) => return Err(e).context(what),
            };
            // The one before has moved it into its place meanwhile.
            let here = fstatat(
                &self.folder,
                self.draft.as_os_str(),
                AtFlags::AT_SYMLINK_NOFOLLOW,
            );
            let its = fstat(&*draft).context(what)?;
            if here.is_ok_and(|here| (here.st_dev, here.st_ino) == (its.st_dev, its.st_ino)) {
                return Ok(draft);
            }
        }
    }
}

/// Returns whether node_exporter reads a file of this name.
fn is_read(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".prom") && !name.as_bytes().starts_with(b".")
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Opens a folder in which no other user can put a file of ours in another's place.
fn open_folder(folder: &Path) -> Result<OwnedFd> {
    let what = || format!("open its folder {}", folder.display());
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = match openat(AT_FDCWD, folder, flags, Mode::empty()) {
        Err(Errno::ENOENT) => Err(Error::new("it is not there").hint(
            "install node_exporter, or name the folder of its --collector.textfile.directory",
        )),
        Err(Errno::ENOTDIR | Errno::ELOOP) => {
            Err(Error::new("it is a link or no folder").hint("name the folder itself"))
        }
        opened => opened.context(|| "open it"),
    }
    .context(what)?;
    let opened = File::from(opened);
    let meta = opened.metadata().context(what)?;
    trust::check_metadata(&meta).context(what)?;
    Ok(opened.into())
}
