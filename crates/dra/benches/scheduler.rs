//! How many pods fit when Kubernetes' scheduler takes the first device of a list: orders of the list side by side, on
//! one node and on four. `scripts/packing --scheduler` runs it and writes the table of docs/dra.md.

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
        replace(Path::new(&docs), &text);
    }
}

/// Writes the table between its two marks in docs/dra.md.
fn replace(docs: &Path, text: &str) {
    let marks = [
        "<!-- scripts/packing writes from here: scheduler -->\n",
        "<!-- to here: scheduler -->",
    ];
    let file = docs.join("dra.md");
    let old = std::fs::read_to_string(&file).expect("dra.md");
    let (before, rest) = old.split_once(marks[0]).expect("the first mark");
    let (_, after) = rest.split_once(marks[1]).expect("the second mark");
    let new = format!(
        "{before}{}\n{}\n\n{}{after}",
        marks[0],
        text.trim_end(),
        marks[1]
    );
    std::fs::write(&file, new).expect("dra.md");
}
