//! Programs that the checks run: without input, with a limit on time and output.

use runmig_lease::error::{Context, Error, Result};
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The time that a program gets. An engine of Go prints its version within 0.2 s, on a busy machine within seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most that is read of a program's output.
const MAX_OUTPUT: u64 = 1024 * 1024;

/// The surroundings of a program.
pub enum Surroundings<'a> {
    /// Those of migctl.
    Ours,
    /// Only these variables, as a low-level runtime starts a hook. The folder is that of the root file system.
    Only(&'a [(&'a str, &'a str)]),
}

/// Runs a program, and returns its standard output.
///
/// # Errors
/// The program cannot be run, fails, or does not end in time; it is then killed.
pub fn output(
    program: &Path,
    arguments: &[&str],
    surroundings: &Surroundings<'_>,
) -> Result<String> {
    let (status, said, complaint) = run(program, arguments, surroundings)?;
    if status.success() {
        return Ok(said);
    }
    let last = complaint.lines().last().unwrap_or("it prints no reason");
    let failed = Error::new(format!("{status}: {last}"));
    Err(failed).context(|| format!("run {} {}", program.display(), arguments.join(" ")))
}

/// Returns the exit status, the standard output and the standard error of a program.
fn run(
    program: &Path,
    arguments: &[&str],
    surroundings: &Surroundings<'_>,
) -> Result<(ExitStatus, String, String)> {
    let what = || format!("run {} {}", program.display(), arguments.join(" "));
    let mut command = Command::new(program);
    if let Surroundings::Only(variables) = surroundings {
        let variables = variables.iter().copied();
        command.env_clear().envs(variables).current_dir("/");
    }
    let mut child = { command.args(arguments) }
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(what)?;
    let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
    // Its output ends with it, unless a child of it has the pipe.
    let (Ok(said), Ok(complaint)) = (out.recv_timeout(PATIENCE), err.recv_timeout(PATIENCE)) else {
        let _ = child.kill();
        let _ = child.wait();
        let why = format!("it does not end within {} seconds", PATIENCE.as_secs());
        return Err(Error::new(why)).context(what);
    };
    let status = child.wait().context(what)?;
    Ok((status, said, complaint))
}

/// Reads an output to its end, in a thread of its own.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (told, hears) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|pipe| pipe.take(MAX_OUTPUT).read_to_end(&mut bytes));
        let _ = told.send(String::from_utf8_lossy(&bytes).trim().to_owned());
    });
    hears
}

/// Runs a program as `output` does, and returns the lines of its standard output, whatever its exit status.
pub fn lines(
    program: &Path,
    arguments: &[&str],
    surroundings: &Surroundings<'_>,
) -> Result<Vec<String>> {
    let (_, said, _) = run(program, arguments, surroundings)?;
    Ok(said.lines().map(str::to_owned).collect())
}
