//! The second net: a hook runs once, twice or never, and a delete is often the last word.

use super::Front;
use super::args::Delete;
use super::create::key;
use super::spawn::{self, Inherited, Meanwhile};
use crate::error::Result;
use crate::lease::{Leases, Patience};
use crate::store::Store;

pub fn delete(front: &Front<'_>, delete: &Delete) -> Result<i32> {
    let key = key(front, &delete.id)?;
    let config = front.config;
    // A state directory that cannot be trusted has no leases of ours, and is no reason to keep a
    // container from being deleted.
    let has_lease = Store::existing(&config.state_dir, config.lock_timeout)
        .is_ok_and(|store| store.is_some_and(|store| store.has(&key)));
    if !has_lease {
        return Err(front.runtime.exec(front.args));
    }
    let inherited = Inherited::now(&[])?;
    crate::log::start(config);
    let ended = spawn::spawn(front.runtime, front.args, &inherited)?.run(|| Meanwhile::Done)?;
    // Whatever the low-level runtime said, the engine hears that; a container that lives on (a plain
    // delete of a running one) keeps its slice.
    let returned = Leases::existing(config)
        .and_then(|leases| leases.map_or(Ok(()), |l| l.release_if_dead(&key, Patience::default())));
    if let Err(e) = returned {
        tracing::warn!(container = key.id, "{}", e.line());
    }
    Ok(ended.imitate())
}
