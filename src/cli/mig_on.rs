//! Answers a request as if an administrator had switched MIG on where it is off.

use super::explain;
use super::json::{Alternative, WithMigOn};
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::gpu::Queries;
use runmig_lease::model::{Gpu, MigMode};
use runmig_lease::placement::MAX_STEPS;
use runmig_lease::policy::Subject;
use runmig_lease::request::{Slices, Wanted};
use runmig_lease::what_if::{Fit, WhatIf};

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

/// Adds to each alternative of a request its outcome as if MIG were on everywhere, if it is another one. Adds nothing if no GPU
/// has MIG off.
pub fn foresee(
    config: &Config,
    driver: &impl Queries,
    now: &Inventory,
    slices: &Slices,
    subject: &Subject,
    alternatives: &mut [Alternative],
) {
    let Some(switched) = now.with_mig_on(driver) else {
        return;
    };
    let switched = switched.without_idle_over();
    for asked in &slices.alternatives {
        let text = asked.to_string();
        let Some(told) = alternatives.iter_mut().find(|a| a.request == text) else {
            continue;
        };
        let wanted = Wanted::Slices(Slices {
            alternatives: vec![asked.clone()],
            min_compute: slices.min_compute,
        });
        let what_if = WhatIf::new(config, driver, &switched, &wanted, subject.clone());
        let answer = with_mig_on(&what_if, now).ok().flatten();
        told.with_mig_on = answer.filter(|answer| answer.fits || answer.why != told.why);
    }
}

fn with_mig_on(what_if: &WhatIf<'_, impl Queries>, now: &Inventory) -> Result<Option<WithMigOn>> {
    let answers = what_if.answers(MAX_STEPS)?;
    if let Some(Ok(fit)) = answers.all.last().map(|answer| &answer.outcome) {
        return Ok(Some(fits(fit, now)));
    }
    Ok(what_if.error(answers).map(|e| WithMigOn {
        why: e.to_string(),
        ..WithMigOn::default()
    }))
}

fn fits(fit: &Fit, now: &Inventory) -> WithMigOn {
    let slices = explain::sites(fit);
    let is_there = |gpu: &&Gpu| slices.iter().any(|site| site.gpu_uuid == gpu.uuid);
    let off = { now.snapshot.gpus.iter() }.filter(|gpu| gpu.mig == MigMode::Disabled);
    let gpus: Vec<&Gpu> = off.filter(is_there).collect();
    WithMigOn {
        fits: true,
        why: explain::fits(fit),
        command: (!gpus.is_empty()).then(|| command(&gpus)),
        slices,
    }
}
