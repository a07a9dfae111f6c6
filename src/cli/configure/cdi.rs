//! Folders of CDI specifications that an engine names and runmig does not read.

use super::{Engine, Task};
use runmig_lease::cdi::DIRS;
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::programs;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Returns the files that the engine reads, and a folder of others.
fn files(engine: Engine) -> (&'static str, &'static str) {
    match engine {
        Engine::Containerd => ("/etc/containerd/config.toml", "/etc/containerd/conf.d"),
        Engine::Crio => ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d"),
        Engine::Podman => (
            "/etc/containers/containers.conf",
            "/etc/containers/containers.conf.d",
        ),
        Engine::Docker => (super::docker::CONFIG, "/etc/docker/none"),
    }
}

/// Returns the line that runmig's configuration lacks. A file that cannot be read is no reason to change nothing.
pub fn note(engine: Engine, task: &Task<'_>) -> Option<String> {
    let (file, folder) = files(engine);
    let mut paths = task.below(Path::new(folder)).unwrap_or_default();
    paths.push(task.engine_config.unwrap_or(file.as_ref()).to_owned());
    let read = |path: &Path| task.read(path).ok().flatten().unwrap_or_default();
    let mut named = Vec::new();
    for path in paths {
        let text = read(&path);
        let tree = toml::from_str(&text).ok();
        let tree = tree.or_else(|| serde_json::from_str(&text).ok());
        collect(&tree.unwrap_or_default(), &mut named);
    }
    let name = programs::configuration_of(Path::new(task.name)).unwrap_or("config");
    let ours = Path::new(DIRECTORY).join(format!("{name}.toml"));
    let mut dirs = Config::parse(&read(&ours)).unwrap_or_default().cdi_dirs;
    let known = dirs.len();
    for dir in named {
        let is_usual =
            dir == Path::new("/run/cdi") || DIRS.iter().any(|usual| dir == Path::new(usual));
        if !is_usual && !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    (dirs.len() > known).then(|| {
        format!(
            "{} reads CDI specifications in folders that runmig does not know; write into {}: cdi_dirs = {dirs:?}",
            engine.name(),
            ours.display()
        )
    })
}

/// Collects what `cdi_spec_dirs` names, in whatever table an engine has it.
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
