//! How many pods fit when Kubernetes' scheduler takes the first device of a list: orders of the list side by side, on
//! one node and on four. `scripts/packing --scheduler` runs it and writes the table of docs/dra-scheduling.md.

#[path = "../../../benches/packing/marks.rs"]
mod marks;
// The comparison of policies without a scheduler uses the rest of it.
#[allow(dead_code, unused_imports)]
#[path = "../../../benches/packing/mod.rs"]
mod packing;
#[path = "scheduler/mod.rs"]
mod scheduler;

use scheduler::{Settings, measure, table};
use std::path::Path;

fn main() {
    let set = |name: &str| std::env::var(name).ok();
    let number = |name: &str, default: u64| match set(name) {
        Some(text) => text.parse().expect("a number"),
        None => default,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        seeds: number("PACKING_SEEDS", 4),
        arrivals: number("PACKING_ARRIVALS", 4_000) as usize,
        threads: number("PACKING_THREADS", threads as u64) as usize,
    };
    let text = table(&measure(&settings), &settings);
    print!("{text}");
    if let Some(docs) = set("PACKING_DOCS") {
        marks::replace(
            &Path::new(&docs).join("dra-scheduling.md"),
            "scripts/packing",
            "scheduler",
            &text,
        );
    }
}
