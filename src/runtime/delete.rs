//! The second net: a hook runs once, twice or never, and a delete is often the last word.

use super::spawn::{self, Inherited, Meanwhile};
use super::{Front, key};
use crate::error::Result;
use crate::lease::Leases;
use crate::store::{Key, Store};
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

/// The low-level runtime first, whose word is what the engine hears; then the slice.
pub fn give_back(front: &Front<'_>, key: Key) -> Result<i32> {
    let inherited = Inherited::now(&[])?;
    crate::log::start(front.config);
    let ended =
        spawn::spawn(front.runtime, front.args, &inherited, false)?.run(|| Meanwhile::Done)?;
    // A container that lives on (a plain delete of a running one) keeps its slice.
    let returned = Leases::existing(front.config)
        .and_then(|leases| leases.map_or(Ok(()), |l| l.release_if_dead(&key, ended.succeeded())));
    if let Err(e) = returned {
        tracing::warn!(container = key.id, "{}", e.line());
    }
    Ok(ended.imitate())
}
