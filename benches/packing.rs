//! How many containers fit: placement policies side by side. `scripts/packing` runs it and writes
//! docs/packing.md's tables and docs/packing.svg.

#[path = "packing/mod.rs"]
mod packing;

use packing::world::{Random, World};
use packing::{ALL, Policy, Settings, Workloads, measure, table};
use std::time::Instant;

fn main() {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => default,
    };
    let workloads = Workloads::read();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        seeds: number("PACKING_SEEDS", 10),
        arrivals: number("PACKING_ARRIVALS", 20_000) as usize,
        threads: number("PACKING_THREADS", threads as u64) as usize,
    };
    let results = measure(&workloads, &settings);
    let mut text = table(&results);
    text.push('\n');
    text.push_str(&packing::by_mix(&workloads, &results));
    text.push_str(&format!(
        "\n{} × {}, {} mixes × {} loads × {} seeds × {} requests. A decision of runmig's takes {}.\n",
        workloads.gpus,
        workloads.model,
        workloads.mixes.len(),
        workloads.loads.len(),
        settings.seeds,
        settings.arrivals,
        decision(&workloads)
    ));
    print!("{text}");
    if let Ok(dir) = std::env::var("PACKING_DOCS") {
        let dir = std::path::Path::new(&dir);
        let plot = packing::plot::svg(&workloads, &results);
        std::fs::write(dir.join("packing.svg"), plot).expect("packing.svg");
        const MARKS: [&str; 2] = [
            "<!-- scripts/packing writes from here -->\n",
            "<!-- to here -->",
        ];
        let file = dir.join("packing.md");
        let old = std::fs::read_to_string(&file).expect("packing.md");
        let (before, rest) = old.split_once(MARKS[0]).expect("the first mark");
        let (_, after) = rest.split_once(MARKS[1]).expect("the second mark");
        let new = format!("{before}{}\n{text}\n{}{after}", MARKS[0], MARKS[1]);
        std::fs::write(&file, new).expect("packing.md");
    }
}

/// On machines half full of slices of every profile.
fn decision(workloads: &Workloads) -> String {
    let model = workloads.model();
    let mut times = Vec::new();
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut world = World::new(model, workloads.gpus);
        for _ in 0..4 * workloads.gpus {
            let profile = &model.profiles[random.next() as usize % model.profiles.len()];
            let one = || {
                let asked = runmig::request::Slice::Profile(profile.name.clone());
                let wanted = runmig::placement::Wanted::one(&asked);
                let _ = std::hint::black_box(runmig::placement::choose(
                    std::hint::black_box(&world.snapshot),
                    &[],
                    &wanted,
                ));
            };
            const TIMES: u32 = 20;
            // The best of some: what else the machine does is not ours.
            let batch = |_| {
                let begun = Instant::now();
                (0..TIMES).for_each(|_| one());
                begun.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
            };
            times.push((0..10).map(batch).fold(f64::INFINITY, f64::min));
            Policy::Ours.place(&mut world, profile);
        }
    }
    times.sort_by(f64::total_cmp);
    debug_assert!(ALL.contains(&Policy::Ours));
    format!(
        "{:.1} µs in the median, {:.1} µs in 99 of 100 cases",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    )
}
