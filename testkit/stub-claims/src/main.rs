//! Calls the ledger for a claim, as runmig-dra does: one call a process, so that tests can kill it anywhere.
//!
//! usage: stub-claims promise|prepare|prepare-at-once|prepare-patiently UID GPU PROFILE START SIZE
//!        stub-claims unprepare UID
//!
//! The variable RUNMIG_CONFIG names the configuration.

use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Error, Result};
use runmig_lease::{ClaimPlace, Leases, NoBundles, Patience};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use testkit::claims::{claim, place};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match call(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}", e.line());
            ExitCode::FAILURE
        }
    }
}

fn call(arguments: &[&str]) -> Result<()> {
    let [verb, uid, place @ ..] = arguments else {
        return Err(Error::new("cannot read the arguments: see the source"));
    };
    let file = std::env::var_os("RUNMIG_CONFIG").unwrap_or_default();
    let config = Config::read(Path::new(&file))?;
    let leases = Leases::open(&config, Box::new(NoBundles))?.acting_as(Actor::Claim);
    match (*verb, place) {
        ("unprepare", []) => leases.unprepare(uid, Patience::default()),
        ("promise", [gpu, profile, start, size]) => {
            let at = place_of(gpu, profile, [start, size])?;
            leases.promise(claim(uid), &at, &|_| ()).map(drop)
        }
        ("prepare" | "prepare-at-once" | "prepare-patiently", [gpu, profile, start, size]) => {
            let at = place_of(gpu, profile, [start, size])?;
            let patience = match *verb {
                "prepare" => Duration::from_secs(3),
                "prepare-patiently" => Duration::from_secs(60),
                _ => Duration::ZERO,
            };
            let prepared = leases.prepare(claim(uid), &at, patience, &|_| ());
            prepared.map(drop)
        }
        _ => Err(Error::new(format!("cannot read the arguments of {verb}"))),
    }
}

fn place_of(gpu: &str, profile: &str, placement: [&str; 2]) -> Result<ClaimPlace> {
    let number = |text: &str| {
        let number = text.parse();
        number.map_err(|e| Error::new(format!("cannot read {text}: {e}")))
    };
    let [start, size] = placement;
    Ok(place(gpu, profile, number(start)?, number(size)?))
}
