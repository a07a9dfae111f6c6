//! `migctl configure`: registers runmig with a container engine, or removes the registration.
//!
//! It plans all changes before it writes the first file. Where an engine reads drop-ins, it writes one; other files it
//! rewrites, and keeps the original.

mod cdi_devices;
mod cdi_folders;
mod containerd;
mod crio;
mod docker;
mod effective;
mod engine;
mod file;
mod link;
mod needs;
mod options;
mod podman;
mod rancher;
mod rewrite;
mod table;

pub use engine::search;

use super::json::{ChangeItem, Items};
use super::output::{self, Format};
use clap::{Args, ValueEnum};
use effective::{Layers, Says};
use file::Change;
use link::Link;
use options::{MADE, Task};
use runmig_lease::config::DIRECTORY;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    Containerd,
    #[value(alias = "cri-o")]
    Crio,
    Podman,
    Docker,
    /// CDI devices that containers use to ask, for every engine
    Cdi,
}

#[derive(Args, Clone)]
pub struct Options {
    engine: Engine,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Make it the runtime of containers that name none
    #[arg(long, conflicts_with = "remove")]
    set_as_default: bool,
    /// Remove the registration
    #[arg(long)]
    remove: bool,
    /// Name of the handler; runmig-NAME reads /etc/runmig/NAME.toml
    #[arg(long, default_value = "runmig")]
    name: String,
    /// Request of its containers that have none themselves, as slice=1g.10gb or fixed=true; written into /etc/runmig/NAME.toml
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "remove")]
    request: Vec<String>,
    /// Path of the runmig that the engine calls [default: the one beside migctl]
    #[arg(long, value_name = "PATH")]
    runtime_path: Option<PathBuf>,
    /// Configuration file of the engine [default: the engine's own]
    #[arg(long, value_name = "FILE")]
    engine_config: Option<PathBuf>,
    /// Drop-in file to write [default: in the engine's drop-in folder]
    #[arg(long, value_name = "FILE")]
    drop_in: Option<PathBuf>,
    /// Program of the engine, for its version [default: from PATH]
    #[arg(long, value_name = "PATH")]
    executable: Option<PathBuf>,
    /// Directory to treat as /, to build an image
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl Engine {
    /// Returns the engines that call runmig.
    pub fn all() -> impl Iterator<Item = Engine> {
        let all = Engine::value_variants().iter().copied();
        all.filter(|engine| *engine != Engine::Cdi)
    }

    /// Returns the name, as the command line has it.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the command name of the server; none for podman, which has none.
    pub fn process(self) -> Option<&'static str> {
        match self {
            Engine::Containerd => Some("containerd"),
            Engine::Crio => Some("crio"),
            Engine::Podman | Engine::Cdi => None,
            Engine::Docker => Some("dockerd"),
        }
    }
}

/// The changes that register runmig with one engine.
#[derive(Default)]
pub struct Plan {
    /// The engine and its version: `containerd 1.6.20`.
    pub engine: String,
    /// The files, in the order in which they may be written.
    changes: Vec<Change>,
    /// The command that makes the engine read its files again.
    pub restart: Option<&'static str>,
    notes: Vec<String>,
    /// What the engine's files say of CDI.
    cdi: cdi_folders::Said,
    /// The program of containers that name none, as the engine's files then have it.
    default: Option<PathBuf>,
    /// Says whether that is a runmig before the changes.
    pub is_default: bool,
    /// Why the engine would not do with its files as the task wants; after a removal, what is left to do.
    obstacle: Option<Error>,
}

impl Plan {
    fn new(engine: String, changes: Vec<Change>, restart: Option<&'static str>) -> Plan {
        Plan {
            engine,
            changes,
            restart,
            ..Plan::default()
        }
    }

    /// Says whether a file would change. A registration for which one would is that of another runmig.
    pub fn has_changes(&self) -> bool {
        self.changes.iter().any(Change::changes)
    }

    /// Returns the files that would change, or all of them where none would.
    pub fn files(&self) -> Vec<PathBuf> {
        let changing = self.has_changes();
        let files = self.changes.iter().filter(|c| c.changes() == changing);
        files.map(|change| change.path.clone()).collect()
    }

    /// Says whether the engine starts a container without the CDI devices that it names.
    pub fn loses_devices(&self) -> bool {
        self.cdi.loses_devices(&self.engine)
    }

    /// Holds the files that the engine then reads, in its order, against the task.
    fn read_back(mut self, task: &Task<'_>, files: Result<Vec<PathBuf>>, says: &Says) -> Plan {
        let of = |changes, files| Layers::of(task, changes, files);
        let default = |files: &Vec<PathBuf>| of(&[], files.clone()).ok()?.default(says);
        let now = files.as_ref().ok().and_then(default);
        self.is_default = now.is_some_and(|program| is_runmig(&program));
        match files.and_then(|files| of(&self.changes, files)) {
            Ok(layers) => {
                self.obstacle = layers.obstacle(task, &self.engine, says);
                self.cdi = layers.cdi();
                self.default = layers.default(says);
            }
            Err(_) if task.remove => {}
            Err(e) => self.notes.push(format!(
                "cannot tell whether another file overrules this: {}",
                e.line()
            )),
        }
        self
    }
}

pub fn run(options: &Options, format: Format) -> Result<i32> {
    // Users' engines read some of the files.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    if !options.dry_run && options.root.is_none() && !nix::unistd::geteuid().is_root() {
        let why = "cannot configure an engine: only root can write below /etc";
        return Err(Error::new(why).hint("run it with sudo, or with --dry-run"));
    }
    let root = options.root.as_deref().unwrap_or(Path::new("/"));
    let root = std::fs::canonicalize(root).context(|| format!("open --root {}", root.display()))?;
    let migctl = std::env::current_exe().context(|| "find migctl's folder")?;
    let links = migctl.parent().unwrap_or(Path::new("/"));
    let name = link::handler(&options.name, !options.request.is_empty(), &root, links);
    check_name(&name)?;
    let is_common = link::file_of(&name) == link::file_of("config");
    if is_common && !options.remove {
        return Err(Error::new(format!(
            "cannot register --name {name}: runmig-config would read /etc/runmig/config.toml, as runmig itself does"
        ))
        .hint("choose another name"));
    }
    let task = Task {
        name: &name,
        runtime: runtime(options, &name, &root, &migctl),
        remove: options.remove,
        default: options.set_as_default,
        engine_config: options.engine_config.as_deref(),
        drop_in: options.drop_in.as_deref(),
        executable: options.executable.as_deref(),
        root: &root,
    };
    task.check_paths()?;
    if task.remove && root == Path::new("/") && nix::unistd::geteuid().is_root() {
        needs::check(options.engine, &task)?;
    }
    let request = task.request(&options.request)?;
    let mut plan = plan(options.engine, &task)?;
    match plan.obstacle.take() {
        Some(e) if task.remove => plan.notes.push(format!("warning: {}", e.line())),
        Some(e) => return Err(e),
        None => {}
    }
    if !task.remove {
        let note = cdi_folders::note(&plan.engine, &task, &plan.cdi.dirs);
        plan.notes.extend(note);
    }
    if plan.is_default && !task.remove && !plan.default.as_deref().is_some_and(is_runmig) {
        let note = "containers that name no runtime get runmig no longer; hint: keep it with --set-as-default";
        plan.notes.push(format!("{}: {note}", plan.engine));
    }
    let link = task.link(&plan.changes)?;
    // The link exists as long as an engine calls it, and its file as long as the link.
    let stays = link.as_ref().is_some_and(Link::stays);
    let request = request.filter(|_| !stays);
    if !options.dry_run {
        if !task.remove {
            request.iter().try_for_each(Change::make)?;
            link.iter().try_for_each(Link::make)?;
        }
        plan.changes.iter().try_for_each(Change::make)?;
        if task.remove {
            link.iter().try_for_each(Link::make)?;
            request.iter().try_for_each(Change::make)?;
        }
    }
    plan.notes.extend(link.map(|l| l.note(options.dry_run)));
    if task.remove && request.is_none() && !stays {
        plan.notes.extend(task.kept_request(options.dry_run));
    }
    // A handler that had a request is called so, and nothing of it may be left to tell that.
    let long = link::handler(&name, true, &root, links);
    if task.remove && long != name && !plan.has_changes() && plan.notes.is_empty() {
        let options = options.clone();
        return run(
            &Options {
                name: long,
                ..options
            },
            format,
        );
    }
    // No engine reads the file with the request.
    plan.restart = plan.restart.filter(|_| plan.has_changes());
    plan.changes.extend(request);
    show(&plan, &name, options, format);
    Ok(0)
}

fn plan(engine: Engine, task: &Task<'_>) -> Result<Plan> {
    match engine {
        Engine::Containerd => containerd::plan(task),
        Engine::Crio => crio::plan(task),
        Engine::Podman => podman::plan(task),
        Engine::Docker => docker::plan(task),
        Engine::Cdi => cdi_devices::plan(task),
    }
}

/// Says whether this machine has an engine. `root`: the directory that stands for /.
pub fn is_there(engine: Engine, root: &Path) -> bool {
    let is_rancher = engine == Engine::Containerd && rancher::main(root).is_some();
    let program = engine.process().unwrap_or("podman");
    engine == Engine::Cdi || is_rancher || search(program).is_some()
}

/// Returns the plan that keeps the registration of the runmig of a folder, or of one that the engine called before. None where
/// the engine is not there, or calls neither. Changes nothing. `root`: the directory that stands for /.
pub fn registration(engine: Engine, folder: &Path, root: &Path) -> Result<Option<Plan>> {
    if !is_there(engine, root) {
        return Ok(None);
    }
    let planned = |remove, default| {
        let task = Task {
            remove,
            default,
            ..removal(folder, root)
        };
        plan(engine, &task)
    };
    let gone = planned(true, false)?;
    if !gone.has_changes() {
        // Other engines find a program for such a name.
        let dangles = |name: &&Path| {
            let is_name = name.file_name() == Some(name.as_os_str());
            engine == Engine::Docker && is_name && is_runmig(name)
        };
        let Some(name) = gone.default.as_deref().filter(dangles) else {
            return Ok(None);
        };
        let (version, name) = (gone.engine, name.display());
        let why = format!(
            "{version} cannot start a container that does not name a runtime: its default, {name}, is not registered"
        );
        let hint = format!("migctl configure docker --name {name}, or remove that default");
        return Err(Error::new(why).hint(hint));
    }
    let mut plan = planned(false, false)?;
    if plan.has_changes() {
        // It may be registered as the default.
        let default = planned(false, true).ok();
        plan = default.filter(|plan| !plan.has_changes()).unwrap_or(plan);
    }
    match plan.obstacle.take() {
        Some(e) if !plan.has_changes() => Err(e),
        _ => Ok(Some(plan)),
    }
}

/// Returns the configuration of the containers of an engine that name no runtime, where that is a link to runmig.
pub fn default_configuration(engine: Engine, root: &Path) -> Option<PathBuf> {
    let plan = is_there(engine, root).then(|| plan(engine, &removal(Path::new(""), root)));
    configuration(&plan?.ok()?.default?)
}

/// Returns the runmigs that engines' files of this machine name, each with its file.
pub fn programs() -> Result<Vec<(PathBuf, PathBuf)>> {
    needs::programs(&removal(Path::new(""), Path::new("/")))
}

/// Returns the configuration that a runmig of this name reads, where it is not runmig's own.
pub fn configuration(program: &Path) -> Option<PathBuf> {
    let own = programs::configuration_of(program)?;
    Some(Path::new(DIRECTORY).join(format!("{own}.toml")))
}

fn removal<'a>(folder: &Path, root: &'a Path) -> Task<'a> {
    Task {
        name: programs::FRONT,
        runtime: folder.join(programs::FRONT),
        remove: true,
        default: false,
        engine_config: None,
        drop_in: None,
        executable: None,
        root,
    }
}

fn show(plan: &Plan, name: &str, options: &Options, format: Format) {
    if format == Format::Json {
        let items: Vec<ChangeItem<'_>> = { plan.changes.iter() }
            .map(|change| ChangeItem {
                engine: &plan.engine,
                path: &change.path,
                change: change.word(),
                restart: plan.restart,
            })
            .collect();
        return output::json("ChangeList", &Items { items: &items });
    }
    let changed = plan.has_changes();
    if !changed {
        let state = match (options.engine, options.remove) {
            (Engine::Cdi, _) => String::new(),
            (_, false) => format!("{name} is registered, "),
            (_, true) => format!("{name} is not registered, "),
        };
        output::line(&format!("{}: {state}nothing to change", plan.engine));
    }
    for change in plan.changes.iter().filter(|c| c.changes()) {
        match options.dry_run {
            true => output::line(change.diff().trim_end()),
            false => output::line(&format!("{} {}", change.word(), change.path.display())),
        }
    }
    for note in &plan.notes {
        output::line(note);
    }
    if changed && !options.dry_run {
        output::line(&match plan.restart {
            Some(command) if options.remove => {
                format!("{}: to complete the removal, run: {command}", plan.engine)
            }
            Some(command) => format!("{}: to use it, run: {command}", plan.engine),
            None if options.remove => format!("{}: removed at once", plan.engine),
            None => format!("{}: used from the next container on", plan.engine),
        });
    }
}

/// Says whether a path is that of a runmig, by whatever handler.
fn is_runmig(program: &Path) -> bool {
    program.ends_with(programs::FRONT) || programs::configuration_of(program).is_some()
}

/// Checks that a RuntimeClass can name the handler.
fn check_name(name: &str) -> Result<()> {
    // Engines have these handlers built in.
    if matches!(name, "runc" | "crun") {
        return Err(Error::new(format!(
            "cannot register --name {name}: engines know it as a low-level runtime"
        ))
        .hint("choose another name; --set-as-default makes runmig the default"));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_short = (1..=63).contains(&name.len());
    if is_short && name.chars().all(plain) && name.trim_matches('-') == name {
        return Ok(());
    }
    Err(Error::new(format!(
        "cannot register --name {name:?}: Kubernetes does not allow it as a handler"
    ))
    .hint("use at most 63 lower-case letters, digits and inner hyphens"))
}

fn runtime(options: &Options, name: &str, root: &Path, migctl: &Path) -> PathBuf {
    let name = programs::configuration_of(name.as_ref()).map_or(programs::FRONT, |_| name);
    match (&options.runtime_path, migctl.strip_prefix(root)) {
        (Some(path), _) => path.clone(),
        (None, Ok(inside)) => Path::new("/").join(inside).with_file_name(name),
        (None, Err(_)) => migctl.with_file_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_goes_by_the_name_behind_the_first_dash() {
        for (program, file) in [
            ("/usr/bin/runmig-1g", Some("/etc/runmig/1g.toml")),
            (
                "/usr/bin/runmig-runmig-1g",
                Some("/etc/runmig/runmig-1g.toml"),
            ),
            ("/usr/bin/runmig", None),
            ("/usr/bin/runc", None),
        ] {
            let found = configuration(Path::new(program));
            assert_eq!(found.as_deref(), file.map(Path::new), "{program}");
        }
    }

    #[test]
    fn registration_follows_the_files() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("usr/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::copy("/bin/true", bin.join("runmig")).unwrap();
        let look = |folder: &str| registration(Engine::Podman, Path::new(folder), root.path());
        if search("podman").is_none() {
            assert!(matches!(look("/usr/bin"), Ok(None)));
            return;
        }
        assert!(matches!(look("/usr/bin"), Ok(None)));
        let task = Task {
            remove: false,
            ..removal(Path::new("/usr/bin"), root.path())
        };
        let changes = podman::plan(&task).unwrap().changes;
        changes.iter().for_each(|change| change.make().unwrap());
        for (folder, is_stale) in [("/usr/bin", false), ("/opt/bin", true)] {
            let found = look(folder).unwrap().expect("runmig is registered");
            assert!(found.engine.starts_with("podman "), "{}", found.engine);
            assert_eq!(found.files(), [changes[0].path.clone()]);
            assert_eq!(found.has_changes(), is_stale);
        }
    }
}
