//! The log of actions and failures for people: `runmig.log` in the state directory.

use crate::effect;
use crate::files::log_size;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The name of the log.
pub const NAME: &str = "runmig.log";

/// Largest log in bytes. The state directory is a tmpfs, so the log takes that much memory, and the older log
/// in `.1` as much again.
const MAX_SIZE: u64 = 1 << 20;

/// Opens the log at its end, and begins a new one if it is too large. None if it cannot be written, which is no reason to
/// fail.
pub fn open(state_dir: &Path) -> Option<File> {
    let file = state_dir.join(NAME);
    let is_large = |m: Metadata| m.len() > log_size(state_dir, MAX_SIZE);
    if std::fs::symlink_metadata(&file).is_ok_and(is_large) {
        let _ = effect::rename(&file, &file.with_extension("log.1"));
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let opened = effect::open(&options, &file);
    // A file with a second name could be another user's, linked to here.
    let is_ours = |file: &File| file.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1);
    opened.ok().filter(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn full_log_makes_room_for_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let (file, older) = [NAME, "runmig.log.1"]
            .map(|name| dir.path().join(name))
            .into();
        let mut log = open(dir.path()).unwrap();
        log.write_all(b"a").unwrap();
        assert_eq!(log.metadata().unwrap().mode() & 0o777, 0o600);
        open(dir.path()).unwrap().write_all(b"b").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"ab");
        log.set_len(log_size(dir.path(), MAX_SIZE)).unwrap();
        let mut log = open(dir.path()).unwrap();
        assert!(!older.exists());
        log.write_all(b"c").unwrap();
        assert_eq!(open(dir.path()).unwrap().metadata().unwrap().len(), 0);
        assert!(older.exists());
    }

    #[test]
    fn what_others_could_have_put_there_is_not_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join(NAME), dir.path().join("other"));
        fs::write(&other, "").unwrap();
        let put: [&dyn Fn(); 4] = [
            &|| std::os::unix::fs::symlink(&other, &file).unwrap(),
            &|| fs::hard_link(&other, &file).unwrap(),
            &|| nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            &|| std::os::unix::fs::symlink("/dev/null", &file).unwrap(),
        ];
        for (nth, put) in put.iter().enumerate() {
            put();
            assert!(open(dir.path()).is_none(), "{nth}");
            fs::remove_file(&file).unwrap();
        }
    }
}
