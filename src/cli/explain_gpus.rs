//! `migctl explain --gpu` and `--share`: whether a request outside of slices would find room, where, or why not.

use super::asked::By;
use super::gpus::use_word;
use super::json::{Alternative, Explanation, GpuAnswer, WaitingItem};
use super::output;
use super::world;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::model::{GpuUuid, Level};
use runmig_lease::placement::GpuObstacle;
use runmig_lease::refusal;
use runmig_lease::request::Wanted;
use runmig_lease::what_if::{
    self, GpuOnTrial, GpuOutcome, SeatOnTrial, SeatOutcome, ShareOnTrial, ShareOutcome,
};

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

pub fn gpus(config: &Config, by: &By, count: &str, is_json: bool) -> Result<i32> {
    let count = by.gpus(count)?;
    let (driver, world) = world::look(config, !is_json)?;
    let subject = by.subject(&world);
    let trial = what_if::try_gpus((config, &driver), &world, (count, subject))?;
    let answer = match trial.outcome {
        GpuOutcome::Fits(gpus) => {
            let names: Vec<String> = { gpus.iter() }
                .map(|g| format!("GPU {} ({})", g.gpu_index, printable(&g.model)))
                .collect();
            Answer::fits(names.join(" and "))
        }
        GpuOutcome::Limited(over) => Answer::no("limited", &over),
        GpuOutcome::No(shortage) => {
            let verdict = refused(shortage.may_pass(), shortage.is_queued());
            Answer::no(verdict, &what_if::shortage_error(shortage, &world))
        }
    };
    let gpus: Vec<GpuAnswer> = trial.gpus.iter().map(whole).collect();
    let cells = |gpu: &GpuAnswer| {
        let memory = gib(gpu.memory_bytes);
        vec![gpu.index.to_string(), memory, gpu.why.clone()]
    };
    let rows: Vec<Vec<String>> = gpus.iter().map(cells).collect();
    let table = (&["GPU", "MEMORY GiB", "WHY"][..], rows);
    let answer = (Wanted::Gpus(count), answer, gpus);
    Ok(tell(&world, answer, table, is_json))
}

pub fn share(config: &Config, by: &By, sizes: &str, is_json: bool) -> Result<i32> {
    let sizes = by.share(sizes)?;
    let (driver, world) = world::look(config, !is_json)?;
    let subject = by.subject(&world);
    let trial = what_if::try_share((config, &driver), &world, (&sizes, subject))?;
    let answer = match trial.outcome {
        ShareOutcome::Fits(gpu, share) => Answer::fits(format!(
            "{}Mi of GPU {} ({}), level {}",
            share.memory_mib,
            gpu.gpu_index,
            printable(&gpu.model),
            share.enforcement.level()
        )),
        ShareOutcome::Limited(over) => Answer::no("limited", &over),
        ShareOutcome::No(shortage) => {
            let verdict = refused(shortage.may_pass(), shortage.is_queued());
            Answer::no(verdict, &what_if::no_share_error(shortage, &world))
        }
    };
    let gpus: Vec<GpuAnswer> = trial.gpus.iter().map(shared).collect();
    let cells = |(gpu, on): (&GpuAnswer, &ShareOnTrial)| {
        vec![
            gpu.index.to_string(),
            gib(gpu.free_bytes),
            gib(gpu.memory_bytes),
            on.shares.to_string(),
            gpu.enforcement.unwrap_or("-").to_owned(),
            gpu.why.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = gpus.iter().zip(&trial.gpus).map(cells).collect();
    let table = (
        &["GPU", "FREE GiB", "MEMORY GiB", "SHARES", "LEVEL", "WHY"][..],
        rows,
    );
    let answer = (Wanted::Share(sizes), answer, gpus);
    Ok(tell(&world, answer, table, is_json))
}

/// Explains a request for a share of a slice.
pub fn seat(config: &Config, by: &By, (slice, sizes): (&str, &str), is_json: bool) -> Result<i32> {
    let seat = by.seat(slice, sizes)?;
    let (driver, world) = world::look(config, !is_json)?;
    let subject = by.subject(&world);
    let trial = what_if::try_seat((config, &driver), &world, (&seat, subject))?;
    let answer = match trial.outcome {
        SeatOutcome::Fits {
            slice,
            share,
            is_new,
        } => Answer::fits(format!(
            "{}Mi of {}{}, level {}",
            share.memory_mib,
            if is_new { "a new " } else { "" },
            slice,
            share.enforcement.level()
        )),
        SeatOutcome::Limited(over) => Answer::no("limited", &over),
        SeatOutcome::No(shortage) => {
            let verdict = refused(shortage.may_pass(), false);
            Answer::no(verdict, &what_if::no_seat_error(shortage, &world))
        }
    };
    let slices: Vec<GpuAnswer> = trial.slices.iter().map(seated).collect();
    let cells = |(slice, on): (&GpuAnswer, &SeatOnTrial)| {
        vec![
            slice.index.to_string(),
            on.profile.clone(),
            on.placement.to_string(),
            gib(slice.free_bytes),
            gib(slice.memory_bytes),
            on.seats.to_string(),
            on.level.map_or("-", Level::name).to_owned(),
            slice.why.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = slices.iter().zip(&trial.slices).map(cells).collect();
    let head = [
        "GPU",
        "PROFILE",
        "PLACE",
        "FREE GiB",
        "MEMORY GiB",
        "SEATS",
        "LEVEL",
        "WHY",
    ];
    let answer = (Wanted::Seat(seat), answer, slices);
    Ok(tell(&world, answer, (&head[..], rows), is_json))
}

fn refused(may_pass: bool, is_queued: bool) -> &'static str {
    match (may_pass, is_queued) {
        (false, _) => "unsatisfiable",
        (true, true) => "queued",
        (true, false) => "full",
    }
}

/// Prints the answer, and returns the exit status.
fn tell(
    world: &Inventory,
    (wanted, answer, gpus): (Wanted, Answer, Vec<GpuAnswer>),
    (head, rows): (&[&str], Vec<Vec<String>>),
    is_json: bool,
) -> i32 {
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
            gpus,
            restarts: Vec::new(),
            with_mig_on: None,
        }],
    };
    let only = &explanation.alternatives[0];
    if is_json {
        output::json(&explanation);
    } else {
        output::line(&format!("{}: {}", only.verdict, printable(&only.why)));
        output::table(head, &rows);
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

fn whole(gpu: &GpuOnTrial) -> GpuAnswer {
    let bytes = gpu.memory_mib.map(|mib| mib << 20);
    answer((gpu.index, &gpu.uuid), gpu.obstacle.as_ref(), (bytes, None))
}

fn shared(gpu: &ShareOnTrial) -> GpuAnswer {
    let bytes = gpu.memory_mib.map(|mib| mib << 20);
    let free = bytes.map(|_| gpu.free_mib << 20);
    let answer = answer((gpu.index, &gpu.uuid), gpu.obstacle.as_ref(), (bytes, free));
    GpuAnswer {
        enforcement: gpu.level.map(Level::name),
        ..answer
    }
}

fn seated(slice: &SeatOnTrial) -> GpuAnswer {
    let bytes = (Some(slice.memory_mib << 20), Some(slice.free_mib << 20));
    let on = (slice.gpu_index, &slice.gpu_uuid);
    GpuAnswer {
        profile: Some(slice.profile.clone()),
        mig_placement: Some(slice.placement.into()),
        seats: Some(slice.seats),
        ..answer(on, slice.obstacle.as_ref(), bytes)
    }
}

fn answer(
    (index, uuid): (u32, &GpuUuid),
    obstacle: Option<&GpuObstacle>,
    (memory_bytes, free_bytes): (Option<u64>, Option<u64>),
) -> GpuAnswer {
    GpuAnswer {
        index,
        uuid: uuid.to_string(),
        profile: None,
        mig_placement: None,
        seats: None,
        state: obstacle.map_or("fits", state),
        memory_bytes,
        free_bytes,
        enforcement: None,
        why: obstacle.map_or_else(|| "free".to_owned(), refusal::gpu_obstacle),
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
        GpuObstacle::Used(usage) => use_word(usage),
        GpuObstacle::Full { .. } | GpuObstacle::Crowded { .. } => "full",
        GpuObstacle::TooLarge { .. } | GpuObstacle::TooSmall { .. } => "noPlace",
        GpuObstacle::OneProcess | GpuObstacle::NoLevel(_) => "unusable",
        GpuObstacle::OtherLevel(_) => "shared",
    }
}
