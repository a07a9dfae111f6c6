//! Folders of CDI specifications that an engine names and runmig does not read.

use super::link::file_of;
use super::{Task, configuration};
use runmig_lease::cdi::DIRS;
use runmig_lease::config::Config;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a file of an engine says of CDI, in whatever table the engine has it.
#[derive(Default)]
pub struct Said {
    pub dirs: Vec<PathBuf>,
    enabled: Option<bool>,
}

impl Said {
    /// Reads a file that the engine reads after those before.
    pub fn read(&mut self, file: &impl Serialize) {
        self.collect(&serde_json::to_value(file).unwrap_or_default());
    }

    /// Returns whether an engine, as `containerd 1.6.20`, starts a container without the CDI devices that it names.
    /// containerd 1.7 has CDI, turned off.
    pub fn loses_devices(&self, engine: &str) -> bool {
        let version = engine.strip_prefix("containerd 1.");
        let minor = version.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        match minor {
            Some(minor) => minor < 7 || self.enabled != Some(true),
            // kube play drops them there.
            None => self.enabled == Some(false) || engine.starts_with("podman 4."),
        }
    }

    fn collect(&mut self, tree: &Value) {
        for (key, value) in tree.as_object().into_iter().flatten() {
            match key.as_str() {
                "cdi_spec_dirs" | "cdi-spec-dirs" => {
                    let dirs = { value.as_array().into_iter().flatten() }.filter_map(Value::as_str);
                    self.dirs.extend(dirs.map(PathBuf::from));
                }
                "enable_cdi" => self.enabled = value.as_bool(),
                _ => self.collect(value),
            }
        }
    }
}

/// Returns the line that runmig's configuration lacks for these folders of an engine.
pub fn note(engine: &str, task: &Task<'_>, named: &[PathBuf]) -> Option<String> {
    let common = file_of("config");
    let read = |file: PathBuf| {
        let text = task.read(&file).ok().flatten().unwrap_or_default();
        (Config::parse(&text).unwrap_or_default(), file)
    };
    let own = configuration(task.name.as_ref());
    let (mut config, mut ours) = read(own.unwrap_or_else(|| common.clone()));
    // A file with a request takes what it lacks from the common one.
    if config.request.is_some() && config.cdi_dirs == Config::default().cdi_dirs {
        (config, ours) = read(common);
    }
    let (mut dirs, ours) = (config.cdi_dirs, ours.display());
    let known = dirs.len();
    for dir in named {
        let mut usual = DIRS.iter().chain(&["/run/cdi"]);
        if !usual.any(|usual| dir == Path::new(usual)) && !dirs.contains(dir) {
            dirs.push(dir.clone());
        }
    }
    let what = "reads CDI specifications in folders that runmig does not know";
    let note = || format!("{engine} {what}; write into {ours}: cdi_dirs = {dirs:?}");
    (dirs.len() > known).then(note)
}
