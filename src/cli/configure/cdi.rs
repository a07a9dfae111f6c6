//! Folders of CDI specifications that an engine names and runmig does not read.

use super::Task;
use runmig_lease::cdi::DIRS;
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::programs;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a file of an engine says of CDI, in whatever table the engine has it.
#[derive(Default)]
pub struct Said {
    pub dirs: Vec<PathBuf>,
    /// Says whether the engine loses CDI devices in silence.
    pub is_off: bool,
}

impl Said {
    /// Reads a file that the engine reads after those before.
    pub fn read(&mut self, file: &impl Serialize) {
        self.collect(&serde_json::to_value(file).unwrap_or_default());
    }

    fn collect(&mut self, tree: &Value) {
        for (key, value) in tree.as_object().into_iter().flatten() {
            match key.as_str() {
                "cdi_spec_dirs" | "cdi-spec-dirs" => {
                    let dirs = value.as_array().into_iter().flatten();
                    let dirs = dirs.filter_map(Value::as_str).map(PathBuf::from);
                    self.dirs.extend(dirs);
                }
                "enable_cdi" => self.is_off = *value == Value::Bool(false),
                _ => self.collect(value),
            }
        }
    }
}

/// Returns whether an engine is too old for CDI: `containerd 1.6.20`. 1.7 has it, at first turned off.
pub fn is_unknown_to(engine: &str) -> bool {
    let version = engine.strip_prefix("containerd 1.");
    let minor = version.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    minor.is_some_and(|minor| minor < 7)
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
