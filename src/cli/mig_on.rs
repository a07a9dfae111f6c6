//! Answers a request as if an administrator had switched MIG on where it is off.

use super::explain;
use super::json::WithMigOn;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::gpu::Queries;
use runmig_lease::model::{Gpu, MigMode};
use runmig_lease::placement::MAX_STEPS;
use runmig_lease::policy::Subject;
use runmig_lease::request::Slices;
use runmig_lease::what_if::{Outcome, WhatIf};

/// Returns the command that switches MIG on, or that puts a pending mode in force.
pub fn command(gpus: &[&Gpu]) -> String {
    let indices: Vec<String> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
    let is_pending = |gpu: &&Gpu| gpu.mig_pending == Some(MigMode::Enabled);
    let what = match gpus.iter().all(is_pending) {
        true => "--gpu-reset",
        false => "-mig 1",
    };
    format!("nvidia-smi -i {} {what}", indices.join(","))
}

/// Returns each alternative of a request with its outcome as if MIG were on everywhere. Returns nothing if no
/// GPU has MIG off.
pub fn foresee(
    config: &Config,
    driver: &impl Queries,
    world: &Inventory,
    request: &Slices,
    subject: Subject,
) -> Vec<(String, WithMigOn)> {
    let Some(switched) = world.with_mig_on(driver) else {
        return Vec::new();
    };
    let Ok(what_if) = WhatIf::new(config, driver, &switched, request, subject) else {
        return Vec::new();
    };
    let alternatives = what_if.alternatives().iter();
    let outcomes = alternatives.map(|asked| (asked, what_if.outcome(asked, MAX_STEPS)));
    let told =
        outcomes.map(|(asked, outcome)| (asked.to_string(), with_mig_on(&what_if, world, outcome)));
    told.collect()
}

fn with_mig_on(what_if: &WhatIf<'_, impl Queries>, now: &Inventory, outcome: Outcome) -> WithMigOn {
    let why = match outcome {
        Outcome::Fits(fit) => {
            let uuids: Vec<&str> = fit.sites.iter().map(|(s, _)| s.gpu_uuid.as_str()).collect();
            let is_off = |gpu: &&Gpu| gpu.mig == MigMode::Disabled;
            let gpus = now.snapshot.gpus.iter().filter(is_off);
            let gpus: Vec<&Gpu> = gpus.filter(|g| uuids.contains(&g.uuid.as_str())).collect();
            return WithMigOn {
                fits: true,
                why: explain::fits(&fit),
                slices: fit.sites.iter().map(|(site, _)| site.into()).collect(),
                command: (!gpus.is_empty()).then(|| command(&gpus)),
            };
        }
        Outcome::Limited(e) => e,
        Outcome::No(diagnosis) => what_if.refusal(diagnosis.rejection),
    };
    WithMigOn {
        fits: false,
        why: why.to_string(),
        slices: Vec::new(),
        command: None,
    }
}
