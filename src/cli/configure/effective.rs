//! What an engine makes of all its files: for each key, the last file that sets it counts.

use super::file::Change;
use super::{Task, cdi_folders, is_runmig, table};
use runmig_lease::error::{Context, Error, Result};
use std::path::{Path, PathBuf};
use toml::Table;

/// The files of an engine after the changes of a plan, in the order in which the engine reads them.
pub struct Layers(pub Vec<(PathBuf, Table)>);

/// How the files of one engine name things.
pub struct Says {
    /// The key of the default runtime, for people.
    pub key: &'static str,
    /// Returns the runtime of containers that name none.
    pub default: fn(&Table) -> Option<&str>,
    /// Returns the program that a file gives to a name; an empty text where it gives none.
    pub program: for<'a> fn(&'a Table, &str) -> Option<&'a str>,
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
    pub fn cdi(&self) -> cdi_folders::Said {
        let mut said = cdi_folders::Said::default();
        self.0.iter().for_each(|(_, table)| said.read(table));
        said
    }

    /// Returns the last file with a value, and the value.
    pub fn last<'a, T>(&'a self, of: impl Fn(&'a Table) -> Option<T>) -> Option<(&'a Path, T)> {
        let mut layers = self.0.iter().rev();
        layers.find_map(|(file, table)| Some((file.as_path(), of(table)?)))
    }

    /// Returns the program of containers that name none, or its name where no file has it.
    pub fn default(&self, says: &Says) -> Option<PathBuf> {
        let (_, name) = self.last(says.default)?;
        Some(match self.last(|table| (says.program)(table, name)) {
            Some((_, program)) if !program.is_empty() => program.into(),
            _ => name.into(),
        })
    }

    /// Returns why the engine would not do as the task wants: a file that it reads later gives the name or the default to
    /// another runtime. After a removal, what is left to do.
    pub fn obstacle(&self, task: &Task<'_>, engine: &str, says: &Says) -> Option<Error> {
        let (name, key, default) = (task.name, says.key, self.last(says.default));
        let obstacle = |why: String, hint: &str| Some(Error::new(why).hint(hint));
        let program = self.last(|table| (says.program)(table, name));
        if task.remove {
            let default = default.filter(|(_, theirs)| *theirs == name);
            return left(task, engine, key, default.map(|(file, _)| file), program);
        }
        let Some((file, theirs)) = program else {
            let is_unread = |file: &&Path| file.extension().is_none_or(|e| e != "conf");
            let why = match task.drop_in.filter(is_unread) {
                Some(file) => format!(
                    "{engine} does not read {}, since its name does not end in .conf",
                    file.display()
                ),
                None => format!(
                    "a file of the same name in a later folder hides its drop-in from {engine}"
                ),
            };
            let why = format!("cannot register {name}: {why}");
            return obstacle(why, "write a file of another name with --drop-in");
        };
        let read_later = |file: &Path, says: String| {
            let file = file.display();
            format!("{file} {says}, and {engine} reads this file later")
        };
        if theirs != task.runtime.to_string_lossy() {
            let theirs = if theirs.is_empty() {
                "another runtime"
            } else {
                theirs
            };
            let why = read_later(file, format!("gives that name to {theirs}"));
            let hint = "remove that runtime, or choose another name with --name";
            return obstacle(format!("cannot register {name}: {why}"), hint);
        }
        let (file, theirs) = default.filter(|(_, theirs)| task.default && *theirs != name)?;
        let why = read_later(file, format!("says {key} = \"{theirs}\""));
        let why = format!("cannot make {name} the default: {why}");
        let hint = "remove that line, or write a later file with --drop-in";
        obstacle(why, hint)
    }
}

/// Returns what is left to do after a removal: a file still makes the removed runtime the default, or gives its name to a runmig.
pub fn left(
    task: &Task<'_>,
    engine: &str,
    key: &str,
    default: Option<&Path>,
    program: Option<(&Path, &str)>,
) -> Option<Error> {
    let name = task.name;
    let program = program.filter(|(_, program)| !program.is_empty());
    let (file, says) = match (default, program) {
        (Some(file), program) => {
            let does = program.map(|(_, program)| format!("calls {program} for"));
            let does = does.unwrap_or("cannot start".to_owned());
            let says = format!(
                "says {key} = \"{name}\", so {engine} {does} a container that does not name a runtime"
            );
            (file, says)
        }
        (None, Some((file, program))) if is_runmig(program.as_ref()) => {
            (file, format!("gives the name {name} to {program}"))
        }
        _ => return None,
    };
    let why = format!("{} still {says}", file.display());
    Some(Error::new(why).hint("remove that setting"))
}
