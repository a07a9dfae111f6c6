//! Finds the containers that need a handler: without it their engine cannot end them.

use super::{Engine, Task, is_runmig};
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::store::{Container, Holder, Store};
use runmig_lease::trust;
use std::path::Path;

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
