//! The front: called as an engine calls runc, it makes a slice where one is asked for and is out of
//! the way everywhere else.

pub mod args;
mod create;
mod delete;
mod image;
mod lowlevel;
mod report;
mod spawn;

use crate::config::Config;
use crate::error::Result;
use args::{Call, Family, Verb};
use lowlevel::LowLevel;
use std::ffi::OsString;

/// What a call needs to know.
struct Front<'a> {
    config: &'a Config,
    runtime: &'a LowLevel,
    call: &'a Call,
    args: &'a [OsString],
}

/// Returns the exit status, unless the low-level runtime has taken our place.
pub fn main() -> i32 {
    spawn::fill_standard_descriptors();
    let mut argv = std::env::args_os();
    let name = argv.next();
    let args: Vec<OsString> = argv.collect();
    let mut log = None;
    match run(name.as_deref(), &args, &mut log) {
        Ok(status) => status,
        Err(e) => {
            report::error(&e, log.as_ref());
            1
        }
    }
}

fn run(
    name: Option<&std::ffi::OsStr>,
    args: &[OsString],
    log: &mut Option<report::Log>,
) -> Result<i32> {
    // Where the error goes is known only when the arguments are; a family parses its own.
    *log = report::Log::guess(args);
    let config = Config::for_program(name)?;
    let runtime = LowLevel::find(&config)?;
    let call = args::parse(Family::of(runtime.path()), args)?;
    *log = report::Log::of(&call);
    let front = Front {
        config: &config,
        runtime: &runtime,
        call: &call,
        args,
    };
    match &call.verb {
        Verb::Create(c) => create::create(&front, c, create::Stays::Until),
        Verb::Run(c) if c.detach => create::create(&front, &c.common, create::Stays::Until),
        Verb::Run(c) => create::create(&front, &c.common, create::Stays::While),
        Verb::Restore(c) => create::restore(&front, c),
        Verb::Delete(d) => delete::delete(&front, d),
        Verb::Other => Err(runtime.exec(args)),
    }
}
