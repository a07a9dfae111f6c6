//! The rows of `migctl explain`: a column of each table, and the GPUs or slices with seats of a request outside of slices.

use super::gpus::use_word;
use super::json::GpuAnswer;
use super::output::dash;
use runmig_lease::model::Level;
use runmig_lease::placement::GpuObstacle;
use runmig_lease::refusal;
use runmig_lease::request::Wanted;
use runmig_lease::what_if::Part;

fn gib(bytes: Option<u64>) -> String {
    let gib = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 30));
    dash(bytes.map(gib))
}

/// A column of a table: its head, and the cell of a GPU or a slice.
type Column = (&'static str, fn(&GpuAnswer) -> String);

pub fn columns(wanted: &Wanted) -> Vec<Column> {
    let gpu: Column = ("GPU", |gpu| gpu.index.to_string());
    let free: Column = ("FREE GiB", |gpu| gib(gpu.free_bytes));
    let memory: Column = ("MEMORY GiB", |gpu| gib(gpu.memory_bytes));
    let level: Column = ("LEVEL", |gpu| gpu.enforcement.unwrap_or("-").to_owned());
    let why: Column = ("WHY", |gpu| gpu.why.clone());
    let shares = |gpu: &GpuAnswer| gpu.shares.to_string();
    match wanted {
        Wanted::Slices(_) => {
            let place: Column = ("PLACE", |gpu| {
                dash(gpu.places.first().map(|p| p.mig_placement.to_string()))
            });
            let cost: Column = ("COST", |gpu| {
                dash(gpu.places.first().map(|p| format!("{:.2}", p.cost)))
            });
            let free: Column = ("FREE", |gpu| {
                format!("{}/{}", gpu.free_slices, gpu.total_slices)
            });
            vec![gpu, place, cost, free, why]
        }
        Wanted::Share(_) => vec![gpu, free, memory, ("SHARES", shares), level, why],
        Wanted::Seat(_) => {
            let profile: Column = ("PROFILE", |gpu| gpu.profile.clone().unwrap_or_default());
            let place: Column = ("PLACE", |gpu| {
                { gpu.mig_placement }.map_or_else(String::new, |at| at.to_string())
            });
            vec![
                gpu,
                profile,
                place,
                free,
                memory,
                ("SEATS", shares),
                level,
                why,
            ]
        }
        Wanted::Gpus(_) => vec![gpu, memory, why],
    }
}

pub fn item(on: &Part) -> GpuAnswer {
    let bytes = |mib: u64| mib << 20;
    let (profile, place) = on.slice.clone().unzip();
    GpuAnswer {
        index: on.gpu_index,
        uuid: on.gpu_uuid.to_string(),
        seats: profile.as_ref().map(|_| on.shares),
        shares: on.shares,
        profile,
        mig_placement: place,
        state: on.obstacle.as_ref().map_or("fits", state),
        memory_bytes: on.memory_mib.map(bytes),
        free_bytes: on.free_mib.map(bytes),
        enforcement: on.level.map(Level::name),
        why: { on.obstacle.as_ref() }.map_or_else(|| "free".to_owned(), refusal::gpu_obstacle),
        ..GpuAnswer::default()
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
