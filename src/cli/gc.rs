//! `migctl gc`: releases every slice whose container is gone, restores the limits of shares, and says why.

use super::driver;
use super::json::{CollectionItem, Items};
use super::output::{self, Format, dash};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Result, printable};
use runmig_lease::known_gpus;
use runmig_lease::store::Claim;
use runmig_lease::{Finding, Outcome};

pub fn run(config: &Config, format: Format, dry_run: bool) -> Result<i32> {
    let found = match bundles::existing(config, Actor::Gc)? {
        Some(leases) => {
            if !dry_run {
                crate::log::start(config);
            }
            let found = leases.gc(dry_run)?;
            // A collection asks no driver about leases of an earlier boot, and the next run of the timer is soon.
            let is_quiet = |one: &Finding| matches!(one.outcome, Outcome::Kept(_));
            if !dry_run
                && found.iter().all(is_quiet)
                && let Err(e) = known_gpus::note(config, &driver::ask(config))
            {
                tracing::warn!("{}", e.line());
            }
            found
        }
        None => Vec::new(),
    };
    let items: Vec<CollectionItem<'_>> = found.iter().map(item).collect();
    print(format, &items, dry_run);
    Ok(i32::from(items.iter().any(|i| i.outcome == "failed")))
}

/// Replaces a damaged ledger, and lists the leases that it has then. Names on standard error what has no owner.
pub fn repair(config: &Config, format: Format) -> Result<i32> {
    crate::log::start(config);
    let leases = bundles::existing(config, Actor::Operator)?;
    let repaired = leases.map_or(Ok(None), |leases| leases.repair())?;
    let Some(repair) = repaired else {
        match format {
            Format::Json => print(format, &[], false),
            Format::Table => output::line("the ledger is whole"),
        }
        return Ok(0);
    };
    let items: Vec<CollectionItem<'_>> = repair.leases.iter().map(item).collect();
    print(format, &items, false);
    let has = match items.is_empty() {
        true => {
            "neither a whole copy nor an account told of a lease; hint: end all containers with a share or a GPU before others start"
        }
        false => "it has the leases of its last whole copy and of living containers now",
    };
    let why = repair.why.reason();
    output::eprint(&format!("the ledger was damaged: {why}; {has}"));
    for (lease, why) in &repair.untold {
        output::eprint(&format!(
            "lease {} may have a living container, and cannot be brought back: {}; hint: end that container before others \
             start",
            printable(lease.as_str()),
            why.reason()
        ));
    }
    for (gpu, instance) in &repair.without_owner {
        let profile = gpu.profile(instance.profile_id);
        let profile = profile.map_or("?", |p| p.name.as_str());
        output::eprint(&format!(
            "GPU instance {} ({profile} at {} on GPU {}) has no owner on record; hint: once no container uses it, \
             nvidia-smi mig -i {uuid} -gi {} -dci && nvidia-smi mig -i {uuid} -gi {} -dgi",
            instance.id,
            instance.placement,
            gpu.index,
            instance.id,
            instance.id,
            uuid = gpu.uuid,
        ));
    }
    for (gpu, why) in &repair.unseen {
        output::eprint(&format!(
            "GPU {gpu} may have instances without an owner, and does not answer: {}; hint: compare nvidia-smi mig -lgi with migctl \
             list once it does",
            printable(why)
        ));
    }
    Ok(0)
}

fn print(format: Format, items: &[CollectionItem<'_>], dry_run: bool) {
    match format {
        Format::Json => output::json("CollectionList", &Items { items }),
        // A timer calls this, and must not fill its journal with empty tables.
        Format::Table if items.is_empty() => {}
        Format::Table => {
            let rows: Vec<Vec<String>> = items.iter().map(|i| row(i, dry_run)).collect();
            output::table(&["CONTAINER", "PROFILE", "OUTCOME", "WHY"], &rows);
        }
    }
}

fn item(finding: &Finding) -> CollectionItem<'_> {
    let (outcome, why) = match &finding.outcome {
        Outcome::Kept(why) => ("kept", why.clone()),
        Outcome::Released(why) => ("released", why.clone()),
        Outcome::Failed(e) => ("failed", e.line()),
    };
    let entry = &finding.entry;
    let (lease, claim) = (entry.lease(), entry.claim());
    let shown = || lease.map(|lease| lease.holder.shown());
    CollectionItem {
        id: entry.id(),
        container: claim.map_or_else(|| entry.holder(), |_| ""),
        claim: claim.map(Claim::full_name),
        holder: dash(claim.map(Claim::title).or_else(shown)),
        profile: entry.shown().name,
        gpu_uuid: entry.instance().resource.gpu_uuid().as_str(),
        outcome,
        why,
    }
}

fn row(item: &CollectionItem<'_>, dry_run: bool) -> Vec<String> {
    let outcome = match item.outcome {
        "released" if dry_run => "would be released",
        other => other,
    };
    let cells = [&*item.holder, item.profile, outcome, &*item.why];
    cells.map(str::to_owned).to_vec()
}
