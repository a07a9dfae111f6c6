//! The front: called as an engine calls runc, it is out of the way of everything that asks for no
//! slice, and of that at the price of an exec.
//!
//! Two programs stand on it. `runmig` decides whether a call concerns a slice, and can be linked
//! statically, since it opens no library. It hands such a call to `runmig-slice` beside it, with
//! the same arguments; that one makes up its own mind and does the work.

pub mod args;
mod companion;
mod create;
mod delete;
mod detect;
mod features;
mod image;
mod key;
mod lowlevel;
mod podman;
mod report;
mod spawn;
mod update;

use args::{Call, Family, Verb};
use lowlevel::LowLevel;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::process::signals;
use std::ffi::{OsStr, OsString};

/// The context of a call.
struct Front<'a> {
    name: Option<&'a OsStr>,
    args: &'a [OsString],
    config: &'a Config,
    runtime: &'a LowLevel,
    call: &'a Call,
}

/// The handler of calls that concern a slice.
struct Slicer {
    create: fn(&Front<'_>, detect::Asking<'_>) -> Result<i32>,
    delete: fn(&Front<'_>, runmig_lease::store::Key) -> Result<i32>,
    update: fn(&Front<'_>, &args::Update) -> Result<i32>,
    features: fn(&Front<'_>) -> Result<i32>,
}

/// `runmig`
pub fn front() -> i32 {
    enter(&Slicer {
        create: |front, _| companion::exec(front),
        // A container must be deletable whatever became of our installation; its slice then comes
        // back by the hook or a collection.
        delete: |front, _| companion_or_bare(front),
        update: |front, _| companion_or_bare(front),
        features: companion_or_bare,
    })
}

/// The low-level runtime does without us what has to be done in any case.
fn companion_or_bare(front: &Front<'_>) -> Result<i32> {
    let e = match companion::exec(front) {
        Ok(status) => return Ok(status),
        Err(e) => e,
    };
    report::error(&e, None);
    Err(front.runtime.exec(front.args))
}

/// `runmig-slice`
pub fn slice() -> i32 {
    enter(&Slicer {
        create: create::create,
        delete: delete::give_back,
        update: update::but_for_devices,
        features: features::tell,
    })
}

/// Returns the exit status, unless the low-level runtime has taken our place.
fn enter(slicer: &Slicer) -> i32 {
    spawn::fill_standard_descriptors();
    signals::survive_file_limit();
    let mut argv = std::env::args_os();
    let name = argv.next();
    let args: Vec<OsString> = argv.collect();
    // The arguments decide where an error goes, and the low-level runtime decides how they are
    // read.
    let mut log = report::Log::guess(&args);
    match dispatch(slicer, name.as_deref(), &args, &mut log) {
        Ok(status) => status,
        Err(e) => {
            report::error(&e, log.as_ref());
            1
        }
    }
}

fn dispatch(
    slicer: &Slicer,
    name: Option<&OsStr>,
    args: &[OsString],
    log: &mut Option<report::Log>,
) -> Result<i32> {
    let config = Config::for_program(name)?;
    let runtime = LowLevel::find(&config)?;
    let call = args::parse(Family::of(runtime.path()), args)?;
    *log = report::Log::of(&call);
    let front = Front {
        name,
        args,
        config: &config,
        runtime: &runtime,
        call: &call,
    };
    let asks = match &call.verb {
        Verb::Create(_) | Verb::Run(_) | Verb::Restore { .. } => detect::request(&front)?,
        Verb::Delete { id, .. } => match delete::lease_of(&front, id)? {
            Some(key) => return (slicer.delete)(&front, key),
            None => None,
        },
        Verb::Update(update) => match delete::lease_of(&front, &update.id)? {
            Some(_) => return (slicer.update)(&front, update),
            None => None,
        },
        Verb::Features => return (slicer.features)(&front),
        Verb::Other => None,
    };
    match asks {
        Some(asking) => (slicer.create)(&front, asking),
        None => Err(runtime.exec(args)),
    }
}
