//! Resets GPUs by `nvidia-smi`, since NVML has no call for it.

use crate::error::{Context, Error, Result};
use crate::process::program::{self, shown};
use crate::trust;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "nvidia-smi";

/// The time for a reset. One takes seconds, and a machine with NVSwitches resets them too.
const TIME: Duration = Duration::from_secs(120);

/// A `nvidia-smi` that only root can change.
pub(crate) struct Program {
    path: PathBuf,
    /// The folder of the driver's library, if the configuration names one.
    libraries: Option<PathBuf>,
}

/// The end of a reset.
pub(crate) enum Reset {
    /// The GPUs are reset.
    Done,
    /// The machine cannot reset them, as many virtual machines: no other try helps.
    NotSupported(Error),
}

/// The status of `nvidia-smi` for what its target does not support, by its manual.
const NOT_SUPPORTED: i32 = 3;

impl Program {
    /// Finds the program below the driver's root. The machine's own would reset other GPUs where that is another root.
    pub(crate) fn find(driver_root: &Path, library: &Path) -> Result<Program> {
        let program = driver_root.join("usr/bin").join(NAME);
        if !program.exists() {
            return Err(Error::new(format!("there is no {}", program.display())));
        }
        let what = || format!("use {}", program.display());
        let (path, _) = trust::program(&program).context(what)?;
        let folder = library.parent().filter(|_| library.is_absolute());
        Ok(Program {
            path,
            libraries: folder.map(PathBuf::from),
        })
    }

    /// Resets the GPUs with these PCI addresses. All sessions with the driver have to be closed. The program has `stdin` open
    /// until it ends.
    ///
    /// # Errors
    /// It refuses: something uses a GPU.
    pub(crate) fn reset(&self, addresses: &[&str], stdin: impl Into<Stdio>) -> Result<Reset> {
        let mut command = Command::new(&self.path);
        command.env_clear();
        if let Some(folder) = &self.libraries {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command.args(["--gpu-reset", "-i", &addresses.join(",")]);
        let what = || format!("run {} --gpu-reset", self.path.display());
        let answer = program::run(command, stdin, Instant::now() + TIME).context(what)?;
        if answer.status.success() {
            return Ok(Reset::Done);
        }
        let refused = Error::failed(what()).caused_by(shown(&answer));
        let says_so = answer.text.to_ascii_lowercase().contains("not supported");
        match says_so || answer.status.code() == Some(NOT_SUPPORTED) {
            true => Ok(Reset::NotSupported(refused)),
            false => Err(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_tries_help_unless_a_reset_is_not_supported() {
        let root = tempfile::tempdir().unwrap();
        let smi = root.path().join("usr/bin/nvidia-smi");
        let tried = |script: &str| {
            program::install(&smi, &format!("#!/bin/sh\n{script}"));
            let program = Program::find(root.path(), Path::new("libnvidia-ml.so.1")).unwrap();
            match program.reset(&["0000:07:00.0", "0000:08:00.0"], Stdio::null()) {
                Ok(Reset::Done) => "done".to_owned(),
                Ok(Reset::NotSupported(e)) => format!("not supported: {}", e.reason()),
                Err(e) => format!("refused: {}", e.reason()),
            }
        };
        let run = format!("cannot run {} --gpu-reset", smi.display());
        for (script, end) in [
            (
                r#"[ "$*" = "--gpu-reset -i 0000:07:00.0,0000:08:00.0" ]"#,
                "done".to_owned(),
            ),
            ("echo in use; exit 1", format!("refused: {run}: in use")),
            (
                "echo in use; exit 3",
                format!("not supported: {run}: in use"),
            ),
            (
                "echo Not Supported; exit 1",
                format!("not supported: {run}: Not Supported"),
            ),
        ] {
            assert_eq!(tried(script), end);
        }
    }
}
