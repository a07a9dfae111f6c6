//! `migctl release --claims`: ends the leases of all claims by hand, before the Kubernetes driver goes for good.

use super::claims;
use super::list;
use super::output::{self, Format};
use super::release::{release, tell};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{self, Error, Result};
use runmig_lease::store::Entry;

pub fn run(config: &Config, format: Format) -> Result<i32> {
    let Some(leases) = bundles::existing(config, Actor::Operator)? else {
        told(format, &[]);
        return Ok(0);
    };
    // Held until the end, so that no driver takes a claim again meanwhile.
    let _lock = leases.store().try_lock_driver()?.map_err(|by| {
        Error::new(format!(
            "cannot release the claims: runmig-dra runs on this node, {by}, and would take them again"
        ))
        .hint("remove its DaemonSet or end the process, then try again")
    })?;
    crate::log::start(config);
    let listing = leases.store().list()?;
    let (mut released, mut failed): (Vec<Entry>, Vec<Error>) = Default::default();
    for entry in listing.entries {
        if claims::of(&entry).is_none() {
            continue;
        }
        match release(&leases, &entry) {
            Ok(()) => released.push(entry),
            Err(e) => failed.push(e),
        }
    }
    match format {
        Format::Json => list::json(
            &released,
            &[],
            &leases.store().waiting().unwrap_or_default(),
        ),
        Format::Table if released.is_empty() && !failed.is_empty() => {}
        Format::Table => told(format, &released),
    }
    error::all(failed.into_iter().map(Err)).map(|()| 0)
}

fn told(format: Format, released: &[Entry]) {
    match (format, released) {
        (Format::Json, _) => list::json(released, &[], &[]),
        (Format::Table, []) => output::line("no claim has a lease"),
        (Format::Table, _) => released.iter().for_each(tell),
    }
}
