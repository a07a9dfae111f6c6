//! `migctl configure`: makes runmig known to an engine, or forgotten. What it changes is worked out
//! in full before the first file is written; what is there and not ours stays as it is, to the byte.

mod containerd;
mod crio;
mod docker;
mod engine;
mod file;
mod inherit;
mod json;
mod link;
mod podman;
mod toml_text;

use super::output::{self, Format};
use crate::error::{Context, Error, Result};
use crate::trust;
use clap::{Args, ValueEnum};
use file::Change;
use serde::Serialize;
use std::path::{Path, PathBuf};

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

/// What a run is about, for the engines' parts.
struct Task<'a> {
    name: &'a str,
    /// The runmig that the engine is to call.
    runtime: PathBuf,
    remove: bool,
    /// It is to be the one that is used where none is named.
    default: bool,
    engine_config: Option<&'a Path>,
    drop_in: Option<&'a Path>,
    executable: Option<&'a Path>,
    root: &'a Path,
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

/// First in every file of ours.
const MADE: &str =
    "# Made by migctl configure, which writes it anew, or takes it away with --remove.\n";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    engine: &'a str,
    path: &'a Path,
    /// `created`, `changed`, `removed` or `unchanged`; in a dry run what it would be.
    change: &'static str,
    restart: Option<&'a str>,
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
    let link = task.link()?;
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
        let items: Vec<Item<'_>> = plan
            .changes
            .iter()
            .map(|change| Item {
                engine: &plan.engine,
                path: &change.path,
                change: change.word(),
                restart,
            })
            .collect();
        output::json("ChangeList", &items);
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

impl Task<'_> {
    fn check_paths(&self) -> Result<()> {
        let given = [
            Some(self.runtime.as_path()),
            self.engine_config,
            self.drop_in,
        ];
        if let Some(path) = given.into_iter().flatten().find(|p| !p.is_absolute()) {
            return Err(Error::new(format!(
                "{} is not an absolute path",
                path.display()
            )));
        }
        // Between quotes in files of others.
        let quoted = |c: char| c.is_control() || matches!(c, '"' | '\\');
        let text = self.runtime.to_str();
        if text.is_none_or(|t| t.contains(quoted)) {
            return Err(Error::new(format!(
                "{:?} cannot be written into an engine's configuration",
                self.runtime
            ))
            .hint("--runtime-path names a runmig without quotes and backslashes in its path"));
        }
        if self.remove {
            return Ok(());
        }
        // A link that is not there yet will lead to it.
        let to_be_made =
            self.is_link() && std::fs::symlink_metadata(self.on_disk(&self.runtime)).is_err();
        let runmig = match to_be_made {
            true => self.runtime.with_file_name("runmig"),
            false => self.runtime.clone(),
        };
        let checked = trust::program(&self.on_disk(&runmig));
        checked.map(drop).map_err(|e| {
            Error::new(format!("engines are to call {} as root", runmig.display()))
                .hint("scripts/install puts runmig beside migctl; --runtime-path names another")
                .caused_by(e)
        })
    }

    fn on_disk(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What `path` has and is to have.
    fn change(
        &self,
        path: &Path,
        after: impl FnOnce(Option<&str>) -> Result<Option<String>>,
    ) -> Result<Change> {
        let before = self.read(path)?;
        let after = after(before.as_deref())?;
        Ok(Change {
            path: path.to_owned(),
            on_disk: self.on_disk(path),
            before,
            after,
        })
    }

    fn read(&self, path: &Path) -> Result<Option<String>> {
        file::read(&self.on_disk(path), self.root).context(|| format!("read {}", path.display()))
    }

    /// The engine's files, in the order in which it reads them, without ours and what is not there.
    fn files(
        &self,
        first: &[&Path],
        drop_ins: &str,
        ours: &Path,
    ) -> Result<Vec<(PathBuf, String)>> {
        let entries = std::fs::read_dir(self.on_disk(drop_ins.as_ref()));
        let mut dropped: Vec<PathBuf> = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| Path::new(drop_ins).join(entry.file_name()))
            .filter(|path| path.extension().is_some_and(|e| e == "conf") && path != ours)
            .collect();
        dropped.sort();
        let mut files = Vec::new();
        for file in first.iter().map(|f| f.to_path_buf()).chain(dropped) {
            if let Some(text) = self.read(&file)? {
                files.push((file, text));
            }
        }
        Ok(files)
    }

    /// A file that is ours alone. One that somebody else wrote stays: it says the same, or is in the
    /// way.
    fn own_file(&self, path: &Path, text: String) -> Result<Change> {
        self.change(path, |before| match before {
            Some(theirs) if !theirs.starts_with(MADE) => {
                if self.remove || toml_text::same(theirs, &text) {
                    return Ok(Some(theirs.to_owned()));
                }
                Err(Error::new(format!(
                    "{} is there, says something else, and was not made by migctl configure",
                    path.display()
                ))
                .hint("take it away, or name another file with --drop-in"))
            }
            _ => Ok((!self.remove).then_some(text)),
        })
    }
}
