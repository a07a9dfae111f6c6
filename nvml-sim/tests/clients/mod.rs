//! NVIDIA's own clients, and the simulated machines that they are run on.
//!
//! `scripts/fetch-nvidia-clients` puts the clients beside the build; nothing of
//! NVIDIA's is in the repository. Without them a test says so and passes, but
//! not where everything is to be run: there it fails.

#![allow(dead_code)] // each test program uses its part

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// The real `nvidia-smi` (535, Debian).
pub fn nvidia_smi() -> Option<PathBuf> {
    fetched("nvidia-smi")
}

/// A Python that has `nvidia-ml-py`.
pub fn python() -> Option<PathBuf> {
    fetched("python3")
}

fn fetched(name: &str) -> Option<PathBuf> {
    let dir = match env::var_os("RUNMIG_CLIENTS") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("the build's folder")
            .join("nvidia-clients"),
    };
    let program = dir.join("bin").join(name);
    if program.exists() {
        return Some(program);
    }
    let missing = format!("{name} is not there; run scripts/fetch-nvidia-clients");
    let required = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(
        !required("CI") && !required("RUNMIG_REQUIRE_ALL"),
        "{missing} (looked for {})",
        program.display()
    );
    // Not through the harness, which keeps what a passing test prints.
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
    None
}

/// A simulated machine, gone when dropped.
pub struct Machine {
    home: TempDir,
}

impl Machine {
    /// As `nvml-sim new DIR` makes it from `what`: `--gpu A30-24GB --mig on`.
    pub fn new(what: &str) -> Self {
        let machine = Machine {
            home: TempDir::new().expect("a temporary folder"),
        };
        // Other users may look at it, as they may at a real driver.
        fs::set_permissions(machine.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        machine.sim("new", what);
        machine
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("machine")
    }

    /// Runs `nvml-sim VERB DIR ARGUMENTS`, which has to succeed.
    pub fn sim(&self, verb: &str, arguments: &str) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvml-sim"));
        command
            .arg(verb)
            .arg(self.dir())
            .args(arguments.split_whitespace());
        let said = Said::from(command.output().expect("nvml-sim"));
        assert_eq!(said.code, 0, "nvml-sim {verb} {arguments}: {said:?}");
        said
    }

    /// A program that finds this machine's library and no other.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .env("LD_LIBRARY_PATH", self.dir().join("lib"))
            .current_dir("/");
        command
    }
}

/// A process that holds an instance, as one that computes on it does.
pub struct Holder(Child);

impl Holder {
    pub fn of(machine: &Machine, target: &str) -> Holder {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvml-sim"));
        command
            .arg("hold")
            .arg(machine.dir())
            .args(target.split(' '))
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("nvml-sim hold");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let holder = Holder(child);
        assert!(ready.starts_with("holding"), "{ready:?}");
        holder
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output of a client.
#[derive(Debug)]
pub struct Said {
    /// -1 where a signal ended it.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// One space between words, whatever the columns' widths.
pub fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
