//! The front. An engine calls it as it calls runc. For a call that does not concern a slice, the front
//! becomes the low-level runtime, at the price of an exec.
//!
//! Two programs use this module. `runmig` decides whether a call concerns a slice. It opens no library, so it
//! can be linked statically. It hands such a call to `runmig-slice` beside it, with the same arguments.
//! `runmig-slice` decides again by itself, and does the work. Only a delete begins in the front, which runs the
//! low-level runtime: its hook leaves no work for `runmig-slice` as a rule.

pub mod args;
mod companion;
mod container_name;
mod create;
mod delete;
mod detect;
mod features;
mod lowlevel;
mod mps;
mod podman;
mod report;
mod spawn;
mod update;

use args::{Call, Family, Verb};
use lowlevel::LowLevel;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::process;
use std::ffi::{OsStr, OsString};
use std::process::ExitStatus;

/// The context of a call.
struct Front<'a> {
    name: Option<&'a OsStr>,
    args: &'a [OsString],
    config: &'a Config,
    runtime: &'a LowLevel,
    call: &'a Call,
    /// The end of the low-level runtime, if the front has run it for this call.
    ended: Option<ExitStatus>,
}

/// The handler of calls that concern a slice.
struct Slicer {
    create: fn(&Front<'_>, detect::Asking<'_>) -> Result<i32>,
    delete: fn(&Front<'_>, runmig_lease::store::Key) -> Result<i32>,
    update: fn(&Front<'_>, &args::Update) -> Result<i32>,
    features: fn(&Front<'_>) -> Result<i32>,
}

/// Runs the program `runmig` with the arguments that it was called with, its own name first, and returns its exit status.
pub fn front(arguments: Vec<OsString>) -> i32 {
    let front = Slicer {
        create: |front, _| match companion::exec(front, None)? {},
        delete: |front, key| delete::delete(front, &key, delete::by_companion),
        update: |front, _| companion_or_bare(front),
        features: companion_or_bare,
    };
    enter(&front, arguments, |_| None)
}

/// Hands the call to `runmig-slice`. If that fails, hands it to the low-level runtime, which does the
/// necessary part of the call without runmig.
fn companion_or_bare(front: &Front<'_>) -> Result<i32> {
    let Err(e) = companion::exec(front, None);
    report::error(&e, None);
    Err(front.runtime.exec(front.args))
}

/// Runs the program `runmig-slice`, and returns its exit status.
pub fn slice() -> i32 {
    let slice = Slicer {
        create: create::create,
        delete: |front, key| delete::delete(front, &key, delete::release),
        update: update::but_for_devices,
        features: features::tell,
    };
    enter(&slice, std::env::args_os().collect(), spawn::take_argument)
}

/// Returns the exit status, unless the low-level runtime replaces this process.
fn enter(
    slicer: &Slicer,
    arguments: Vec<OsString>,
    ended: fn(&mut Vec<OsString>) -> Option<ExitStatus>,
) -> i32 {
    spawn::fill_standard_descriptors();
    process::survive_file_limit();
    let mut argv = arguments.into_iter();
    let name = argv.next();
    let mut args: Vec<OsString> = argv.collect();
    let ended = ended(&mut args);
    let mut log = None;
    match dispatch(slicer, name.as_deref(), &args, ended, &mut log) {
        Ok(status) => status,
        Err(e) => {
            // An error may come before the family of the low-level runtime is known. Engines name the log alike for both.
            let log = log.or_else(|| args::parse(Family::Runc, &args).log);
            report::error(&e, log.as_ref());
            ended.map_or(1, spawn::propagate)
        }
    }
}

fn dispatch(
    slicer: &Slicer,
    name: Option<&OsStr>,
    args: &[OsString],
    ended: Option<ExitStatus>,
    log: &mut Option<args::Log>,
) -> Result<i32> {
    let config = Config::for_program(name)?;
    let runtime = LowLevel::find(&config)?;
    let call = args::parse(runtime.family, args);
    *log = call.log.clone();
    if ended.is_some() && !matches!(call.verb, Verb::Delete(_)) {
        let e = Error::new("the argument --low-level-runtime-ended is for a delete alone")
            .hint("call runmig, which calls this program");
        report::error(&e, log.as_ref());
        return Ok(1);
    }
    let front = Front {
        name,
        args,
        config: &config,
        runtime: &runtime,
        call: &call,
        ended,
    };
    let asks = match &call.verb {
        Verb::Make(create) => detect::request(&front, create)?,
        Verb::Delete(id) => match (delete::lease_of(&front, id)?, ended) {
            (Some(key), _) => return (slicer.delete)(&front, key),
            (None, Some(ended)) => return Ok(spawn::propagate(ended)),
            (None, None) => None,
        },
        Verb::Checkpoint(words) => {
            for word in words {
                if let Some(key) = delete::lease_of(&front, word)? {
                    return Err(no_checkpoint(&key.id));
                }
            }
            None
        }
        Verb::Update(update) => match delete::lease_of(&front, &update.id)? {
            Some(_) => return (slicer.update)(&front, update),
            None => None,
        },
        Verb::Features => return (slicer.features)(&front),
        Verb::Unclear(unclear) => {
            detect::refuse_unclear(&front, unclear)?;
            None
        }
        Verb::Other if matches!(args, [only] if only == "--version" || only == "-v") => {
            return features::version(&front);
        }
        Verb::Other => None,
    };
    match asks {
        Some(asking) => (slicer.create)(&front, asking),
        None => Err(runtime.exec(args)),
    }
}

/// Returns the error for a checkpoint that would end the work of a container with a lease.
fn no_checkpoint(id: &str) -> Error {
    Error::new(format!(
        "cannot checkpoint container {id}: it holds a GPU, so it could not be restored, and its work would be lost"
    ))
    .hint("checkpoint it with --leave-running")
}
