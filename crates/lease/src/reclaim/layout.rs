//! Instances that stay without a lease: idle slices, and instances of layouts. A collector and a release leave them alone, and an apply destroys those that it does not want.

use super::destroy::{self, Ended, Target};
use super::finding::{Outcome, Patience};
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::leases::Leases;
use crate::model::Timestamp;
use crate::store::{Held, Instance, InstanceState};
use std::time::{Instant, SystemTime};

/// Returns why an instance without a lease stays: it belongs to a layout, or the operation of one is at
/// work on it.
pub(super) fn keeper(context: &Leases<'_>, instance: &Instance) -> Option<String> {
    let name = instance.layout.as_ref()?;
    if instance.is_of_layout() {
        return Some(format!(
            "it belongs to layout {name}, which migctl apply changes"
        ));
    }
    let works = context.is_at_work(instance);
    works.then(|| format!("the apply of layout {name} is at work on it"))
}

/// Looks at a finished instance of a layout for a collection. Its record goes if an administrator destroyed it.
pub(super) fn look_at(
    context: &Leases<'_>,
    driver: &impl Queries,
    instance: &Instance,
    dry_run: bool,
) -> Outcome {
    let kept = keeper(context, instance).unwrap_or_default();
    match destroy::exists(driver, instance) {
        Ok(true) => return Outcome::Kept(kept),
        Ok(false) => {}
        Err(e) => return Outcome::Kept(format!("{kept}, and {}", e.line())),
    }
    let gone = "its instance is gone".to_owned();
    if dry_run {
        return Outcome::Released(gone);
    }
    match forget(context, instance) {
        Ok(true) => Outcome::Released(gone),
        Ok(false) => Outcome::Kept(kept),
        Err(e) => Outcome::Failed(e),
    }
}

/// Removes the record of an instance that is gone, unless it has changed or a lease names it.
fn forget(context: &Leases<'_>, instance: &Instance) -> Result<bool> {
    let id = &instance.id;
    context.store.lock("gc")?.change(|state| {
        let is_same = state.instance(id).map(|now| &**now) == Some(instance);
        let is_free = is_same && !state.has_others(id, None);
        Ok(is_free && state.remove_instance(id))
    })
}

/// Destroys an instance on record that a layout does not want, and removes the record. The caller's operation works on it.
///
/// # Errors
/// The driver refuses the destroy, or a lease has come to the instance. The record stays.
pub(crate) fn destroy_unwanted(
    context: &Leases<'_>,
    instance: &Instance,
    patience: Patience,
) -> Result<()> {
    let target = Target {
        instance,
        lease: None,
        begun: Instant::now(),
    };
    match destroy::destroy_instance(context, target, patience)? {
        Ended::Gone(_lock) => context.store.lock("apply")?.change(|state| {
            // The last record of a create may be there although its write failed. Then the layout has the instance.
            let now = state.instance(&instance.id);
            if !now.is_some_and(|now| now.outlives_leases()) {
                state.remove_instance(&instance.id);
            }
            Ok(())
        }),
        Ended::Elsewhere if context.store.instance_now(instance)?.is_none() => Ok(()),
        Ended::Elsewhere => Err(Error::new(format!(
            "a container has taken {}",
            instance.resource
        ))),
    }
}

/// Keeps the instance of a *releasing* lease, and removes the lease. Returns false if the configuration or
/// the state of the instance does not allow that.
pub(super) fn keep_idle(context: &Leases<'_>, held: &Held, begun: Instant) -> Result<bool> {
    let Some(slice) = held.instance.slice() else {
        return Ok(false);
    };
    // A slice of seats ends with the last of them.
    let is_whole = held.lease.share().is_none()
        && slice.compute_instance.is_some()
        && slice.mig_uuid.is_some();
    let keeps = !context.config.keep_idle.is_zero() && !held.instance.outlives_leases() && is_whole;
    if !keeps {
        return Ok(false);
    }
    // The lease is *releasing*, so another process that collects may be destroying its instance now.
    let why = format!("release of {}", held.lease.holder.name());
    let _gpu = context.store.lock_gpu(&slice.gpu_uuid, &why)?;
    let ledger = context.store.lock("release")?;
    let Some(held) = context.store.get(&held.lease.id)? else {
        // Another process released the lease and removed it.
        return Ok(true);
    };
    let is_emptied = held.instance.slice().is_none_or(|s| s.emptied);
    // A layout may have taken it over meanwhile.
    if held.instance.outlives_leases() || held.instance.attempt().is_some() || is_emptied {
        return Ok(false);
    }
    let since = Timestamp::millis(SystemTime::now());
    let (id, lease) = (&held.instance.id, &held.lease.id);
    let has_others = context.end(&ledger, |state, ends| {
        let has_others = state.has_others(id, Some(lease));
        if !has_others {
            state.update_instance(id, |i| i.state = InstanceState::Idle { since })?;
        }
        if state.remove_lease(lease) {
            ends.release(Some(&held.lease), &held.instance, begun);
        }
        Ok(has_others)
    })?;
    if !has_others {
        tracing::info!(instance = held.instance.id.as_str(), "{slice} is kept idle");
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{config, of_killed, open, put};

    #[test]
    fn record_of_a_layout_goes_unchanged_and_without_a_lease() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let alone = (*of_killed(&leases, "alone").instance).clone();
        let has = |instance: &Instance| leases.store.instance_now(instance).unwrap().is_some();
        let ledger = leases.store.lock("test").unwrap();
        ledger
            .change(|state| state.put_instance(alone.clone()))
            .unwrap();
        drop(ledger);
        let changed = Instance {
            layout: Some("small".to_owned()),
            ..alone.clone()
        };
        let leased = put(&leases, "web", |_| ()).instance;
        for (seen, goes) in [
            (&changed, false),
            (&*leased, false),
            (&alone, true),
            (&alone, false),
        ] {
            let was_there = has(seen);
            assert_eq!(forget(&leases, seen).unwrap(), goes);
            assert_eq!(has(seen), was_there && !goes);
        }
    }

    #[test]
    fn destroys_nothing_that_a_container_has_taken() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let held = put(&leases, "web", |_| ());
        let refused = destroy_unwanted(&leases, &held.instance, Patience::NONE).unwrap_err();
        assert_eq!(refused.line(), "a container has taken GPU 0");
        assert_eq!(leases.store.get(&held.lease.id).unwrap(), Some(held));
    }
}
