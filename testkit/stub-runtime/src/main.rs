//! `stub-runtime`: what an engine sees of runc, without a container. Its `init` is a real process,
//! recorded as runc records it; createRuntime and poststop hooks are run as runc runs them. A container
//! with a `cgroupsPath` has that cgroup, if cgroup v2 is at its place.
//!
//! `<root>/behaviour` says how it misbehaves, a word a line:
//!
//! ```text
//! create-fails-early          before there is an init; no hook runs
//! create-fails-late           init was there; poststop hooks run, as in runc
//! rewrites-config             config.json is written anew and added to, as by nvidia-container-runtime
//! create-waits FIFO           until a process writes into the FIFO; no init yet
//! create-waits-late FIFO      the same with init there and on record
//! delete-waits FIFO           init is dead, nothing else is done yet
//! delete-fails                init stays, exit 1
//! no-hooks                    a delete runs none
//! hooks-twice                 a delete runs them twice
//! run-ends                    init of a foreground run ends by itself
//! ```

mod cgroup;
mod container;
mod hooks;
mod init;

use container::Container;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// A failure, in words.
type Failure = Box<dyn std::error::Error>;

struct Arguments {
    root: PathBuf,
    command: String,
    bundle: PathBuf,
    pid_file: Option<PathBuf>,
    force: bool,
    id: String,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("init") {
        init::main();
    }
    match parse(std::env::args_os().skip(1)).and_then(|a| run(&a)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("stub-runtime: {e}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Arguments, Failure> {
    let mut parsed = Arguments {
        root: "/run/stub-runtime".into(),
        command: String::new(),
        bundle: ".".into(),
        pid_file: None,
        force: false,
        id: String::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or("an option lacks its value");
        match arg.to_str().ok_or("an argument is not UTF-8")? {
            "--root" => parsed.root = value()?.into(),
            "--bundle" | "-b" => parsed.bundle = value()?.into(),
            "--pid-file" => parsed.pid_file = Some(value()?.into()),
            "--log" | "--log-format" | "--resources" => drop(value()?),
            resources if resources.starts_with("--resources=") => {}
            "--force" | "-f" => parsed.force = true,
            option if option.starts_with('-') => return Err(format!("option {option}").into()),
            word if parsed.command.is_empty() => parsed.command = word.to_owned(),
            word if parsed.id.is_empty() => parsed.id = word.to_owned(),
            _ => {}
        }
    }
    Ok(parsed)
}

fn run(a: &Arguments) -> Result<(), Failure> {
    let container = Container::new(&a.root, &a.id);
    init::check_proc()?;
    match a.command.as_str() {
        "create" => container.create(&a.bundle, a.pid_file.as_deref()),
        "run" => container.run(&a.bundle, a.pid_file.as_deref()),
        "start" => container.init().map(drop),
        "exec" | "update" => container.reach(),
        "state" => container.show(),
        "kill" => container.kill(),
        "delete" => container.delete(a.force),
        "features" => {
            println!("{{}}");
            Ok(())
        }
        other => Err(format!("command {other:?}").into()),
    }
}
