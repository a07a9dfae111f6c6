//! The pure choice of a GPU for a share, on 8 GPUs with many shares each.

use super::table;
use runmig_lease::model::{Gpu, GpuUuid, Level, MigMode};
use runmig_lease::placement::{Candidate, ShareLevel, ShareTerms, choose_share};
use runmig_lease::request::ShareSize;
use std::hint::black_box;
use std::time::Instant;

const GPUS: u32 = 8;
const SHARES_EACH: usize = 48;
/// The memory that an H100 gives out, in MiB.
const GIVES_OUT: u64 = 81_079;
const ROUNDS: usize = 10_000;

pub fn run() {
    let gpus: Vec<Gpu> = (0..GPUS).map(gpu).collect();
    let crowded = |full: u32| -> Vec<Candidate<'_>> {
        let of = |gpu| candidate(gpu, if gpu.index < full { 0 } else { 20_000 });
        gpus.iter().map(of).collect()
    };
    let rows = [
        ("all GPUs have room", crowded(0)),
        ("the last GPU alone has room", crowded(GPUS - 1)),
        ("no GPU has room: a refusal with all holders", crowded(GPUS)),
    ];
    let rows: Vec<Vec<String>> = { rows.iter() }
        .map(|(name, candidates)| vec![(*name).to_owned(), format!("{:.2}", median(candidates))])
        .collect();
    println!(
        "The choice for a share of 8Gi on {GPUS} GPUs with {SHARES_EACH} shares each, median of {ROUNDS} (aim: at most 10)"
    );
    table::print(&["", "µs"], &rows);
    println!();
}

/// Returns the time of a choice, in microseconds.
fn median(candidates: &[Candidate<'_>]) -> f64 {
    let terms = ShareTerms {
        sizes: &[ShareSize::Memory(8192)],
        most: 100,
        limit: &|_| None,
    };
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            let _ = black_box(choose_share(black_box(candidates), &terms));
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        minor: index,
        uuid: GpuUuid::new(format!("GPU-{index}")),
        name: "H100".to_owned(),
        pci_bus_id: String::new(),
        mig: MigMode::Disabled,
        mig_pending: None,
        closed: None,
        profiles: Vec::new(),
        instances: Vec::new(),
    }
}

fn candidate(gpu: &Gpu, free_mib: u64) -> Candidate<'_> {
    Candidate {
        memory_mib: Some(GIVES_OUT),
        free_mib,
        holders: (0..SHARES_EACH).map(|n| format!("container {n}")).collect(),
        level: Some(ShareLevel {
            level: Level::Mps,
            rank: 0,
            overhead_mib: 128,
        }),
        ..Candidate::new(gpu)
    }
}
