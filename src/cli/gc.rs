//! `migctl gc`: releases every slice whose container is gone, restores the limits of shares, and says why.

use super::claims;
use super::json::{CollectionItem, Items};
use super::output::{self, Format};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::Result;
use runmig_lease::store::{Claim, Damaged};
use runmig_lease::{Collection, Finding, Outcome};

pub fn run(config: &Config, format: Format, dry_run: bool) -> Result<i32> {
    let found = match bundles::existing(config, Actor::Gc)? {
        Some(leases) => {
            if !dry_run {
                crate::log::start(config);
            }
            leases.gc(dry_run)?
        }
        None => Collection::default(),
    };
    let damaged = found.damaged.iter().map(|(d, o)| damaged(d, o));
    let items: Vec<CollectionItem<'_>> = found.leases.iter().map(item).chain(damaged).collect();
    match format {
        Format::Json => output::json(&Items { items: &items }),
        // A timer calls this, and must not fill its journal with empty tables.
        Format::Table if items.is_empty() => {}
        Format::Table => {
            let rows: Vec<Vec<String>> = items.iter().map(|i| row(i, dry_run)).collect();
            output::table(&["CONTAINER", "PROFILE", "OUTCOME", "WHY"], &rows);
        }
    }
    Ok(i32::from(items.iter().any(|i| i.outcome == "failed")))
}

fn words(outcome: &Outcome) -> (&'static str, String) {
    match outcome {
        Outcome::Kept(why) => ("kept", why.clone()),
        Outcome::Released(why) => ("released", why.clone()),
        Outcome::Failed(e) => ("failed", e.line()),
    }
}

/// Returns the item of a damaged record, from its name.
fn damaged<'a>(damaged: &'a Damaged, outcome: &Outcome) -> CollectionItem<'a> {
    let (outcome, why) = words(outcome);
    CollectionItem {
        id: damaged.id().unwrap_or_default(),
        container: "?",
        claim: None,
        holder: "?".to_owned(),
        profile: "?",
        gpu_uuid: damaged.place().map_or("", |p| p.gpu_uuid.as_str()),
        outcome,
        why,
    }
}

fn item(finding: &Finding) -> CollectionItem<'_> {
    let (outcome, why) = words(&finding.outcome);
    let resource = &finding.entry.instance().resource;
    CollectionItem {
        id: finding.entry.id(),
        container: match claims::of(&finding.entry) {
            Some(_) => "",
            None => finding.entry.holder(),
        },
        claim: claims::of(&finding.entry).map(Claim::full_name),
        holder: match (claims::of(&finding.entry), finding.entry.lease()) {
            (Some(claim), _) => claims::name(claim),
            (None, Some(lease)) => lease.holder.shown(),
            (None, None) => "-".to_owned(),
        },
        profile: finding.entry.shown().name,
        gpu_uuid: resource.gpu_uuid().as_str(),
        outcome,
        why,
    }
}

fn row(item: &CollectionItem<'_>, dry_run: bool) -> Vec<String> {
    let outcome = match item.outcome {
        "released" if dry_run => "would be released",
        other => other,
    };
    vec![
        item.holder.clone(),
        item.profile.into(),
        outcome.into(),
        item.why.clone(),
    ]
}
