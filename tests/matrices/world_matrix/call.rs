//! One call inside a world, with a bound after which it counts as hanging.

use crate::world_matrix::enter::Inside;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, channel};
use testkit::faults::strace::Call;
use testkit::prelude::*;
use testkit::process::{descendants, take_over};

/// Generous: only a call that never ends reaches it.
const LIMIT: Duration = Duration::from_secs(90);
/// After the call has ended, until everything that writes to its outputs has.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// How a call ended, and everything that it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub said: String,
}

/// Runs a call to its end. An error says that it hangs.
pub fn run(call: &Call, inside: &Inside) -> Result<Ended, String> {
    let mut command = enter(call, inside);
    let shown = format!("{command:?}");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("start {shown}: {e}"));
    let outputs = [
        collect(child.stdout.take().expect("a pipe")),
        collect(child.stderr.take().expect("a pipe")),
    ];
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            let pid = i32::try_from(child.id()).unwrap();
            let below = descendants(pid);
            let waits = below.iter().chain([&pid]).map(|p| wchan(*p));
            let waits: Vec<String> = waits.collect();
            let _ = child.kill();
            let _ = child.wait();
            below.into_iter().for_each(kill);
            return Err(format!("{shown} does not end; it waits in {waits:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut said = String::new();
    for output in outputs {
        match output.recv_timeout(LAST_WORDS) {
            Ok(text) => said += &text,
            Err(_) => return Err(format!("{shown} has ended, and its outputs are still open")),
        }
    }
    Ok(Ended { status, said })
}

/// Returns the place in the kernel where a process waits, for the report of a hang.
fn wchan(pid: i32) -> String {
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    format!("{} {}", read("comm").trim(), read("wchan"))
}

fn collect(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (give, take) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        give.send(String::from_utf8_lossy(&bytes).into_owned())
    });
    take
}

fn enter(call: &Call, inside: &Inside) -> Command {
    let words = inside.prefix.iter().map(OsStr::new);
    let mut words = words.chain([call.command.get_program()]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    take_over(&mut command, &call.command);
    command.stdin(call.stdin());
    if let Some(filter) = inside.filter {
        // SAFETY: two system calls between fork and exec, on memory that was laid out before.
        unsafe { command.pre_exec(move || filter.install()) };
    }
    command
}
