//! What an engine makes of all its files: for each key, the last file that sets it counts.

use super::file::Change;
use super::{Task, cdi, table};
use runmig_lease::error::{Context, Error, Result};
use std::path::{Path, PathBuf};
use toml::Table;

/// The files of an engine after the changes of a plan, in the order in which the engine reads them.
pub struct Layers(Vec<(PathBuf, Table)>);

/// How the files of one engine name things.
pub struct Says {
    /// The key of the default runtime, for people.
    pub key: &'static str,
    /// Returns the runtime of containers that name none.
    pub default: fn(&Table) -> Option<&str>,
    /// Returns the program that a file gives to a name; an empty text where it gives none.
    pub program: fn(&Table, &str) -> Option<String>,
}

impl Layers {
    pub fn of(
        task: &Task<'_>,
        changes: &[Change],
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Layers> {
        let mut layers = Vec::new();
        for file in files {
            if let Some(text) = task.after(changes, &file)? {
                let table = table::parse(&text).context(|| format!("read {}", file.display()))?;
                layers.push((file, table));
            }
        }
        Ok(Layers(layers))
    }

    /// Returns what the files say of CDI.
    pub fn cdi(&self) -> cdi::Said {
        let mut said = cdi::Said::default();
        self.0.iter().for_each(|(_, table)| said.read(table));
        said
    }

    fn last<'a, T>(&'a self, of: impl Fn(&'a Table) -> Option<T>) -> Option<(&'a Path, T)> {
        let mut layers = self.0.iter().rev();
        layers.find_map(|(file, table)| Some((file.as_path(), of(table)?)))
    }

    /// Returns the program of containers that name none, or its name where no file has it.
    pub fn default(&self, says: &Says) -> Option<PathBuf> {
        let (_, name) = self.last(says.default)?;
        let program = self.last(|table| (says.program)(table, name));
        let program = program
            .map(|(_, program)| program)
            .filter(|program| !program.is_empty());
        Some(program.unwrap_or_else(|| name.to_owned()).into())
    }

    /// Returns why the engine would not do as the task wants: a file that it reads later gives the name or the default to
    /// another runtime. After a removal, the file that still makes the removed runtime the default.
    pub fn obstacle(&self, task: &Task<'_>, engine: &str, says: &Says) -> Option<Error> {
        let name = task.name;
        let default = self.last(says.default);
        if task.remove {
            let (file, _) = default.filter(|(_, theirs)| *theirs == name)?;
            return Some(
                Error::new(format!(
                    "{} still says {} = \"{name}\", so {engine} starts no container that names no runtime",
                    file.display(),
                    says.key
                ))
                .hint("remove that line"),
            );
        }
        let Some((file, theirs)) = self.last(|table| (says.program)(table, name)) else {
            return Some(
                Error::new(format!(
                    "cannot register {name}: a file of the same name in a later folder hides its drop-in from {engine}"
                ))
                .hint("write a file of another name with --drop-in"),
            );
        };
        if theirs != task.runtime.to_string_lossy() {
            let theirs = if theirs.is_empty() {
                "another runtime"
            } else {
                &theirs
            };
            return Some(
                Error::new(format!(
                    "cannot register {name}: {} gives that name to {theirs}, and {engine} reads this file later",
                    file.display()
                ))
                .hint("remove that runtime, or choose another name with --name"),
            );
        }
        let (file, theirs) = default.filter(|(_, theirs)| task.default && *theirs != name)?;
        Some(
            Error::new(format!(
                "cannot make {name} the default: {} says {} = \"{theirs}\", and {engine} reads this file later",
                file.display(),
                says.key
            ))
            .hint("remove that line, or write a later file with --drop-in"),
        )
    }
}
