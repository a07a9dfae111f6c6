use super::*;
use crate::model::{Gpu, GpuUuid};
use crate::placement::{GpuObstacle, GpuUse};

pub(in crate::placement) fn gpu(index: u32, mig: MigMode) -> Gpu {
    Gpu {
        index,
        uuid: GpuUuid::new(format!("GPU-{index}")),
        mig,
        ..Gpu::default()
    }
}

fn candidate(gpu: &Gpu, obstacle: Option<GpuObstacle>) -> Candidate<'_> {
    Candidate {
        memory_mib: Some(1),
        obstacle,
        ..Candidate::new(gpu)
    }
}

fn chosen<'a>(all: &[Candidate<'a>], count: u32) -> Result<Vec<Candidate<'a>>, Box<NoRoom>> {
    choose_whole(all, count, &|_, _| Nearness::Apart)
}

/// GPUs without MIG come before those that are near each other.
#[test]
fn prefers_near_gpus_of_one_kind() {
    let gpus = [0, 1, 2, 3].map(|n| gpu(n, MigMode::Unsupported));
    let could = [4, 5].map(|n| gpu(n, MigMode::Disabled));
    let all: Vec<Candidate<'_>> = { gpus.iter().chain(&could) }
        .map(|g| candidate(g, None))
        .collect();
    let near = |a: &GpuUuid, b: &GpuUuid| match (a.as_str(), b.as_str()) {
        ("GPU-3", "GPU-1") | ("GPU-1", "GPU-3") | ("GPU-4", "GPU-5") | ("GPU-5", "GPU-4") => {
            Nearness::Linked
        }
        _ => Nearness::Apart,
    };
    let chosen = |count| indexes(&choose_whole(&all, count, &near).unwrap());
    assert_eq!(chosen(2), [1, 3]);
    assert_eq!(chosen(5), [0, 1, 2, 3, 4]);
}

fn indexes(chosen: &[Candidate<'_>]) -> Vec<u32> {
    chosen.iter().map(|c| c.gpu.index).collect()
}

#[test]
fn prefers_gpus_without_mig() {
    let gpus = [
        gpu(0, MigMode::Disabled),
        gpu(1, MigMode::Unsupported),
        gpu(2, MigMode::Unsupported),
    ];
    let all = gpus.each_ref().map(|g| candidate(g, None));
    assert_eq!(indexes(&chosen(&all, 1).unwrap()), [1]);
    assert_eq!(indexes(&chosen(&all, 2).unwrap()), [1, 2]);
    assert_eq!(indexes(&chosen(&all, 3).unwrap()), [1, 2, 0]);
}

#[test]
fn gives_all_or_none() {
    let gpus = [0, 1, 2].map(|n| gpu(n, MigMode::Unsupported));
    let held = GpuObstacle::Used(GpuUse::Exclusive { holder: None });
    let mig = GpuObstacle::Used(GpuUse::Mig { pending: false });
    let all = [
        candidate(&gpus[0], Some(held.clone())),
        candidate(&gpus[1], None),
        candidate(&gpus[2], Some(mig.clone())),
    ];
    let short = chosen(&all, 2).unwrap_err();
    assert_eq!((short.free.as_slice(), short.may_pass()), (&[1][..], true));
    let named = |n: u32, why| (format!("GPU {n}"), why);
    assert_eq!(short.taken, [named(0, held), named(2, mig)]);
    assert_eq!(short.awaited, ["GPU-0", "GPU-1"].map(GpuUuid::from));
    // MIG mode does not end by itself.
    assert!(!chosen(&all, 3).unwrap_err().may_pass());
}

#[test]
fn finds_the_free_gpus_with_the_least_memory() {
    let gpus = [0, 1, 2, 3].map(|n| gpu(n, MigMode::Disabled));
    let sizes = [80, 24, 24, 8];
    let mut all: Vec<Candidate<'_>> = { gpus.iter().zip(sizes) }
        .map(|(gpu, mib)| Candidate {
            memory_mib: Some(mib),
            ..candidate(gpu, None)
        })
        .collect();
    all[3].obstacle = Some(GpuObstacle::Queued);
    assert_eq!(indexes(&smallest_whole(&all, 1)), [1]);
    assert_eq!(indexes(&smallest_whole(&all, 3)), [1, 2, 0]);
}
