//! The folder of the job files. dcgm-exporter lists it and reads each file at every scrape. A file that has gone since the
//! list fails the scrape, so files are replaced, never removed.

use super::jobs;
use crate::error::{Context, Result};
use crate::files;
use crate::trust;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The longest file that is compared. A longer one is not ours.
const LONGEST: u64 = 1024 * 1024;
/// The first letters of an unfinished file's name, which the number of its process follows.
const UNFINISHED: &str = ".runmig-";

pub(super) struct Folder(PathBuf);

impl Folder {
    /// Opens the folder, and makes it where it is missing. dcgm-exporter may run as any user.
    ///
    /// # Errors
    /// Another user can write to the folder, or to one on the way to it.
    pub(super) fn open(path: &Path) -> Result<Folder> {
        let what = || format!("open the folder of job files {}", path.display());
        // Through another user's link, runmig would make the folder where that user likes.
        trust::room_for(path).context(what)?;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            // A unit of systemd may have a umask that keeps dcgm-exporter out.
            made => made
                .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o755)))
                .context(what)?,
        }
        trust::folder(path).context(what)?;
        Ok(Folder(path.to_owned()))
    }

    /// Returns the names of the job files.
    pub(super) fn names(&self) -> Result<BTreeSet<String>> {
        let names = self
            .all()
            .context(|| format!("list {}", self.0.display()))?;
        Ok(names
            .into_iter()
            .filter(|name| jobs::is_read(name))
            .collect())
    }

    /// Makes a file say this. A file that is missing stays so if it has nothing to say.
    pub(super) fn put(&self, name: &str, text: &str) -> Result<()> {
        let file = self.0.join(name);
        let is_right = match files::read(&file, LONGEST) {
            Ok(now) => now == text.as_bytes(),
            Err(e) => e.kind() == ErrorKind::NotFound && text.is_empty(),
        };
        match is_right {
            true => Ok(()),
            false => self
                .replace(&file, text)
                .context(|| format!("write job file {}", file.display())),
        }
    }

    fn replace(&self, file: &Path, text: &str) -> io::Result<()> {
        let unfinished = self.unfinished(file);
        files::put(&unfinished, file, write(&unfinished, text))
    }

    fn unfinished(&self, file: &Path) -> PathBuf {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let thread = std::thread::current().id();
        let pid = std::process::id();
        self.0.join(format!("{UNFINISHED}{pid}-{thread:?}-{name}"))
    }

    /// Removes the unfinished files of processes that have ended.
    pub(super) fn sweep(&self) {
        for name in self.all().unwrap_or_default() {
            let rest = name.strip_prefix(UNFINISHED);
            let pid = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                let _ = std::fs::remove_file(self.0.join(name));
            }
        }
    }

    fn all(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.0)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    out.write_all(text.as_bytes())?;
    // No umask of the caller hides the file from dcgm-exporter.
    out.set_permissions(Permissions::from_mode(0o644))
}
