//! What those who wait keep from those who come later, and how these are told of them.

use super::Leases;
use super::acquire::Applicant;
use super::rules::Ruled;
use crate::error::printable;
use crate::model::Snapshot;
use crate::placement::{self, Constraints, Reservation};
use crate::store::Waiting;
use std::collections::BTreeSet;

/// For who is told why there is no room: who came before.
pub(super) fn behind(ahead: &[Waiting]) -> String {
    const SHOWN: usize = 3;
    let mut names: Vec<String> = ahead.iter().take(SHOWN).map(name).collect();
    if ahead.len() > SHOWN {
        names.push("…".to_owned());
    }
    let names = names.join(", ");
    match ahead.len() {
        0 => String::new(),
        1 => format!("; 1 waits before it ({names})"),
        n => format!("; {n} wait before it ({names})"),
    }
}

fn name(waiting: &Waiting) -> String {
    match &waiting.waiter {
        Some(w) => printable(&format!("container {} for {}", w.container, w.request)),
        None => "one that a newer runmig wrote".to_owned(),
    }
}

/// Profiles by GPU. What its limits would not leave it though it had nothing, and what no empty machine
/// has, it does not wait for.
pub(super) fn could_use(
    leases: &Leases<'_>,
    snapshot: &Snapshot,
    ruled: &Ruled,
    who: &Applicant<'_>,
) -> Vec<(String, Vec<u32>)> {
    let limits = leases.limits(snapshot, &[], who.holder);
    let mut all: Vec<(String, Vec<u32>)> = Vec::new();
    for asked in &ruled.alternatives {
        let wanted = Constraints {
            alternatives: std::slice::from_ref(&asked.slice),
            ..ruled.wanted()
        };
        let excluded = limits.left_out(snapshot, asked, &wanted);
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        if placement::never_several(snapshot, asked, &wanted).is_some() {
            continue;
        }
        for Reservation { gpu, profile_id } in placement::could_use(snapshot, &wanted) {
            match all.iter_mut().find(|(other, _)| *other == gpu) {
                Some((_, profiles)) if profiles.contains(&profile_id) => {}
                Some((_, profiles)) => profiles.push(profile_id),
                None => all.push((gpu, vec![profile_id])),
            }
        }
    }
    all
}

/// What those wait for who came before. Of whom that cannot be read, everything.
pub(super) fn awaited(ahead: &[Waiting], snapshot: &Snapshot) -> Vec<Reservation> {
    let mut all = BTreeSet::new();
    for waiting in ahead {
        match &waiting.waiter {
            Some(waiter) => {
                for (gpu, profiles) in &waiter.could_use {
                    all.extend(profiles.iter().map(|id| (gpu, *id)));
                }
            }
            None => {
                for gpu in &snapshot.gpus {
                    all.extend(gpu.profiles.iter().map(|p| (&gpu.uuid, p.id)));
                }
            }
        }
    }
    let awaited = |(gpu, profile_id): (&String, u32)| Reservation {
        gpu: gpu.clone(),
        profile_id,
    };
    all.into_iter().map(awaited).collect()
}
