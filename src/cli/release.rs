//! `migctl release ID`: releases a slice by hand that no other call released.

use super::output::{self, Format};
use super::{claims, list};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{self, Error, Result};
use runmig_lease::store::{Claim, Entry, Key, Lease};
use runmig_lease::{Leases, Patience, Returned, UNSEEN_HINT, unseen};

pub fn run(config: &Config, format: Format, id: &str) -> Result<i32> {
    let leases = bundles::existing(config, Actor::Operator)?;
    let leases = leases.ok_or_else(|| list::unknown(id))?;
    crate::log::start(config);
    let mut found = leases.store().list()?.entries;
    found.retain(|e| e.id() == id || e.is_called(id));
    match found.as_slice() {
        [] => {
            return Err(list::missing(&leases, id)?);
        }
        // All these leases belong to one container or claim, which may have several slices.
        [first, rest @ ..]
            if { rest.iter() }
                .all(|e| (key(e), claim_uid(e)) == (key(first), claim_uid(first))) => {}
        many => {
            let ids: Vec<&str> = many.iter().map(Entry::id).collect();
            return Err(Error::new(format!(
                "{} leases are called {}",
                many.len(),
                runmig_lease::error::printable(id)
            ))
            .hint(format!("name one by its lease: {}", ids.join(", "))));
        }
    }
    found.iter().find_map(claims::of).inspect(warn);
    let (mut released, mut failed): (Vec<Entry>, Vec<Error>) = Default::default();
    for entry in found {
        match release(&leases, &entry) {
            Ok(()) => released.push(entry),
            // Several slices of one living container give the same error once.
            Err(e) if failed.iter().any(|said| said.line() == e.line()) => {}
            Err(e) => failed.push(e),
        }
    }
    match format {
        Format::Json if released.is_empty() => {}
        Format::Json => json(&leases, &released),
        Format::Table => released.iter().for_each(tell),
    }
    error::all(failed.into_iter().map(Err)).map(|()| 0)
}

fn key(entry: &Entry) -> Option<&Key> {
    Some(&entry.lease()?.container()?.key)
}

/// Returns the UID of the claim of an entry.
fn claim_uid(entry: &Entry) -> Option<&str> {
    Some(&entry.lease()?.claim()?.uid)
}

pub(super) fn json(leases: &Leases<'_>, released: &[Entry]) {
    list::json(released, &[], &leases.store().waiting().unwrap_or_default());
}

/// Warns of a claim that Kubernetes still has, as far as this node knows: it has pods on record.
fn warn(claim: &&Claim) {
    if let Some(pod) = claims::pod(claim) {
        let (claim, pod) = (claims::name(claim), error::printable(&pod));
        output::eprint(&format!(
            "warning: Kubernetes still has {}, and pod {pod} loses its slice; hint: delete the pod",
            error::printable(&claim)
        ));
    }
}

pub(super) fn release(leases: &Leases<'_>, entry: &Entry) -> Result<()> {
    let held = match entry {
        Entry::Held(held) => held,
        Entry::Unleased(instance) => {
            return match leases.release_instance(instance, Patience::default())? {
                Returned::Yes => Ok(()),
                Returned::No(why) => Err(Error::new(format!(
                    "cannot release instance {}: {why}",
                    instance.id
                ))
                .hint("find its container with migctl list")),
            };
        }
    };
    let container = list::holder_name(&held.lease);
    // Kubernetes may have forgotten a claim, and an operator who names it has seen its pod. The driver refuses to
    // destroy the instance below a process.
    let against = |now: &Lease| match now.claim() {
        Some(_) => None,
        None => leases.sign_of_life(now),
    };
    match leases.release_unless(held, Patience::default(), against)? {
        Returned::Yes => Ok(()),
        Returned::No(why) if unseen(&held.lease).is_some() => Err(Error::new(format!(
            "cannot release the slice of container {container}: {why}"
        ))
        .hint(UNSEEN_HINT)),
        Returned::No(life) => Err(lives(&container, &life)),
    }
}

fn lives(container: &str, life: &str) -> Error {
    Error::new(format!("container {container} lives: {life}"))
        .hint("stop the container: its slice comes back by itself")
}

pub(super) fn tell(entry: &Entry) {
    let holder = match (entry.lease(), entry.idle_since()) {
        (Some(lease), _) => format!(" of {}", error::printable(&lease.holder.title())),
        (None, Some(_)) => ", which was idle".to_owned(),
        (None, None) => String::new(),
    };
    output::line(&format!("released {}{holder}", entry.instance().resource));
}

const NO_CLAIMS: &str = "no claim has a lease";

/// Ends the leases of all claims, before the Kubernetes driver goes for good.
pub fn run_claims(config: &Config, format: Format) -> Result<i32> {
    let Some(leases) = bundles::existing(config, Actor::Operator)? else {
        match format {
            Format::Json => list::json(&[], &[], &[]),
            Format::Table => output::line(NO_CLAIMS),
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
        Format::Table if released.is_empty() && failed.is_empty() => output::line(NO_CLAIMS),
        Format::Table => released.iter().for_each(tell),
    }
    error::all(failed.into_iter().map(Err)).map(|()| 0)
}
