//! Releases slices after a delete, in case the hook did not. A hook runs once, twice or never, and a delete
//! is often the engine's last call.

use super::spawn::{self, Inherited, Meanwhile};
use super::{Front, companion, container_name, report};
use crate::bundles;
use runmig_lease::counters::Actor;
use runmig_lease::error::Result;
use runmig_lease::store::{Key, LeaseState, Store};
use std::ffi::OsStr;
use std::process::ExitStatus;

/// Returns the container's key if one look at the ledger finds a lease of it.
pub fn lease_of(front: &Front<'_>, id: &OsStr) -> Result<Option<Key>> {
    let config = front.config;
    // An untrusted state directory has no leases of runmig, and is no reason to keep a container from its
    // delete.
    let existing = Store::existing(&config.state_dir, config.lock_timeout);
    let Some(store) = existing.ok().flatten() else {
        return Ok(None);
    };
    if id.to_str().is_none() {
        return Ok(None);
    }
    let key = container_name::key(front, id)?;
    Ok(store.has(&key).then_some(key))
}

/// Runs the low-level runtime first, since the engine gets its result. Then `release` ends the slice, and
/// returns its state in words.
///
/// If the low-level runtime fails or is killed, standard error tells the state of the slice. The engine
/// reports the failed delete, and its operator needs to know whether a GPU is lost with it.
pub fn delete(front: &Front<'_>, key: &Key, release: Release) -> Result<i32> {
    let ended = match front.ended {
        Some(ended) => ended,
        None => {
            let inherited = Inherited::now(&[])?;
            let child = spawn::spawn(front.runtime, front.args, &inherited, false)?;
            child.run(|| Meanwhile::Done)?
        }
    };
    match release(front, key, ended) {
        Ok(_) if ended.success() => {}
        Ok(slice) => report::note(&format!(
            "the low-level runtime {}; {slice}",
            spawn::how(ended)
        )),
        Err(e) => {
            tracing::warn!(container = key.id, "{}", e.line());
            report::error(&e, None);
        }
    }
    Ok(spawn::propagate(ended))
}

pub type Release = fn(&Front<'_>, &Key, ExitStatus) -> Result<String>;

/// Looks again for a lease, since the hook has released it as a rule. Hands over to `runmig-slice` if there is
/// one.
pub fn by_companion(front: &Front<'_>, key: &Key, ended: ExitStatus) -> Result<String> {
    let existing = Store::existing(&front.config.state_dir, front.config.lock_timeout)?;
    if !existing.is_some_and(|store| store.has(key)) {
        return Ok(released(&key.id));
    }
    match companion::exec(front, Some(ended))? {}
}

fn released(container: &str) -> String {
    format!("the slice of container {container} is released")
}

/// Releases the slices of a dead container, and returns their state in words. A container that lives on, such
/// as after a plain delete while it runs, keeps its slice.
pub fn release(front: &Front<'_>, key: &Key, ended: ExitStatus) -> Result<String> {
    let container = &key.id;
    crate::log::start(front.config);
    let Some(leases) = bundles::existing(front.config, Actor::Delete)? else {
        return Ok(released(container));
    };
    leases.release_if_dead(key, ended.success())?;
    let left = leases.of(key)?;
    Ok(
        match left.iter().find(|h| h.lease.state != LeaseState::Releasing) {
            Some(held) => {
                let life = leases.sign_of_life(&held.lease);
                let life = life.unwrap_or_else(|| "it lived until now".to_owned());
                format!("container {container} keeps its slice ({life})")
            }
            None if left.is_empty() => released(container),
            None => format!("the slice of container {container} is being released"),
        },
    )
}
