//! `migctl release ID`: releases a slice by hand that no other call released.

use super::list;
use super::output::{self, Format};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{self, Error, Result, printable};
use runmig_lease::store::{Claim, Entry, Key, Lease};
use runmig_lease::{Leases, Patience, Returned, UNSEEN_HINT, unseen};

pub fn run(config: &Config, format: Format, id: &str) -> Result<i32> {
    let leases = bundles::existing(config, Actor::Operator)?;
    let leases = leases.ok_or_else(|| list::unknown(id))?;
    crate::log::start(config);
    let found = list::called(&leases, id)?;
    // A container or a claim may have several slices.
    if found.iter().any(|entry| owner(entry) != owner(&found[0])) {
        let ids: Vec<&str> = found.iter().map(Entry::id).collect();
        let what = format!("{} leases are called {}", ids.len(), printable(id));
        let hint = format!("name one by its lease: {}", ids.join(", "));
        return Err(Error::new(what).hint(hint));
    }
    found.iter().find_map(Entry::claim).inspect(warn);
    release_all(&leases, found, format, false)
}

/// Names the container or the claim that has an entry.
fn owner(entry: &Entry) -> (Option<&Key>, Option<&str>) {
    let container = entry.lease().and_then(Lease::container);
    let claim = entry.claim().map(|claim| claim.uid.as_str());
    (container.map(|container| &container.key), claim)
}

/// Releases all of these, though some fail, and tells what it released. `prints_empty`: whether `-o json` prints an
/// empty list where every release failed.
fn release_all(
    leases: &Leases<'_>,
    entries: Vec<Entry>,
    format: Format,
    prints_empty: bool,
) -> Result<i32> {
    let (mut released, mut failed): (Vec<Entry>, Vec<Error>) = Default::default();
    for entry in entries {
        match release(leases, &entry) {
            Ok(()) => released.push(entry),
            // Several slices of one living container give the same error once.
            Err(e) if failed.iter().any(|said| said.line() == e.line()) => {}
            Err(e) => failed.push(e),
        }
    }
    match format {
        Format::Json if !prints_empty && released.is_empty() && !failed.is_empty() => {}
        Format::Json => {
            let waiting = leases.store().waiting().unwrap_or_default();
            list::json(&released, &[], &waiting, None);
        }
        Format::Table => released.iter().for_each(tell),
    }
    error::all(failed.into_iter().map(Err)).map(|()| 0)
}

/// Warns of a claim that Kubernetes still has, as far as this node knows: it has pods on record.
fn warn(claim: &&Claim) {
    if let Some(pod) = claim.pod() {
        let (claim, pod) = (printable(&claim.title()), printable(&pod));
        output::eprint(&format!(
            "warning: Kubernetes still has {claim}, and pod {pod} loses its slice; hint: delete the pod"
        ));
    }
}

pub(super) fn release(leases: &Leases<'_>, entry: &Entry) -> Result<()> {
    let held = match entry {
        Entry::Held(held) => held,
        Entry::Unleased(instance) => {
            let end = leases.release_instance(instance, Patience::default())?;
            let Returned::No(why) = end else {
                return Ok(());
            };
            let what = format!("cannot release instance {}: {why}", instance.id);
            return Err(Error::new(what).hint(match &instance.layout {
                Some(_) if instance.is_of_layout() => "apply a layout without it",
                Some(_) => "wait until the apply has ended",
                None => "find its container with migctl list",
            }));
        }
    };
    let container = list::holder_name(&held.lease);
    // Kubernetes may have forgotten a claim, and an operator who names it has seen its pod. The driver refuses to
    // destroy the instance below a process.
    let against = |now: &Lease| match now.claim() {
        Some(_) => None,
        None => leases.sign_of_life(now),
    };
    let Returned::No(why) = leases.release_unless(held, Patience::default(), against)? else {
        return Ok(());
    };
    let (what, hint) = match unseen(&held.lease) {
        Some(_) => (
            format!("cannot release the slice of container {container}: {why}"),
            UNSEEN_HINT,
        ),
        None => (
            format!("container {container} lives: {why}"),
            "stop the container: its slice comes back by itself",
        ),
    };
    Err(Error::new(what).hint(hint))
}

fn tell(entry: &Entry) {
    let holder = match (entry.lease(), entry.idle_since()) {
        (Some(lease), _) => format!(" of {}", printable(&lease.holder.title())),
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
            Format::Json => list::json(&[], &[], &[], None),
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
    entries.retain(|entry| entry.claim().is_some());
    if entries.is_empty() && format == Format::Table {
        output::line(NO_CLAIMS);
    }
    release_all(&leases, entries, format, true)
}
