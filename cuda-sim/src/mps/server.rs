//! The server process. The daemon answers for it; the process holds the GPUs and can be killed.

use std::io::{self, BufRead};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use nvml_sim::holders::{self, Hold};
use nvml_sim::state::Store;

use super::SERVER_NAME;

/// Runs a server: holds each GPU that the daemon names on standard input, and ends with the daemon,
/// whose death closes it.
pub fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("cannot start without a machine's directory: only the daemon starts a server");
        return ExitCode::FAILURE;
    };
    match serve(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot hold a GPU: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(dir: &Path) -> io::Result<()> {
    let store = Store::open(dir)?;
    let mut holds: Vec<Hold> = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let target = serde_json::from_str(&line).map_err(io::Error::other)?;
        holds.push(holders::lock_files_of(&store, target)?);
        println!("holding {line}");
    }
    Ok(())
}

/// Starts a server as a child of this process.
pub fn start(dir: &Path) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new(std::env::current_exe()?)
        .arg0(SERVER_NAME)
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}
