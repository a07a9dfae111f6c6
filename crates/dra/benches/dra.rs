//! The cost of `runmig-dra`: etcd and API server on loopback, the real program beside simulated GPUs, and this process
//! in place of scheduler and kubelet. `scripts/bench dra` runs it and writes the table of docs/dra-scheduling.md.

#[path = "dra/mod.rs"]
mod dra;
#[path = "../../../benches/packing/marks.rs"]
mod marks;

use dra::Options;
use std::path::PathBuf;
use std::time::Duration;

fn main() {
    let set = |name: &str| std::env::var(name).ok();
    let number = |name: &str, default: u64| {
        set(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let figures = dra::measure(&Options {
        programs: PathBuf::from(set("DRA_PROGRAMS").expect("DRA_PROGRAMS: the folder of etcd")),
        shipped: set("DRA_SHIPPED").map(PathBuf::from),
        rounds: number("DRA_ROUNDS", 100) as usize,
        idle: Duration::from_secs(number("DRA_IDLE", 60)),
    });
    let text = dra::table(&figures);
    print!("{text}");
    if let Some(docs) = set("DRA_DOCS") {
        let file = PathBuf::from(docs).join("dra-scheduling.md");
        marks::replace(&file, "scripts/bench", "dra", &text);
    }
}
