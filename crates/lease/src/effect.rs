//! The one door for effects: every change that this package, the sidecar and `config.json` make outside of this process.
//!
//! A test has to be able to stop a process before each of its effects. So files, locks, processes, cgroups and the driver are
//! changed only by the functions here, each of which is one effect, and clippy refuses the others (`clippy.toml`). With the
//! feature `effects` a test hears of each effect before it happens, and may end the process there or refuse the effect
//! (`tests/matrices/kills`). Without it nothing of that is in the program.

#![allow(clippy::disallowed_methods)]

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::process::{Child, Command};

/// The kinds of effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file is opened for writing, and made if it is missing.
    Open,
    /// Bytes are written.
    Write,
    /// A file is cut to a length.
    Cut,
    /// A file or a folder is synced.
    Sync,
    /// A file takes the place of another.
    Rename,
    /// A file gets a second name.
    Link,
    /// A name of a file goes.
    Unlink,
    /// A folder is made.
    MakeDir,
    /// A folder goes.
    RemoveDir,
    /// A mode changes.
    Mode,
    /// An owner changes.
    Owner,
    /// A lock is tried.
    Lock,
    /// A process that does not get a lock, or is told to try again, begins to wait for another process.
    Wait,
    /// A process starts.
    Start,
    /// A process is killed.
    Kill,
    /// The driver is called to change something.
    Driver,
}

#[cfg(feature = "effects")]
mod heard {
    use super::{Kind, io};
    use std::sync::Mutex;

    /// Hears of an effect before it happens. An error takes its place.
    pub type Hook = fn(Kind, &str) -> io::Result<()>;

    static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

    /// Sets the hook of this process.
    pub fn hear(hook: Option<Hook>) {
        *HOOK.lock().expect(super::MARK) = hook;
    }

    #[inline(never)]
    pub(super) fn tell(kind: Kind, what: &str) -> io::Result<()> {
        let hook = *HOOK.lock().expect(super::MARK);
        hook.map_or(Ok(()), |hook| hook(kind, what))
    }
}

#[cfg(feature = "effects")]
pub use heard::{Hook, hear};

/// Words that only a program with the feature contains. `scripts/package` looks for them.
#[cfg(feature = "effects")]
const MARK: &str = "runmig was built with the feature effects, for tests";

/// Says that an effect comes next. For what no other function here does.
#[inline(always)]
pub(crate) fn effect(kind: Kind, what: impl AsRef<Path>) -> io::Result<()> {
    #[cfg(feature = "effects")]
    return heard::tell(kind, &what.as_ref().to_string_lossy());
    #[cfg(not(feature = "effects"))]
    {
        let _ = (kind, what);
        Ok(())
    }
}

/// Says that a call comes next that changes what the driver has. The simulated driver injects its errors.
#[inline(always)]
pub(crate) fn driver(function: &'static str) {
    let _ = effect(Kind::Driver, function);
}

/// Says that this process waits for another one from now on.
#[inline(always)]
pub(crate) fn wait(what: impl AsRef<Path>) {
    let _ = effect(Kind::Wait, what);
}

/// Opens a file for writing.
pub fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    effect(Kind::Open, path)?;
    options.open(path)
}

/// Makes a new file for this user alone, and opens it for writing.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    open(
        OpenOptions::new().write(true).create_new(true).mode(0o600),
        path,
    )
}

/// Opens a file and writes it as a whole: for files of the kernel, which take one write.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    effect(Kind::Write, path)?;
    std::fs::write(path, bytes)
}

/// Writes to an open file or pipe.
pub fn write_all(file: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    effect(Kind::Write, "")?;
    file.write_all(bytes)
}

/// Writes to an open file once. Returns the number of bytes that were written.
pub(crate) fn write_some(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    effect(Kind::Write, "")?;
    file.write(bytes)
}

/// Cuts an open file to a length.
pub fn set_len(file: &File, length: u64) -> io::Result<()> {
    effect(Kind::Cut, "")?;
    file.set_len(length)
}

/// Syncs an open file or folder.
pub fn sync(file: &File) -> io::Result<()> {
    effect(Kind::Sync, "")?;
    file.sync_all()
}

/// Renames a file.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    effect(Kind::Rename, to)?;
    std::fs::rename(from, to)
}

/// Gives a file a second name.
pub fn hard_link(file: &Path, name: &Path) -> io::Result<()> {
    effect(Kind::Link, name)?;
    std::fs::hard_link(file, name)
}

/// Removes a file.
pub fn remove_file(path: &Path) -> io::Result<()> {
    effect(Kind::Unlink, path)?;
    std::fs::remove_file(path)
}

/// Removes an empty folder.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    effect(Kind::RemoveDir, path)?;
    std::fs::remove_dir(path)
}

/// Removes a folder and all below it.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    effect(Kind::RemoveDir, path)?;
    std::fs::remove_dir_all(path)
}

/// Makes a folder.
pub fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    effect(Kind::MakeDir, path)?;
    DirBuilder::new().mode(mode).create(path)
}

/// Makes a folder, and those above it, unless it is there.
pub fn make_dir_all(path: &Path, mode: u32) -> io::Result<()> {
    effect(Kind::MakeDir, path)?;
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// Sets the mode of a file or folder.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    effect(Kind::Mode, path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Sets the mode of an open file.
pub fn set_mode_of(file: &File, mode: u32) -> io::Result<()> {
    effect(Kind::Mode, "")?;
    Ok(fchmod(file, Mode::from_bits_truncate(mode))?)
}

/// Sets the owner and the group of an open file.
pub fn set_owner_of(file: &File, uid: u32, gid: u32) -> io::Result<()> {
    effect(Kind::Owner, "")?;
    fchown(file, Some(uid), Some(gid))
}

/// Makes a new file in an open folder, and opens it for writing.
pub fn create_at(dir: impl AsFd, name: &str) -> io::Result<File> {
    effect(Kind::Open, name)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    Ok(openat(dir, name, flags, Mode::from_bits_truncate(0o600))?.into())
}

/// Renames a file within an open folder.
pub fn rename_at(dir: impl AsFd, from: &str, to: &str) -> io::Result<()> {
    effect(Kind::Rename, to)?;
    Ok(renameat(&dir, from, &dir, to)?)
}

/// Removes a file from an open folder.
pub fn remove_file_at(dir: impl AsFd, name: impl AsRef<Path>) -> io::Result<()> {
    effect(Kind::Unlink, name.as_ref())?;
    Ok(unlinkat(dir, name.as_ref(), UnlinkatFlags::NoRemoveDir)?)
}

/// Locks a file until it is closed. Returns false if another process holds the lock.
pub fn try_lock(file: &File) -> io::Result<bool> {
    effect(Kind::Lock, "")?;
    match fs2::FileExt::try_lock_exclusive(file) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

/// Waits for the lock of a file.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    fs2::FileExt::lock_exclusive(file)
}

/// Locks a byte of a file until it is closed. Returns false if another process holds it and this one is not to wait.
pub(crate) fn lock_byte(file: &File, start: i64, waits: bool) -> io::Result<bool> {
    let byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: 1,
        l_pid: 0,
    };
    effect(Kind::Lock, "")?;
    let mut locked = fcntl(file, FcntlArg::F_OFD_SETLK(&byte));
    let is_held = |e: &Errno| matches!(e, Errno::EAGAIN | Errno::EACCES);
    if waits && locked.as_ref().is_err_and(is_held) {
        wait("");
        locked = loop {
            match fcntl(file, FcntlArg::F_OFD_SETLKW(&byte)) {
                Err(Errno::EINTR) => {}
                done => break done,
            }
        };
    }
    match locked {
        Ok(_) => Ok(true),
        Err(e) if is_held(&e) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Starts a program.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    effect(Kind::Start, command.get_program())?;
    command.spawn()
}

/// Sleeps while another process is to do something.
pub(crate) fn pause(time: std::time::Duration) {
    wait("");
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn lock_of_another_is_the_only_failure_that_is_an_answer() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let held = open();
        assert!(try_lock(&held).unwrap());
        assert!(!try_lock(&open()).unwrap());
        let path_alone = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(file.path());
        assert!(try_lock(&path_alone.unwrap()).is_err());
    }

    #[test]
    fn changes_names_in_an_open_folder() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::open(dir.path()).unwrap();
        let made = create_at(&open, "a").unwrap();
        let meta = made.metadata().unwrap();
        assert_eq!((meta.mode() & 0o777, meta.len()), (0o600, 0));
        let again = create_at(&open, "a").unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        rename_at(&open, "a", "b").unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap();
        let only = names().map(|entry| entry.unwrap().file_name());
        assert_eq!(only.collect::<Vec<_>>(), ["b"]);
        if nix::unistd::geteuid().is_root() {
            set_owner_of(&made, 65, 66).unwrap();
            let meta = made.metadata().unwrap();
            assert_eq!((meta.uid(), meta.gid()), (65, 66));
        }
        remove_file_at(&open, "b").unwrap();
        assert_eq!(names().count(), 0);
    }
}
