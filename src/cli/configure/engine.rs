//! The installed engine: its program, its version and its effective configuration.

use super::Task;
use crate::cli::command;
use nix::sys::memfd::{MFdFlags, memfd_create};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::{process, programs, trust};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Found {
    /// `containerd 1.6.20`
    pub name: String,
    pub program: PathBuf,
    /// `None` where the program does not print one, such as a development build.
    pub version: Option<(u32, u32)>,
}

/// The usual folders of engines, for a PATH that lacks some of them.
const USUAL: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

impl Found {
    pub fn of(task: &Task<'_>, engine: &str, program: &str) -> Result<Found> {
        let program = match task.executable {
            // A name alone is one on PATH.
            Some(given) if given.file_name() == Some(given.as_os_str()) => {
                search(&given.to_string_lossy()).unwrap_or_else(|| given.to_owned())
            }
            Some(given) => given.to_owned(),
            // Its files go whatever its version, but for containerd's.
            None if task.remove && program != "containerd" && search(program).is_none() => {
                return Ok(Found::without_version(engine, program.into()));
            }
            None => search(program).ok_or_else(|| {
                Error::new(format!("cannot find {engine}: no {program} on PATH"))
                    .hint("install it, or name the program with --executable")
            })?,
        };
        let found = Found::at(engine, program)?;
        let is_sure = task.executable.is_some() || task.remove || task.root != Path::new("/");
        if let Some((pid, other)) = (!is_sure).then(|| found.other_running(engine)).flatten() {
            return Err(Error::new(format!(
                "cannot tell which {engine} to configure: {} is {}, and process {pid} is {} ({})",
                found.program.display(),
                found.name,
                other.name,
                other.program.display()
            ))
            .hint("name the one that reads the configuration with --executable"));
        }
        Ok(found)
    }

    pub fn without_version(engine: &str, program: PathBuf) -> Found {
        Found {
            name: engine.to_owned(),
            program,
            version: None,
        }
    }

    pub fn at(engine: &str, mut program: PathBuf) -> Result<Found> {
        // It runs in another folder than migctl.
        if program.components().nth(1).is_some() {
            program = std::path::absolute(&program).unwrap_or(program);
        }
        let mut found = Found::without_version(engine, program);
        let said = found.run(&["--version"], Stdio::null())?;
        if let Some((word, (major, minor, _))) = programs::version(&said) {
            found.name = format!("{engine} {word}");
            found.version = Some((major, minor));
        }
        Ok(found)
    }

    /// Returns the server of another version that runs with these mounts. It reads files in another way.
    fn other_running(&self, engine: &str) -> Option<(i32, Found)> {
        let name = self.program.file_name()?.to_str()?;
        let other = |pid| {
            let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
            // A replaced program has no path any more, and any user can name a process so.
            let (program, _) = trust::program(&program).ok()?;
            let other = Found::at(engine, program).ok()?;
            let said = other.run(&["--version"], Stdio::null()).ok()?;
            (said.starts_with(name) && other.version != self.version).then_some((pid, other))
        };
        running(name).into_iter().find_map(other)
    }

    pub fn at_least(&self, major: u32) -> bool {
        self.version.is_some_and(|(found, _)| found >= major)
    }

    /// Returns the engine's configuration as it is in effect.
    pub fn effective(&self, arguments: &[&str]) -> Result<toml::Table> {
        let text = self.run(arguments, Stdio::null())?;
        let (program, arguments) = (self.program.display(), arguments.join(" "));
        toml::from_str(&text).context(|| format!("parse the output of {program} {arguments}"))
    }

    /// Checks that the engine takes a text as the file `/dev/stdin`.
    pub fn accepts(&self, arguments: &[&str], text: &str) -> Result<()> {
        let what = || "keep the text in memory";
        let file = memfd_create(c"text", MFdFlags::MFD_CLOEXEC).context(what)?;
        let mut file = File::from(file);
        file.write_all(text.as_bytes()).context(what)?;
        self.run(arguments, file.into()).map(drop)
    }

    fn run(&self, arguments: &[&str], stdin: Stdio) -> Result<String> {
        let called = || format!("{} {}", self.program.display(), arguments.join(" "));
        let what = || format!("run {}", called());
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(stdin);
        // docker looks for its helpers on PATH.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = self.program.parent().map(Path::to_owned);
        let folders = std::env::split_paths(&path).chain(own);
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
        let (status, said, complaint) = command::finish(command, what)?;
        if !status.success() {
            let last = complaint.lines().last().unwrap_or_default();
            return Err(Error::new(format!("{}: {status}: {last}", called())));
        }
        Ok(said)
    }
}

/// Returns the processes of this command name with these mounts. One with others is in a container.
pub fn running(command: &str) -> Vec<i32> {
    let mounts = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let ours = mounts("self");
    let mut all = process::called(command);
    all.retain(|pid| mounts(&pid.to_string()) == ours);
    all
}

/// Returns the program of this name on PATH or in the usual folders.
pub fn search(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(USUAL.iter().map(PathBuf::from))
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|path| Path::is_file(path))
}
