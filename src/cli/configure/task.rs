//! One run of `migctl configure`: its options, and how it reads files for the engines.

use super::file::{self, Change};
use super::table;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs;
use runmig_lease::trust;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The first line of every file that runmig makes.
pub const MADE: &str =
    "# Made by migctl configure, which writes it anew, or takes it away with --remove.\n";

/// The options of one run.
pub struct Task<'a> {
    pub name: &'a str,
    /// The runmig that the engine calls.
    pub runtime: PathBuf,
    pub remove: bool,
    /// Makes runmig the runtime of containers that name none.
    pub default: bool,
    pub engine_config: Option<&'a Path>,
    pub drop_in: Option<&'a Path>,
    pub executable: Option<&'a Path>,
    pub root: &'a Path,
}

impl Task<'_> {
    pub fn check_paths(&self) -> Result<()> {
        let given = [
            Some(self.runtime.as_path()),
            self.engine_config,
            self.drop_in,
        ];
        if let Some(path) = given.into_iter().flatten().find(|p| !p.is_absolute()) {
            return Err(Error::new(format!(
                "cannot use path {}: it is not absolute",
                path.display()
            )));
        }
        // The path stands between quotes in an engine's file.
        let quoted = |c: char| c.is_control() || matches!(c, '"' | '\\');
        let text = self.runtime.to_str();
        if text.is_none_or(|t| t.contains(quoted)) {
            return Err(Error::new(format!(
                "cannot write {:?} into an engine's configuration: it has quotes, backslashes or bytes that are not UTF-8",
                self.runtime
            ))
            .hint("name a runmig with another path by --runtime-path"));
        }
        if self.remove {
            return Ok(());
        }
        // A link that is still missing will lead to runmig.
        let to_be_made =
            self.is_link() && std::fs::symlink_metadata(self.on_disk(&self.runtime)).is_err();
        let runmig = match to_be_made {
            true => self.runtime.with_file_name(programs::FRONT),
            false => self.runtime.clone(),
        };
        let checked = trust::program(&self.on_disk(&runmig));
        checked.map(drop).map_err(|e| {
            Error::new(format!("cannot let an engine call {} as root", runmig.display()))
                .hint("install runmig beside migctl with scripts/install, or name another by --runtime-path")
                .caused_by(e)
        })
    }

    pub fn on_disk(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Plans the change of one file: `after` makes the new text from the old.
    pub fn change(
        &self,
        path: &Path,
        after: impl FnOnce(Option<&str>) -> Result<Option<String>>,
    ) -> Result<Change> {
        let before = self.read(path)?;
        let after = after(before.as_deref())?;
        Ok(Change {
            path: path.to_owned(),
            on_disk: self.on_disk(path),
            before,
            after,
            kept: None,
        })
    }

    pub fn read(&self, path: &Path) -> Result<Option<String>> {
        file::read(&self.on_disk(path), self.root).context(|| format!("read {}", path.display()))
    }

    /// Reads the files that exist, except runmig's own.
    pub fn files(
        &self,
        paths: impl IntoIterator<Item = PathBuf>,
        ours: &Path,
    ) -> Result<Vec<(PathBuf, String)>> {
        let mut files = Vec::new();
        for path in paths.into_iter().filter(|path| path != ours) {
            if let Some(text) = self.read(&path)? {
                files.push((path, text));
            }
        }
        Ok(files)
    }

    /// Returns every file below a folder, in the order of their names.
    pub fn below(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let look = || format!("list folder {}", dir.display());
        let entries = match std::fs::read_dir(self.on_disk(dir)) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context(look)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.context(look)?;
            let path = dir.join(entry.file_name());
            match entry.file_type().context(look)?.is_dir() {
                true => found.extend(self.below(&path)?),
                false => found.push(path),
            }
        }
        found.sort();
        Ok(found)
    }

    /// Plans the change of a file that runmig makes. An administrator's file with the same values stays; any other
    /// is an error.
    pub fn own_file(&self, path: &Path, text: String) -> Result<Change> {
        self.change(path, |before| match before {
            Some(theirs) if !theirs.starts_with(MADE) => {
                if self.remove || table::same(theirs, &text) {
                    return Ok(Some(theirs.to_owned()));
                }
                Err(Error::new(format!(
                    "cannot write {}: it has other content, and migctl configure did not make it",
                    path.display()
                ))
                .hint("remove the file, or name another with --drop-in"))
            }
            _ => Ok((!self.remove).then_some(text)),
        })
    }
}
