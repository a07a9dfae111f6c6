//! How many containers fit: placement policies side by side. `scripts/packing` runs it and writes
//! docs/packing.md's tables and docs/packing.svg.

#[path = "packing/marks.rs"]
mod marks;
#[path = "packing/mod.rs"]
mod packing;

use packing::workloads::Fleet;
use packing::world::{Kind, Random, World};
use packing::{Policy, Settings, Workloads, measure, table};
use std::path::Path;
use std::time::Instant;

fn main() {
    let set = |name: &str| std::env::var(name).ok();
    let number = |name: &str, default: u64| match set(name) {
        Some(text) => text.parse().expect("a number"),
        None => default,
    };
    let mut workloads = Workloads::read();
    let mut docs = set("PACKING_DOCS");
    if set("PACKING_RANDOM").is_some() {
        workloads = workloads.with_random_mixes(number("PACKING_RANDOM", 0));
        docs = None;
    }
    let docs = docs.as_deref().map(Path::new);
    if set("PACKING_DECISIONS").is_none() {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let settings = Settings {
            seeds: number("PACKING_SEEDS", 10),
            arrivals: number("PACKING_ARRIVALS", 20_000) as usize,
            threads: number("PACKING_THREADS", threads as u64) as usize,
        };
        let only = set("PACKING_FLEET").map(|n| n.parse().expect("a number"));
        compare(&workloads, &settings, only, docs);
        if only.is_some() {
            return;
        }
    }
    let text = decisions(&workloads);
    print!("{text}");
    if let Some(dir) = docs {
        replace(dir, "decisions", &text);
    }
}

/// `only`: one fleet, counted from 1; then the plot stays as it is.
fn compare(workloads: &Workloads, settings: &Settings, only: Option<usize>, docs: Option<&Path>) {
    let mut results = Vec::new();
    for (fleet, number) in workloads.fleets.iter().zip(1..) {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let of = measure(fleet, &workloads.loads, settings);
        let text = format!(
            "**{}**: {} mixes × {} loads × {} seeds × {} requests\n\n{}\n{}\n",
            fleet.name(),
            fleet.mixes.len(),
            workloads.loads.len(),
            settings.seeds,
            settings.arrivals,
            table(&of),
            packing::by_mix(fleet, &of)
        );
        print!("{text}");
        if let Some(dir) = docs {
            replace(dir, &format!("fleet {number}"), &text);
        }
        results.push(of);
    }
    if let (Some(dir), None) = (docs, only) {
        let plot = packing::plot::svg(workloads, &results);
        std::fs::write(dir.join("packing.svg"), plot).expect("packing.svg");
    }
}

/// Writes a text into docs/packing.md.
fn replace(dir: &Path, what: &str, text: &str) {
    marks::replace(&dir.join("packing.md"), "scripts/packing", what, text);
}

fn decisions(workloads: &Workloads) -> String {
    let fleets = workloads.fleets.iter();
    let times = fleets.map(|f| format!("- {}: {}\n", f.name(), decision(f)));
    let times: String = times.collect();
    format!("How long a decision of runmig's takes:\n\n{times}")
}

/// On machines half full of whatever is asked for.
fn decision(fleet: &Fleet) -> String {
    let kinds: Vec<Kind> = fleet.mixes.iter().flat_map(|m| fleet.kinds(m)).collect();
    let models = fleet.models();
    let mut times = Vec::new();
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut world = World::new(&models);
        for _ in 0..4 * models.len() {
            let kind = &kinds[random.next() as usize % kinds.len()];
            let wanted = runmig_lease::placement::Constraints::one(&kind.slice);
            let one = || {
                let snapshot = std::hint::black_box(&world.snapshot);
                let _ =
                    std::hint::black_box(runmig_lease::placement::choose(snapshot, &[], &wanted));
            };
            const TIMES: u32 = 20;
            // The best of some: what else the machine does is not ours.
            let batch = |_| {
                let begun = Instant::now();
                (0..TIMES).for_each(|_| one());
                begun.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
            };
            times.push((0..10).map(batch).fold(f64::INFINITY, f64::min));
            Policy::Ours.place(&mut world, kind);
        }
    }
    times.sort_by(f64::total_cmp);
    format!(
        "{:.1} µs in the median, {:.1} µs in 99 of 100 cases",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    )
}
