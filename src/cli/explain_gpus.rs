//! `migctl explain --gpu`: whether a request for whole GPUs would find some, which, or why not.

use super::asked::By;
use super::gpus::use_word;
use super::json::{Alternative, Explanation, GpuAnswer, WaitingItem};
use super::output;
use super::world;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::placement::GpuObstacle;
use runmig_lease::refusal;
use runmig_lease::request::Wanted;
use runmig_lease::what_if::{self, GpuOnTrial, GpuOutcome};

pub fn run(config: &Config, by: &By, count: &str, is_json: bool) -> Result<i32> {
    let count = by.gpus(count)?;
    let (driver, world) = world::look(config)?;
    let subject = by.subject(&world);
    let trial = what_if::try_gpus((config, &driver), &world, (count, subject))?;
    let error = |e: Error| (e.to_string(), e.advice().map(str::to_owned), Some(e.line()));
    let (verdict, (why, hint, error)) = match trial.outcome {
        GpuOutcome::Fits(gpus) => {
            let names: Vec<String> = { gpus.iter() }
                .map(|g| format!("GPU {} ({})", g.gpu_index, printable(&g.model)))
                .collect();
            ("fits", (names.join(" and "), None, None))
        }
        GpuOutcome::Limited(over) => ("limited", error(over)),
        GpuOutcome::No(shortage) => {
            let verdict = match () {
                () if !shortage.may_pass() => "unsatisfiable",
                () if shortage.is_queued() => "queued",
                () => "full",
            };
            (verdict, error(what_if::shortage_error(shortage, &world)))
        }
    };
    let fits = verdict == "fits";
    let request = Wanted::Gpus(count).written();
    let explanation = Explanation {
        request: request.clone(),
        fits,
        error,
        ahead: world.waiting.iter().map(WaitingItem::from).collect(),
        alternatives: vec![Alternative {
            request,
            verdict,
            why,
            hint,
            slices: Vec::new(),
            gpus: trial.gpus.iter().map(answer).collect(),
            restarts: Vec::new(),
            with_mig_on: None,
        }],
    };
    match is_json {
        true => output::json(&explanation),
        false => show(&explanation.alternatives[0], &trial.gpus),
    }
    let all_read = world::tell_unread(&world);
    Ok(i32::from(!fits || !all_read))
}

fn answer(gpu: &GpuOnTrial) -> GpuAnswer {
    GpuAnswer {
        index: gpu.index,
        uuid: gpu.uuid.to_string(),
        profile: None,
        state: match &gpu.obstacle {
            None => "fits",
            Some(GpuObstacle::Queued) => "queued",
            Some(GpuObstacle::Excluded(_)) => "excluded",
            Some(GpuObstacle::Used(usage)) => use_word(usage),
        },
        why: { gpu.obstacle.as_ref() }.map_or_else(|| "free".to_owned(), refusal::gpu_obstacle),
        free_slices: 0,
        total_slices: 0,
        quarantined_slices: 0,
        places: Vec::new(),
    }
}

fn show(answer: &Alternative, gpus: &[GpuOnTrial]) {
    let (verdict, why) = (answer.verdict, printable(&answer.why));
    output::line(&format!("{verdict}: {why}"));
    let memory = |gpu: &GpuOnTrial| match gpu.memory_mib {
        Some(mib) => format!("{:.2}", mib as f64 / 1024.0),
        None => "-".to_owned(),
    };
    let rows: Vec<Vec<String>> = { answer.gpus.iter().zip(gpus) }
        .map(|(answer, gpu)| vec![gpu.index.to_string(), memory(gpu), answer.why.clone()])
        .collect();
    output::table(&["GPU", "MEMORY GiB", "WHY"], &rows);
    if let Some(hint) = &answer.hint {
        output::line(&format!("hint: {}", printable(hint)));
    }
}
