//! `migctl configure`: makes runmig known to an engine, or forgotten. What it changes is worked out
//! in full before the first file is written; what is there and not ours stays as it is, to the byte.

mod block;
mod containerd;
mod crio;
mod docker;
mod engine;
mod file;
mod imports;
mod inherit;
mod json_text;
mod link;
mod named;
mod podman;
mod table;
mod task;
mod toml_text;

use super::json::{ChangeItem, Items};
use super::output::{self, Format};
use crate::error::{Context, Error, Result};
use clap::{Args, ValueEnum};
use file::Change;
use std::path::{Path, PathBuf};
use task::{MADE, Task};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    Containerd,
    #[value(alias = "cri-o")]
    Crio,
    Podman,
    Docker,
}

#[derive(Args)]
pub struct Options {
    engine: Engine,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Have the engine use it where no runtime is named
    #[arg(long, conflicts_with = "remove")]
    set_as_default: bool,
    /// Undo it
    #[arg(long)]
    remove: bool,
    /// What the handler is called; runmig-NAME reads /etc/runmig/NAME.toml
    #[arg(long, default_value = "runmig")]
    name: String,
    /// The runmig to call [default: the one beside migctl]
    #[arg(long, value_name = "PATH")]
    runtime_path: Option<PathBuf>,
    /// The engine's configuration file [default: the engine's]
    #[arg(long, value_name = "FILE")]
    engine_config: Option<PathBuf>,
    /// The file to put beside it [default: in the engine's folder for such files]
    #[arg(long, value_name = "FILE")]
    drop_in: Option<PathBuf>,
    /// The engine's program, which is asked for its version [default: from PATH]
    #[arg(long, value_name = "PATH")]
    executable: Option<PathBuf>,
    /// A folder to take for /, as when an image is built
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// What an engine's part comes to.
struct Plan {
    /// What was found: `containerd 1.6.20`.
    engine: String,
    /// In the order in which they may be made.
    changes: Vec<Change>,
    /// What makes the engine see it.
    restart: Option<&'static str>,
    notes: Vec<String>,
}

pub fn run(options: &Options, format: Format) -> Result<i32> {
    check_name(&options.name)?;
    if !options.dry_run && options.root.is_none() && !nix::unistd::geteuid().is_root() {
        return Err(
            Error::new("engines are configured below /etc, where only root can write")
                .hint("run it with sudo, or with --dry-run to see what it would do"),
        );
    }
    let root = match &options.root {
        Some(root) => {
            std::fs::canonicalize(root).context(|| format!("open --root {}", root.display()))?
        }
        None => PathBuf::from("/"),
    };
    let task = Task {
        name: &options.name,
        runtime: runtime(options, &root)?,
        remove: options.remove,
        default: options.set_as_default,
        engine_config: options.engine_config.as_deref(),
        drop_in: options.drop_in.as_deref(),
        executable: options.executable.as_deref(),
        root: &root,
    };
    task.check_paths()?;
    let mut plan = match options.engine {
        Engine::Containerd => containerd::plan(&task)?,
        Engine::Crio => crio::plan(&task)?,
        Engine::Podman => podman::plan(&task)?,
        Engine::Docker => docker::plan(&task)?,
    };
    let link = task.link(&plan.changes)?;
    if !options.dry_run {
        // It is there as long as an engine calls it.
        if let Some(link) = link.as_ref().filter(|_| !task.remove) {
            link.make()?;
        }
        for change in &plan.changes {
            change.make()?;
        }
        if let Some(link) = link.as_ref().filter(|_| task.remove) {
            link.remove()?;
        }
    }
    plan.notes
        .extend(link.map(|l| l.note(options.remove, options.dry_run)));
    show(&plan, options, format);
    Ok(0)
}

fn show(plan: &Plan, options: &Options, format: Format) {
    let changed = plan.changes.iter().any(Change::changes);
    let restart = plan.restart.filter(|_| changed);
    if format == Format::Json {
        let items: Vec<ChangeItem<'_>> = plan
            .changes
            .iter()
            .map(|change| ChangeItem {
                engine: &plan.engine,
                path: &change.path,
                change: change.word(),
                restart,
            })
            .collect();
        output::json(&Items { items: &items });
        return;
    }
    if !changed {
        output::line(&match options.remove {
            false => format!(
                "{}: {} is configured, nothing to change",
                plan.engine, options.name
            ),
            true => format!(
                "{}: no {} of ours is configured, nothing to change",
                plan.engine, options.name
            ),
        });
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
        output::line(&match restart {
            Some(command) if options.remove => {
                format!("{}: to have it forgotten, run: {command}", plan.engine)
            }
            Some(command) => format!("{}: to use it, run: {command}", plan.engine),
            None if options.remove => format!("{}: forgotten at once", plan.engine),
            None => format!("{}: in use from the next container on", plan.engine),
        });
    }
}

/// What a RuntimeClass can name as its handler.
fn check_name(name: &str) -> Result<()> {
    // Engines have these without a file of theirs that says so.
    if matches!(name, "runc" | "crun") {
        return Err(
            Error::new(format!("--name {name} is a low-level runtime to engines")).hint(
                "choose another name; --set-as-default has it used where no runtime is named",
            ),
        );
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.is_empty()
        && name.len() <= 63
        && name.chars().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
    {
        return Ok(());
    }
    Err(
        Error::new(format!("--name {name:?} cannot be a handler of Kubernetes"))
            .hint("small letters, digits and - inside, 63 at most"),
    )
}

fn runtime(options: &Options, root: &Path) -> Result<PathBuf> {
    if let Some(path) = &options.runtime_path {
        return Ok(path.clone());
    }
    let migctl = std::env::current_exe().context(|| "find migctl's own folder")?;
    let migctl = match migctl.strip_prefix(root) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => migctl,
    };
    let name = link::variant(&options.name).map_or("runmig", |_| options.name.as_str());
    Ok(migctl.with_file_name(name))
}
