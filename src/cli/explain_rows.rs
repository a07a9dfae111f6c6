//! `migctl explain --gpu` and `--share`: whether a request outside of slices would find room, where, or why not.

use super::asked::By;
use super::explain::word;
use super::gpus::use_word;
use super::json::{Alternative, Explanation, GpuAnswer, WaitingItem};
use super::output;
use super::world;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::model::{Level, Nearness};
use runmig_lease::placement::GpuObstacle;
use runmig_lease::refusal;
use runmig_lease::request::Wanted;
use runmig_lease::store::{Resource, WholeGpu};
use runmig_lease::what_if::{self, OnTrial, TrialOutcome};

/// The verdict on a request.
struct Answer {
    verdict: &'static str,
    why: String,
    hint: Option<String>,
    /// The line that a create would print.
    error: Option<String>,
}

impl Answer {
    fn fits(why: String) -> Answer {
        Answer {
            verdict: "fits",
            why,
            hint: None,
            error: None,
        }
    }

    fn no(verdict: &'static str, e: &Error) -> Answer {
        Answer {
            verdict,
            why: e.to_string(),
            hint: e.advice().map(str::to_owned),
            error: Some(e.line()),
        }
    }
}

/// Explains a request for whole GPUs, a share of a GPU, or a share of a slice.
pub fn run(config: &Config, by: &By, wanted: &Wanted, is_json: bool) -> Result<i32> {
    let (driver, world) = world::look(config, !is_json)?;
    let subject = by.subject(&world);
    let trial = what_if::look(config, &driver, &world, wanted, subject)?;
    let answer = match trial.outcome {
        TrialOutcome::Gpus(gpus) => {
            let name = |g: &WholeGpu| format!("GPU {} ({})", g.gpu_index, printable(&g.model));
            let names: Vec<String> = gpus.iter().map(name).collect();
            let near = match what_if::farthest(&driver, &gpus) {
                None => "",
                Some(Nearness::Linked) => ", connected by NVLink",
                Some(Nearness::SameNode) => ", on one NUMA node",
                Some(Nearness::Apart) => ", not all near each other",
            };
            Answer::fits(names.join(" and ") + near)
        }
        TrialOutcome::Share { of, share, is_new } => {
            let of = match *of {
                Resource::Gpu(gpu) => format!("GPU {} ({})", gpu.gpu_index, printable(&gpu.model)),
                Resource::Mig(slice) => format!("{}{slice}", if is_new { "a new " } else { "" }),
            };
            let (memory, level) = (share.memory_mib, share.enforcement.level());
            Answer::fits(format!("{memory}Mi of {of}, level {level}"))
        }
        TrialOutcome::Limited(over) => Answer::no("limited", &over),
        TrialOutcome::No(no) => Answer::no(word(no.kind()), &what_if::error(&no, &world)),
    };
    Ok(tell(&world, wanted, answer, &trial.on, is_json))
}

/// Prints the answer, and returns the exit status.
fn tell(world: &Inventory, wanted: &Wanted, answer: Answer, on: &[OnTrial], is_json: bool) -> i32 {
    let (request, fits) = (wanted.written(), answer.verdict == "fits");
    let explanation = Explanation {
        request: request.clone(),
        fits,
        error: answer.error,
        ahead: world.waiting.iter().map(WaitingItem::from).collect(),
        alternatives: vec![Alternative {
            request,
            verdict: answer.verdict,
            why: answer.why,
            hint: answer.hint,
            slices: Vec::new(),
            gpus: on.iter().map(|on| item(on, wanted)).collect(),
            restarts: Vec::new(),
            with_mig_on: None,
        }],
    };
    let only = &explanation.alternatives[0];
    if is_json {
        output::json(&explanation);
    } else {
        output::line(&format!("{}: {}", only.verdict, printable(&only.why)));
        let columns = columns(wanted);
        let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let row = |(gpu, on)| columns.iter().map(|(_, cell)| cell(gpu, on)).collect();
        let rows: Vec<Vec<String>> = only.gpus.iter().zip(on).map(row).collect();
        output::table(&head, &rows);
        if let Some(hint) = &only.hint {
            output::line(&format!("hint: {}", printable(hint)));
        }
    }
    i32::from(!world::tell_unread(world) || !fits)
}

fn gib(bytes: Option<u64>) -> String {
    let gib = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 30));
    bytes.map_or_else(|| "-".to_owned(), gib)
}

/// A column of the table: its head, and the cell of a GPU or a slice.
type Column = (&'static str, fn(&GpuAnswer, &OnTrial) -> String);

fn columns(wanted: &Wanted) -> Vec<Column> {
    let gpu: Column = ("GPU", |gpu, _| gpu.index.to_string());
    let free: Column = ("FREE GiB", |gpu, _| gib(gpu.free_bytes));
    let memory: Column = ("MEMORY GiB", |gpu, _| gib(gpu.memory_bytes));
    let level: Column = ("LEVEL", |gpu, _| gpu.enforcement.unwrap_or("-").to_owned());
    let why: Column = ("WHY", |gpu, _| gpu.why.clone());
    let shares = |_: &GpuAnswer, on: &OnTrial| on.shares.to_string();
    match wanted {
        Wanted::Share(_) => vec![gpu, free, memory, ("SHARES", shares), level, why],
        Wanted::Seat(_) => {
            let profile: Column = ("PROFILE", |gpu, _| gpu.profile.clone().unwrap_or_default());
            let place: Column = ("PLACE", |_, on| {
                { on.slice.as_ref() }.map_or_else(String::new, |(_, at)| at.to_string())
            });
            let seats = ("SEATS", shares as fn(&GpuAnswer, &OnTrial) -> String);
            vec![gpu, profile, place, free, memory, seats, level, why]
        }
        Wanted::Gpus(_) | Wanted::Slices(_) => vec![gpu, memory, why],
    }
}

fn item(on: &OnTrial, wanted: &Wanted) -> GpuAnswer {
    let bytes = |mib: u64| mib << 20;
    let (profile, place) = on.slice.clone().unzip();
    let is_share = !matches!(wanted, Wanted::Gpus(_));
    GpuAnswer {
        index: on.gpu_index,
        uuid: on.gpu_uuid.to_string(),
        seats: profile.as_ref().map(|_| on.shares),
        profile,
        mig_placement: place.map(Into::into),
        state: on.obstacle.as_ref().map_or("fits", state),
        memory_bytes: on.memory_mib.map(bytes),
        free_bytes: (on.memory_mib)
            .filter(|_| is_share)
            .map(|_| bytes(on.free_mib)),
        enforcement: on.level.map(Level::name),
        why: { on.obstacle.as_ref() }.map_or_else(|| "free".to_owned(), refusal::gpu_obstacle),
        free_slices: 0,
        total_slices: 0,
        quarantined_slices: 0,
        places: Vec::new(),
    }
}

fn state(obstacle: &GpuObstacle) -> &'static str {
    match obstacle {
        GpuObstacle::Queued => "queued",
        GpuObstacle::Excluded(_) => "excluded",
        GpuObstacle::Closed(_) => "closed",
        GpuObstacle::Used(usage) => use_word(usage),
        GpuObstacle::Full { .. } | GpuObstacle::Crowded { .. } => "full",
        GpuObstacle::TooLarge { .. } | GpuObstacle::TooSmall { .. } => "noPlace",
        GpuObstacle::NoFigure | GpuObstacle::OneProcess | GpuObstacle::NoLevel(_) => "unusable",
        GpuObstacle::OtherLevel(_) => "shared",
    }
}
