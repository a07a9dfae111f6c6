//! The requests ahead in the queue: the places that they reserve, and their names.

use crate::error::printable;
use crate::model::Snapshot;
use crate::placement::Reservation;
use crate::store::Waiting;
use std::collections::BTreeSet;

/// Names the requests ahead, for the error of a request that found no room.
pub fn behind(ahead: &[Waiting]) -> String {
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

/// Returns the profiles that earlier requests could use, by GPU. An unreadable ticket counts as wanting
/// every place.
pub fn awaited(ahead: &[Waiting], snapshot: &Snapshot) -> Vec<Reservation> {
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
