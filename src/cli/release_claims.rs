//! `migctl release --claims`: ends the leases of all claims by hand, before the Kubernetes driver goes for good.

use super::claims;
use super::list;
use super::output::{self, Format};
use super::release::{json, release, tell};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{self, Error, Result};
use runmig_lease::store::Entry;

const NONE: &str = "no claim has a lease";

pub fn run(config: &Config, format: Format) -> Result<i32> {
    let Some(leases) = bundles::existing(config, Actor::Operator)? else {
        match format {
            Format::Json => list::json(&[], &[], &[]),
            Format::Table => output::line(NONE),
        }
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
    let mut entries = leases.store().list()?.entries;
    entries.retain(|entry| claims::of(entry).is_some());
    let (mut released, mut failed): (Vec<Entry>, Vec<Error>) = Default::default();
    for entry in entries {
        match release(&leases, &entry) {
            Ok(()) => released.push(entry),
            Err(e) => failed.push(e),
        }
    }
    match format {
        Format::Json => json(&leases, &released),
        Format::Table if released.is_empty() && failed.is_empty() => output::line(NONE),
        Format::Table => released.iter().for_each(tell),
    }
    error::all(failed.into_iter().map(Err)).map(|()| 0)
}
