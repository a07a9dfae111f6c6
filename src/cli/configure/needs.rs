//! Who needs a handler or its program, so that it has to stay: containers that no engine could end without the handler, and
//! files of engines that name the program.

use super::file::Change;
use super::{Engine, Task, containerd, crio, docker, is_runmig, podman, rancher};
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::store::{Container, Holder, Store};
use runmig_lease::trust;
use std::path::{Path, PathBuf};

/// Where containerd keeps the bundles of a namespace.
const TASKS: &str = "/io.containerd.runtime.v2.task/";

/// Refuses the end of a handler that a container with a lease needs.
pub fn check(engine: Engine, task: &Task<'_>) -> Result<()> {
    let name = task.name;
    let own = Config::for_program(Some(name.as_ref()));
    let config = own.or_else(|_| Config::for_program(None))?;
    let Some(store) = Store::existing(&config.state_dir, config.lock_timeout)? else {
        return Ok(());
    };
    let listing = store.list()?;
    let held = listing.held().find(|held| match &held.lease.holder {
        Holder::Container(container) => {
            is_of(engine, name, container) && !is_of_another(task, container)
        }
        Holder::Claim(_) => false,
    });
    let Some(held) = held else { return Ok(()) };
    Err(Error::new(format!(
        "cannot remove the handler {name}: {} has {}, and {} may need this handler to end it",
        held.lease.holder.title(),
        held.lease.request,
        engine.name()
    ))
    .hint("stop the containers that migctl list names, run migctl gc, and try again"))
}

/// Says whether another handler made a container: a shim of containerd writes the program that it calls into the bundle, and
/// `configure` gives each handler of CRI-O a root of its own. podman's containers do not tell.
fn is_of_another(task: &Task<'_>, container: &Container) -> bool {
    const MAX_PATH: u64 = 4096;
    let program = trust::read_to_string(&container.bundle.join("runtime"), MAX_PATH);
    let is_other =
        |program: &Path, own: &Path| is_runmig(program) && program.file_name() != own.file_name();
    let root = container.key.root.to_str();
    let root = root.and_then(|root| root.strip_suffix("-oci"));
    program.is_ok_and(|program| is_other(program.as_ref(), &task.runtime))
        || root.is_some_and(|root| is_other(root.as_ref(), task.name.as_ref()))
}

/// Says whether an engine made a container, by the places of its bundle and of its state.
fn is_of(engine: Engine, name: &str, container: &Container) -> bool {
    let bundle = container.bundle.to_string_lossy();
    let has_own_root = container.key.root.ends_with(format!("{name}-oci"));
    let is_crio = has_own_root || container.namespace.is_some();
    match engine {
        Engine::Containerd => bundle.contains(&format!("{TASKS}k8s.io/")),
        Engine::Docker => bundle.contains(&format!("{TASKS}moby/")),
        Engine::Crio => is_crio && !bundle.contains(TASKS),
        Engine::Podman => !is_crio && bundle.ends_with("/userdata"),
        // A container that runs does not need them to end.
        Engine::Cdi => false,
    }
}

/// Returns why the program has to stay after the changes: a file that names it, or an error that
/// hides such a file.
pub fn callers(task: &Task<'_>, name: &str, changes: &[Change]) -> Option<String> {
    let mut unknown = None;
    let mut is_caller = |file: &PathBuf| match task.after(changes, file) {
        Ok(text) => text.is_some_and(|text| names(&text, name)),
        Err(e) => {
            unknown.get_or_insert(e);
            false
        }
    };
    match files(task).map(|files| files.into_iter().find(|file| is_caller(file))) {
        Ok(Some(file)) => return Some(format!("{} names it", file.display())),
        Ok(None) => {}
        Err(e) => unknown = Some(e),
    }
    let why = unknown?.line();
    Some(format!(
        "migctl cannot tell whether another engine calls it: {why}"
    ))
}

/// Returns the absolute paths in the files that are those of a runmig, each with its file.
pub fn programs(task: &Task<'_>) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut all = Vec::new();
    for file in files(task)? {
        let text = task.read(&file)?.unwrap_or_default();
        let lines = { text.lines() }.filter(|line| !line.trim_start().starts_with('#'));
        let programs = lines.flat_map(values).map(Path::new);
        let programs = programs.filter(|word| word.is_absolute() && is_runmig(word));
        all.extend(programs.map(|program| (file.clone(), program.to_owned())));
    }
    Ok(all)
}

/// Returns the words of a line between quotes, without those of a key that ends in `root`, which name folders.
fn values(line: &str) -> impl Iterator<Item = &str> {
    let mut key = "";
    line.split(['"', '\'']).filter(move |word| {
        let is_folder = key.to_ascii_lowercase().ends_with("root");
        let next = word.trim_matches([' ', '=', ':']);
        key = if next.is_empty() { key } else { next };
        !is_folder
    })
}

/// Returns the files in which engines look for runtimes: the default ones, and those of this run.
pub fn files(task: &Task<'_>) -> Result<Vec<PathBuf>> {
    let mut files = containerd::imported(task, &[], containerd::CONFIG.as_ref())?;
    let mains = [crio::CONFIG, docker::CONFIG].into_iter();
    files.extend(mains.chain(podman::CONFIGS).map(PathBuf::from));
    let dirs = [containerd::DROP_INS, crio::DROP_INS].into_iter();
    let dirs = dirs.chain(podman::DROP_INS).map(PathBuf::from);
    for dir in dirs.chain(rancher::drop_ins()) {
        files.extend(task.below(&dir)?);
    }
    let told = [task.engine_config, task.drop_in].into_iter().flatten();
    files.extend(told.map(Path::to_owned));
    Ok(files)
}

/// Returns whether the text has the name as a word of its own.
fn names(text: &str, name: &str) -> bool {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(goes_on) && !text[at + name.len()..].starts_with(goes_on)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use runmig_lease::store::Key;

    #[test]
    fn knows_engines_by_their_places() {
        let of = |root: &str, bundle: &str, namespace: Option<&str>| {
            let container = Container {
                key: Key::new(root.into(), "c".into()),
                bundle: Path::new(bundle).to_owned(),
                namespace: namespace.map(str::to_owned),
                ..Container::default()
            };
            let engines = Engine::all().filter(|engine| is_of(*engine, "runmig", &container));
            engines.map(Engine::name).collect::<Vec<_>>()
        };
        let task = "/run/containerd/io.containerd.runtime.v2.task";
        let in_task = |namespace: &str| format!("{task}/{namespace}/c");
        let k3s = "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/c";
        let stored = "/run/containers/storage/overlay-containers/c/userdata";
        let team = Some("team");
        let (runc, crun) = ("/run/runc", "/run/crun");
        for (root, bundle, namespace, engine) in [
            (runc, &*in_task("k8s.io"), team, Some("containerd")),
            (runc, k3s, team, Some("containerd")),
            (runc, &in_task("moby"), None, Some("docker")),
            // nerdctl and ctr name a program, and need no handler.
            (runc, &in_task("default"), None, None),
            ("/run/runmig-oci", stored, None, Some("crio")),
            (crun, stored, team, Some("crio")),
            (runc, stored, None, Some("podman")),
            (runc, "/srv/bundle", None, None),
        ] {
            let engine: Vec<&str> = engine.into_iter().collect();
            assert_eq!(of(root, bundle, namespace), engine, "{bundle}");
        }
    }
}
