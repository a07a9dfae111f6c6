//! `migctl list`: the containers with their slices, and the queue.

use super::json::{LeaseItem, LeaseList, WaitingItem};
use super::output::{self, Format};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};
use runmig_lease::store::{Lease, Waiting};
use runmig_lease::{UNSEEN_HINT, unseen};
use std::time::{Duration, SystemTime};

impl<'a> From<&'a Lease> for LeaseItem<'a> {
    fn from(l: &'a Lease) -> Self {
        LeaseItem {
            id: &l.id,
            state: l.shown_state(),
            container: &l.holder.key.id,
            container_name: l.holder.container_name.as_deref(),
            pod: l.holder.pod.as_deref(),
            namespace: l.holder.namespace.as_deref(),
            pod_uid: l.holder.pod_uid.as_deref(),
            bundle: &l.holder.bundle,
            runtime: l.holder.runtime(),
            runtime_root: &l.holder.key.root,
            request: &l.slice.request,
            profile: &l.slice.profile,
            gpu_uuid: &l.slice.gpu_uuid,
            gpu_index: l.slice.gpu_index,
            mig_uuid: l.slice.mig_uuid.as_deref(),
            gpu_instance: l.slice.gpu_instance,
            compute_instance: l.slice.compute_instance,
            mig_placement: l.slice.placement.into(),
            created: &l.created,
            init_pid: l.init.map(|p| p.pid),
            error: l.attempt.as_ref().map(|a| a.error.as_str()),
            attempts: l.attempt.as_ref().map_or(0, |a| a.count),
            held_by: l.attempt.as_ref().map_or(&[], |a| a.held_by.as_slice()),
            next_attempt: l.attempt.as_ref().map(|a| a.next.as_str()),
            idle_since: l.idle_since.as_deref(),
            adopted: l.adopted,
            shared_in: l.shared_in.as_deref(),
        }
    }
}

impl<'a> From<&'a Waiting> for WaitingItem<'a> {
    fn from(w: &'a Waiting) -> Self {
        let waiter = w.waiter.as_ref();
        WaitingItem {
            number: w.number,
            container: waiter.map(|w| w.container.as_str()),
            request: waiter.map(|w| w.request.as_str()),
            since: waiter.map(|w| w.since.as_str()),
            pid: waiter.and_then(|w| w.pid),
        }
    }
}

/// Prints the leases and the queue for programs.
pub fn json(leases: &[Lease], waiting: &[Waiting]) {
    output::json(&LeaseList {
        items: leases.iter().map(LeaseItem::from).collect(),
        waiting: waiting.iter().map(WaitingItem::from).collect(),
    });
}

pub fn run(config: &Config, format: Format) -> Result<i32> {
    let (leases, damaged, waiting) = match bundles::existing(config)? {
        Some(leases) => {
            let (known, damaged) = leases.store().list()?;
            (known, damaged, leases.store().waiting()?)
        }
        None => Default::default(),
    };
    match format {
        Format::Json => json(&leases, &waiting),
        Format::Table => {
            let rows: Vec<Vec<String>> = leases.iter().map(row).collect();
            output::table(
                &[
                    "CONTAINER",
                    "POD",
                    "PROFILE",
                    "GPU",
                    "PLACEMENT",
                    "MIG UUID",
                    "STATE",
                    "AGE",
                ],
                &rows,
            );
            if !waiting.is_empty() {
                output::line("");
                let rows: Vec<Vec<String>> = waiting.iter().map(waits).collect();
                output::table(&["WAITING", "REQUEST", "FOR", "PID"], &rows);
            }
            for lease in &leases {
                if let Some(attempt) = &lease.attempt {
                    let held = match attempt.held_by.as_slice() {
                        [] => String::new(),
                        some => format!(", held by {}", printable(&some.join(", "))),
                    };
                    output::complain(&format!(
                        "{} could not be given back{held}, {} tries so far: {}",
                        printable(&container(lease)),
                        attempt.count,
                        printable(&attempt.error)
                    ));
                }
            }
        }
    }
    for lease in &leases {
        if let Some(why) = unseen(lease) {
            output::complain(&format!(
                "runmig cannot see from here whether container {} lives: {why}; hint: {UNSEEN_HINT}",
                printable(&container(lease))
            ));
        }
    }
    for d in &damaged {
        let kept = d.name.as_ref().map_or(String::new(), |c| {
            format!(
                "; {} on GPU {} stays taken for lease {}, until its container is deleted or migctl \
                 release {} is run",
                c.placement, c.gpu_uuid, c.lease, c.lease
            )
        });
        output::complain(&format!(
            "lease {} cannot be read: {}{kept}",
            printable(&d.file.to_string_lossy()),
            d.why.line()
        ));
    }
    Ok(i32::from(!damaged.is_empty()))
}

fn row(l: &Lease) -> Vec<String> {
    let pod = match (&l.holder.namespace, &l.holder.pod, &l.holder.container_name) {
        (Some(namespace), Some(pod), Some(name)) => format!("{namespace}/{pod}/{name}"),
        (Some(namespace), Some(pod), None) => format!("{namespace}/{pod}"),
        (_, _, Some(name)) => name.clone(),
        _ => "-".to_owned(),
    };
    let state = match (l.adopted, &l.shared_in) {
        (true, Some(_)) => format!("{}, adopted, shared", l.shown_state()),
        (true, None) => format!("{}, adopted", l.shown_state()),
        (false, Some(_)) => format!("{}, shared", l.shown_state()),
        (false, None) => l.shown_state().to_owned(),
    };
    vec![
        container(l),
        pod,
        l.slice.profile.clone(),
        l.slice.gpu_index.to_string(),
        l.slice.placement.to_string(),
        l.slice.mig_uuid.clone().unwrap_or_else(|| "-".to_owned()),
        state,
        age(&l.created),
    ]
}

fn waits(w: &Waiting) -> Vec<String> {
    match &w.waiter {
        Some(w) => vec![
            short(&w.container),
            w.request.clone(),
            age(&w.since),
            w.pid.map_or("-".to_owned(), |pid| pid.to_string()),
        ],
        None => vec!["-".to_owned(); 4],
    }
}

/// Returns the name of a lease's container; a dash without one.
pub fn container(l: &Lease) -> String {
    short(&l.holder.key.id)
}

fn short(id: &str) -> String {
    match id.len() {
        0 => "-".to_owned(),
        // Engines print the first 12 characters of their random ids.
        64 => id.chars().take(12).collect(),
        _ => id.to_owned(),
    }
}

/// Returns an age as kubectl prints it: the two largest units.
fn age(created: &str) -> String {
    let seconds = humantime::parse_rfc3339(created)
        .ok()
        .and_then(|then| SystemTime::now().duration_since(then).ok())
        .unwrap_or(Duration::ZERO)
        .as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
