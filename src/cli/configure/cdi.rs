//! Folders of CDI specifications that an engine names and runmig does not read.

use super::Task;
use runmig_lease::cdi::DIRS;
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::programs;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Returns the folders that a file of an engine names, in whatever table the engine has them.
pub fn named(file: &impl Serialize) -> Vec<PathBuf> {
    fn collect(tree: &Value, named: &mut Vec<PathBuf>) {
        for (key, value) in tree.as_object().into_iter().flatten() {
            match ["cdi_spec_dirs", "cdi-spec-dirs"].contains(&key.as_str()) {
                true => {
                    let dirs = value.as_array().into_iter().flatten();
                    named.extend(dirs.filter_map(Value::as_str).map(PathBuf::from));
                }
                false => collect(value, named),
            }
        }
    }
    let mut named = Vec::new();
    collect(&serde_json::to_value(file).unwrap_or_default(), &mut named);
    named
}

/// Returns the line that runmig's configuration lacks for these folders of an engine.
pub fn note(engine: &str, task: &Task<'_>, named: &[PathBuf]) -> Option<String> {
    let name = programs::configuration_of(Path::new(task.name)).unwrap_or("config");
    let ours = Path::new(DIRECTORY).join(format!("{name}.toml"));
    let text = task.read(&ours).ok().flatten().unwrap_or_default();
    let mut dirs = Config::parse(&text).unwrap_or_default().cdi_dirs;
    let known = dirs.len();
    for dir in named {
        let mut usual = DIRS.iter().chain(&["/run/cdi"]);
        if !usual.any(|usual| dir == Path::new(usual)) && !dirs.contains(dir) {
            dirs.push(dir.clone());
        }
    }
    (dirs.len() > known).then(|| {
        format!(
            "{engine} reads CDI specifications in folders that runmig does not know; write into {}: cdi_dirs = {dirs:?}",
            ours.display()
        )
    })
}
