//! The second net: a hook runs once, twice or never, and a delete is often the last word.

use super::spawn::{self, Ended, Inherited, Meanwhile};
use super::{Front, key, report};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::error::Result;

use runmig_lease::store::{Key, Lease, State, Store};
use std::ffi::OsStr;

/// One look whether the container has a lease.
pub fn lease_of(front: &Front<'_>, id: &OsStr) -> Result<Option<Key>> {
    let config = front.config;
    // A state directory that cannot be trusted has no leases of ours, and is no reason to keep a
    // container from being deleted.
    let existing = Store::existing(&config.state_dir, config.lock_timeout);
    let Some(store) = existing.ok().flatten() else {
        return Ok(None);
    };
    if id.to_str().is_none() {
        return Ok(None);
    }
    let key = key::of(front, id)?;
    Ok(store.has(&key).then_some(key))
}

/// Runs the low-level runtime first, whose word the engine hears; then gives the slice back. If the
/// low-level runtime failed or was killed, standard error tells the slice's fate: the engine
/// reports a delete that failed, and its operator wants to know whether a GPU is lost with it.
pub fn give_back(front: &Front<'_>, key: Key) -> Result<i32> {
    let inherited = Inherited::now(&[])?;
    crate::log::start(front.config);
    let ended =
        spawn::spawn(front.runtime, front.args, &inherited, false)?.run(|| Meanwhile::Done)?;
    match release(front.config, &key, ended) {
        Ok(_) if ended.succeeded() => {}
        Ok(left) => report::note(&fate(&key.id, ended, &left)),
        Err(e) => {
            tracing::warn!(container = key.id, "{}", e.line());
            report::error(&e, None);
        }
    }
    Ok(ended.propagate())
}

/// Returns the leases that the container has afterwards: one that lives on (a plain delete of a running
/// one) keeps its slice.
fn release(config: &Config, key: &Key, ended: Ended) -> Result<Vec<Lease>> {
    let Some(leases) = bundles::existing(config)? else {
        return Ok(Vec::new());
    };
    leases.release_if_dead(key, ended.succeeded())?;
    leases.of(key)
}

/// Says what became of a slice whose container was not deleted as it should have been.
fn fate(container: &str, ended: Ended, left: &[Lease]) -> String {
    let how = match ended {
        Ended::Exited(status) => format!("exited with status {status}"),
        Ended::Killed(signal) => format!("was killed by signal {signal}"),
    };
    let slice = match left.iter().find(|l| l.state != State::Releasing) {
        Some(lease) => {
            let life = runmig_lease::sign_of_life(lease);
            let life = life.unwrap_or_else(|| "it lived until now".to_owned());
            format!("container {container} keeps its slice ({life})")
        }
        None if left.is_empty() => format!("the slice of container {container} is given back"),
        None => format!("the slice of container {container} is being given back"),
    };
    format!("the low-level runtime {how}; {slice}")
}
