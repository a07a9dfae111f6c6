mod seats;

use super::*;
use crate::counters::Outcome;
use crate::model::{Gpu, GpuUuid, Level};
use crate::placement::ShareLevel;
use crate::placement::whole::tests::gpu;
use proptest::prelude::*;

const L4: u64 = 22_574;
const H100: u64 = 81_079;

fn candidate<'a>(gpu: &'a Gpu, gives_out: u64, shares: &[u64]) -> Candidate<'a> {
    Candidate {
        memory_mib: Some(gives_out),
        free_mib: gives_out - shares.iter().sum::<u64>(),
        holders: vec!["c".to_owned(); shares.len()],
        level: Some(NONE),
        ..Candidate::new(gpu)
    }
}

const NONE: ShareLevel = ShareLevel {
    level: Level::None,
    rank: 0,
    overhead_mib: 0,
};

fn chosen(candidates: &[Candidate<'_>], sizes: &[ShareSize]) -> Option<(u32, u64)> {
    let (on, memory) = choose(candidates, sizes, &|_| None).ok()?;
    Some((on.gpu.index, memory.memory_mib))
}

fn choose<'c, 'a>(
    candidates: &'c [Candidate<'a>],
    sizes: &[ShareSize],
    limit: &dyn Fn(u64) -> Option<Over>,
) -> Result<(&'c Candidate<'a>, ShareMemory), Box<NoRoom>> {
    let most = 48;
    choose_share(candidates, &ShareTerms { sizes, most, limit })
}

#[test]
fn prefers_gpus_without_mig() {
    let gpus = [
        gpu(0, MigMode::Disabled),
        gpu(1, MigMode::Disabled),
        gpu(2, MigMode::Unsupported),
    ];
    let eight = [ShareSize::Memory(8192)];
    let all = [
        candidate(&gpus[0], L4, &[]),
        candidate(&gpus[1], H100, &[8192]),
        candidate(&gpus[2], H100, &[]),
    ];
    // The least free of those that cannot do MIG or are shared already.
    assert_eq!(chosen(&all, &eight), Some((1, 8192)));
    assert_eq!(chosen(&all[..1], &eight), Some((0, 8192)));
    assert_eq!(
        chosen(&[all[0].clone(), all[2].clone()], &eight),
        Some((2, 8192))
    );
}

#[test]
fn takes_first_size_that_fits() {
    let l4 = gpu(0, MigMode::Unsupported);
    let (forty, half) = (
        ShareSize::Memory(40_960),
        ShareSize::Fraction { parts: 1, of: 2 },
    );
    assert_eq!(
        chosen(&[candidate(&l4, L4, &[])], &[forty, half]),
        Some((0, L4 / 2))
    );
}

#[test]
fn names_obstacle_of_each_gpu() {
    let gpus = [0, 1, 2, 3, 4].map(|n| gpu(n, MigMode::Unsupported));
    let mut queued = candidate(&gpus[4], L4, &[]);
    queued.is_queued = true;
    let all = [
        candidate(&gpus[0], L4, &[16_384]),
        candidate(&gpus[1], 4096, &[]),
        candidate(&gpus[2], L4, &[100; 48]),
        Candidate {
            obstacle: Some(GpuObstacle::OneProcess),
            ..candidate(&gpus[3], L4, &[])
        },
        queued,
    ];
    let refuse = |size| choose(&all, &[size], &|_| None).unwrap_err();
    let no = refuse(ShareSize::Memory(8192));
    assert!(matches!(
        no.taken[0].1,
        GpuObstacle::Full { free_mib: 6190, .. }
    ));
    assert_eq!(no.taken[1].1, GpuObstacle::TooLarge { gives_out: 4096 });
    assert_eq!(no.taken[2].1, GpuObstacle::Crowded { most: 48 });
    assert_eq!(no.taken[4].1, GpuObstacle::Queued);
    let awaited = ["GPU-0", "GPU-2", "GPU-4"].map(GpuUuid::from);
    assert_eq!(no.awaited, awaited);
    assert_eq!(no.outcome(), Outcome::Queued);
    assert!(!no.has_foreign());
    let never = refuse(ShareSize::Memory(1 << 20));
    assert!(!never.may_pass());
    let eighth = ShareSize::Fraction { parts: 1, of: 8 };
    let tiny = choose(&all[1..2], &[eighth], &|_| None);
    let tiny = tiny.unwrap_err();
    assert_eq!(tiny.taken[0].1, GpuObstacle::TooSmall { memory_mib: 512 });
}

/// A GPU whose share a limit forbids for ever is no reason to wait, and one that is full is.
#[test]
fn waits_for_allowed_sizes() {
    let (h100, l4) = (gpu(0, MigMode::Unsupported), gpu(1, MigMode::Unsupported));
    let all = [candidate(&h100, H100, &[]), candidate(&l4, L4, &[20_000])];
    let half = [ShareSize::Fraction { parts: 1, of: 2 }];
    let over = |is_final| {
        let words = "a limit".to_owned();
        Some(Over { words, is_final })
    };
    let limit = |mib: u64| over(true).filter(|_| mib > 20 << 10);
    let no = choose(&all, &half, &limit).unwrap_err();
    let excluded = GpuObstacle::Excluded("a limit".to_owned());
    assert_eq!(no.taken[0], ("GPU 0".to_owned(), excluded));
    assert_eq!(no.awaited, [GpuUuid::from("GPU-1")]);
    let full = [candidate(&h100, H100, &[80_000])];
    assert!(!choose(&full, &half, &limit).unwrap_err().may_pass());
    // The requester's other leases end one day, so a full GPU is worth the wait.
    let now = |_| over(false);
    assert!(choose(&full, &half, &now).unwrap_err().may_pass());
    assert!(!choose(&all[..1], &half, &now).unwrap_err().may_pass());
}

/// The obstacle that may pass counts, whatever the order of the sizes.
#[test]
fn tells_passing_obstacle() {
    let l4 = gpu(0, MigMode::Unsupported);
    let full = candidate(&l4, L4, &[20_000]);
    let sizes = [
        ShareSize::Memory(8192),
        ShareSize::Fraction { parts: 1, of: 64 },
    ];
    let no = choose(&[full], &sizes, &|_| None).unwrap_err();
    assert!(matches!(no.taken[0].1, GpuObstacle::Full { .. }), "{no:?}");
}

/// gpushare's rule, written from its description: of the GPUs with enough free memory the one with the least, of
/// equal ones the first.
fn gpushare(free: &[u64], asked: u64) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (n, left) in free.iter().enumerate() {
        if *left >= asked && best.is_none_or(|b| *left < free[b]) {
            best = Some(n);
        }
    }
    best
}

/// A reference for mixed machines: sorts all places by the three rules.
fn reference(machine: &[(u64, bool)], held: &[Vec<u64>], asked: u64) -> Option<usize> {
    let free = |n: usize| machine[n].0 - held[n].iter().sum::<u64>();
    let mut fits: Vec<usize> = (0..machine.len()).filter(|n| free(*n) >= asked).collect();
    fits.retain(|n| held[*n].len() < 48);
    fits.sort_by_key(|n| (held[*n].is_empty() && machine[*n].1, free(*n), *n));
    fits.first().copied()
}

proptest! {
    /// Over arrivals and departures every choice is the reference's, and no GPU gives out more than it has.
    #[test]
    fn chooses_as_gpushare(
        sizes in prop::collection::vec((1024u64..30_000, 0usize..4), 1..120),
        mixed in prop::collection::vec((prop::sample::select(vec![14_910, L4, H100]), any::<bool>()), 1..9),
        is_mixed in any::<bool>(),
    ) {
        let machine: Vec<(u64, bool)> = match is_mixed {
            true => mixed,
            false => vec![(L4, false); mixed.len()],
        };
        let mode = |can_do_mig| if can_do_mig { MigMode::Disabled } else { MigMode::Unsupported };
        let gpus: Vec<Gpu> = { machine.iter().enumerate() }
            .map(|(n, (_, mig))| gpu(n as u32, mode(*mig)))
            .collect();
        let mut held: Vec<Vec<u64>> = vec![Vec::new(); machine.len()];
        for (asked, leaves) in sizes {
            let candidates: Vec<Candidate<'_>> = { gpus.iter().zip(&machine).zip(&held) }
                .map(|((gpu, (memory, _)), held)| candidate(gpu, *memory, held))
                .collect();
            let got = chosen(&candidates, &[ShareSize::Memory(asked)]).map(|(n, _)| n as usize);
            prop_assert_eq!(got, reference(&machine, &held, asked));
            if !is_mixed && held.iter().all(|h| h.len() < 48) {
                let free: Vec<u64> = candidates.iter().map(|c| c.free_mib).collect();
                prop_assert_eq!(got, gpushare(&free, asked));
            }
            if let Some(n) = got {
                held[n].push(asked);
                prop_assert!(held[n].iter().sum::<u64>() <= machine[n].0);
            }
            let from = leaves % held.len();
            if leaves > 1 && !held[from].is_empty() {
                held[from].remove(0);
            }
        }
    }
}

#[test]
fn books_overhead_of_level() {
    let gpus = [gpu(0, MigMode::Unsupported)];
    let mps = ShareLevel {
        level: Level::Mps,
        rank: 0,
        overhead_mib: 128,
    };
    let on = |shares: &[u64]| Candidate {
        level: Some(mps),
        ..candidate(&gpus[0], L4, shares)
    };
    let place = |shares: &[u64], size| {
        let all = [on(shares)];
        let (_, memory) = choose(&all, &[size], &|_| None).ok()?;
        Some((memory.memory_mib, memory.booked_mib))
    };
    let eight = ShareSize::Memory(8192);
    assert_eq!(place(&[], eight), Some((8192, 8320)));
    // A share fits only with its overhead.
    assert!(place(&[L4 - 8320], eight).is_some());
    assert!(place(&[L4 - 8319], eight).is_none());
    let quarter = ShareSize::Fraction { parts: 1, of: 4 };
    assert_eq!(place(&[5643 * 3], quarter), Some((5515, 5643)));
}

#[test]
fn prefers_gpu_with_better_level() {
    let gpus = [gpu(0, MigMode::Unsupported), gpu(1, MigMode::Unsupported)];
    let second = ShareLevel { rank: 1, ..NONE };
    let all = [
        Candidate {
            level: Some(second),
            ..candidate(&gpus[0], L4, &[8192])
        },
        candidate(&gpus[1], L4, &[]),
    ];
    assert_eq!(chosen(&all, &[ShareSize::Memory(4096)]), Some((1, 4096)));
    assert_eq!(
        chosen(&all[..1], &[ShareSize::Memory(4096)]),
        Some((0, 4096))
    );
}
