//! One run of `migctl configure`: its options, and how it reads files for the engines.

use super::file::{self, Change};
use super::{needs, table};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths::{self, inside};
use runmig_lease::programs;
use runmig_lease::trust;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The first line of every file that runmig makes.
pub const MADE: &str =
    "# Made by migctl configure, which writes it anew, or takes it away with --remove.\n";

/// Begins the line for a folder that was made with the file, and goes with it.
pub const FOLDER: &str = "# It made the folder ";

/// Begins the line with the hash of the lines below it, for a file that an administrator is likely to change.
pub const HASH: &str = "# It keeps a file of another hash: ";

/// Says whether a text is a file that runmig made, and that nobody changed where it has a hash.
fn is_made(text: &str) -> bool {
    let is_whole = |(head, rest): (&str, &str)| {
        let body = rest.split_once('\n');
        head.lines().all(|line| line.starts_with('#'))
            && body.is_some_and(|(hash, body)| super::rewrite::hash(body) == hash)
    };
    text.starts_with(MADE) && text.split_once(HASH).is_none_or(is_whole)
}

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
        let runtime = Some(self.runtime.as_path());
        let given = [runtime, self.engine_config, self.drop_in];
        if let Some(path) = given.into_iter().flatten().find(|p| !p.is_absolute()) {
            let path = path.display();
            let why = format!("cannot use path {path}: it is not absolute");
            return Err(Error::new(why));
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

    /// Returns the drop-in to write: the one that was named, or the usual one.
    pub fn drop_in_or(&self, usual: impl Into<PathBuf>) -> PathBuf {
        self.drop_in.map_or_else(|| usual.into(), Path::to_owned)
    }

    pub fn on_disk(&self, path: &Path) -> PathBuf {
        inside(self.root, path)
    }

    /// Reads a file whose change is to be planned.
    pub fn unchanged(&self, path: &Path) -> Result<Change> {
        let before = self.read(path)?;
        Ok(Change {
            path: path.to_owned(),
            on_disk: self.on_disk(path),
            after: before.clone(),
            before,
            ..Change::default()
        })
    }

    /// Returns a line for each folder above a file that is missing, or that was made for this or another file of ours: the last of
    /// them takes it along. Any other stays, even if a killed run made it. For `folders_in`.
    pub fn made_folders(&self, path: &Path) -> String {
        let beside = paths::entries(self.on_disk(path).parent().unwrap_or(Path::new("/")));
        let others = needs::files(self).unwrap_or_default().into_iter();
        let files = beside.chain(others.map(|file| self.on_disk(&file)));
        let texts = files.filter_map(|file| file::read(&file, self.root).ok()?);
        let texts: String = texts.filter(|text| text.starts_with(MADE)).collect();
        let line = |folder: &Path| {
            let line = format!("{FOLDER}{}", folder.display());
            let there = std::fs::symlink_metadata(self.on_disk(folder));
            let is_missing = there.is_err_and(|e| e.kind() == ErrorKind::NotFound);
            (is_missing || texts.lines().any(|made| made == line)).then(|| line + "\n")
        };
        path.ancestors().skip(1).filter_map(line).collect()
    }

    /// Returns the folders that `configure` made for a file, the deepest first, by the text that it wrote then.
    pub fn folders_in(&self, text: &str, path: &Path) -> Vec<PathBuf> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(FOLDER));
        let folders = lines.filter(|folder| path.starts_with(folder));
        { folders.map(Path::new) }
            .map(|folder| self.on_disk(folder))
            .collect()
    }

    pub fn read(&self, path: &Path) -> Result<Option<String>> {
        file::read(&self.on_disk(path), self.root).context(|| format!("read {}", path.display()))
    }

    /// Returns the text of a file after the changes.
    pub fn after(&self, changes: &[Change], path: &Path) -> Result<Option<String>> {
        match changes.iter().find(|change| change.path == path) {
            Some(change) => Ok(change.after.clone()),
            None => self.read(path),
        }
    }

    /// Returns every file below a folder, in the order of their names.
    pub fn below(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let look = || format!("list folder {}", dir.display());
        let mut found = Vec::new();
        for entry in paths::list(&self.on_disk(dir)).context(look)? {
            let path = dir.join(entry.file_name().unwrap_or_default());
            let is_folder = match entry.symlink_metadata() {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                entry => entry.context(look)?.is_dir(),
            };
            match is_folder {
                true => found.extend(self.below(&path)?),
                false => found.push(path),
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the files `*.conf` of folders in the order of their names, and one that is still to be made. A file hides those of
    /// its name in earlier folders.
    pub fn conf_files(&self, folders: &[PathBuf], more: Option<&Path>) -> Result<Vec<PathBuf>> {
        let mut found = BTreeMap::new();
        for folder in folders {
            let files = self.below(folder)?.into_iter();
            for file in files.chain(more.map(Path::to_owned)) {
                let name = file.file_name().unwrap_or_default().to_owned();
                if file.parent() == Some(folder) && name.as_bytes().ends_with(b".conf") {
                    found.insert(name, file);
                }
            }
        }
        Ok(found.into_values().collect())
    }

    /// Plans the change of a file that runmig makes, or its end. An administrator's file with the same values stays; any other
    /// is an error.
    pub fn own_file(&self, path: &Path, wanted: Option<String>) -> Result<Change> {
        let mut change = self.unchanged(path)?;
        if let Some(theirs) = change.before.as_deref().filter(|text| !is_made(text)) {
            if wanted.is_none_or(|wanted| table::same(theirs, &wanted)) {
                return Ok(change);
            }
            return Err(Error::new(format!(
                "cannot write {}: it has other content than migctl configure gives it",
                path.display()
            ))
            .hint("remove the file, or name another with --drop-in"));
        }
        let lines = self.made_folders(path);
        change.folders = self.folders_in(&lines, path);
        change.after = wanted.map(|text| text.replacen(MADE, &format!("{MADE}{lines}"), 1));
        Ok(change)
    }
}
