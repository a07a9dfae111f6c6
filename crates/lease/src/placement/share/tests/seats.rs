use super::*;
use crate::model::{Placement, Profile};
use crate::placement::tests::slot;
use crate::placement::{Backfill, CandidateSlice, Constraints};
use crate::request::Slice;

/// The memory of a slice, in MiB.
const MEMORY: u64 = 40_192;

fn mig_gpu(index: u32) -> Gpu {
    let profile = |name: &str, id, memory_mib, starts: &[u32], size| Profile {
        name: name.to_owned(),
        id,
        memory_mib,
        compute_slices: size,
        placements: { starts.iter() }
            .map(|start| Placement {
                start: *start,
                size,
            })
            .collect(),
        max_instances: 7,
        ..Profile::default()
    };
    Gpu {
        profiles: vec![
            profile("3g.40gb", 9, MEMORY, &[0, 4], 4),
            profile("1g.10gb", 19, 9_728, &[0, 1, 2, 3], 1),
        ],
        ..gpu(index, MigMode::Enabled)
    }
}

const MPS: ShareLevel = ShareLevel {
    level: Level::Mps,
    rank: 0,
    overhead_mib: 128,
};

fn candidate<'a>(gpu: &'a Gpu, start: u32, booked: &[u64]) -> Candidate<'a> {
    Candidate {
        slice: Some(CandidateSlice {
            profile: &gpu.profiles[0],
            at: Placement { start, size: 4 },
            is_ready: true,
        }),
        memory_mib: Some(MEMORY),
        free_mib: MEMORY - booked.iter().sum::<u64>(),
        holders: vec!["c".to_owned(); booked.len()],
        level: Some(MPS),
        ..Candidate::new(gpu)
    }
}

const TERMS: ShareTerms<'_> = ShareTerms {
    sizes: &[],
    most: 48,
    limit: &|_| None,
};

fn slice(name: &str) -> Slice {
    Slice::Profile(name.parse().unwrap())
}

fn chosen_for(
    all: &[Candidate<'_>],
    size: ShareSize,
    wanted: &Constraints<'_>,
) -> Option<(usize, ShareMemory)> {
    TERMS.choose(all, |on| on.is_asked(wanted), size)
}

fn chosen(all: &[Candidate<'_>], name: &str, size: ShareSize) -> Option<(u32, u32, u64, u64)> {
    let slice = slice(name);
    let (n, memory) = chosen_for(all, size, &Constraints::one(&slice))?;
    let (gpu, start) = (all[n].gpu.index, all[n].slice?.at.start);
    Some((gpu, start, memory.memory_mib, memory.booked_mib))
}

#[test]
fn takes_slice_of_requested_profile() {
    let gpus = [mig_gpu(0)];
    let all = [candidate(&gpus[0], 0, &[8192])];
    let ten = ShareSize::Memory(10_240);
    // The need of the level comes on top of an amount, and is in a fraction.
    assert_eq!(chosen(&all, "3g.40gb", ten), Some((0, 0, 10_240, 10_368)));
    let quarter = ShareSize::Fraction { parts: 1, of: 4 };
    let mib = MEMORY / 4;
    assert_eq!(
        chosen(&all, "3g.40gb", quarter),
        Some((0, 0, mib - 128, mib))
    );
    assert_eq!(chosen(&all, "1g.10gb", ten), None);
    let by_amount = Slice::Memory(20 << 30);
    let found = chosen_for(&all, ten, &Constraints::one(&by_amount));
    assert!(found.is_some());
    // A rule keeps the requester from its GPU.
    let excluded = [(gpus[0].uuid.clone(), "a rule".to_owned())];
    let without = Constraints {
        excluded: &excluded,
        ..Constraints::one(&by_amount)
    };
    assert!(chosen_for(&all, ten, &without).is_none());
}

/// A seat would keep the slice for longer, and so the place that an earlier request could use.
#[test]
fn earlier_requests_keep_their_places() {
    let gpus = [mig_gpu(0)];
    let ours = [slot(0, 9, 0, 4)];
    let blockers = [crate::placement::Reservation {
        gpu: gpus[0].uuid.clone(),
        profile_id: 19,
    }];
    let wanted = Constraints {
        blockers: &blockers,
        ours: &ours,
        ..Constraints::default()
    };
    let mut on = candidate(&gpus[0], 0, &[8192]);
    let backfill = Backfill::on(&gpus[0], &wanted);
    on.is_queued = !backfill.permits(&gpus[0].profiles[0], Placement { start: 0, size: 4 });
    let terms = ShareTerms {
        sizes: &[ShareSize::Memory(1024)],
        ..TERMS
    };
    assert_eq!(terms.obstacle(&on), Some(GpuObstacle::Queued));
    assert_eq!(chosen(&[on.clone()], "3g.40gb", terms.sizes[0]), None);
    // A request above a limit is not queued.
    let limit = |_| {
        let words = "a limit".to_owned();
        let is_final = false;
        Some(Over { words, is_final })
    };
    let above = ShareTerms {
        limit: &limit,
        ..terms
    };
    let excluded = GpuObstacle::Excluded("a limit".to_owned());
    assert_eq!(above.obstacle(&on), Some(excluded));
    let no = NoRoom::among(Wanted::Gpus(1), &[on], |on| terms.obstacle(on));
    assert_eq!(no.taken[0].0, "3g.40gb at 0:4 on GPU 0");
}

#[test]
fn small_slices_take_no_seat() {
    let gpu = mig_gpu(0);
    let obstacle = |name: &str, sizes: &[ShareSize]| {
        let profile = gpu.profiles.iter().find(|p| p.name == name).unwrap();
        let terms = ShareTerms { sizes, ..TERMS };
        terms.obstacle(&Candidate::new_slice(&gpu, profile, MPS))
    };
    let (eight, ten) = (ShareSize::Memory(8192), ShareSize::Memory(10_240));
    assert_eq!(obstacle("3g.40gb", &[ten]), None);
    let large = GpuObstacle::TooLarge { gives_out: 9_728 };
    assert_eq!(obstacle("1g.10gb", &[ten]), Some(large));
    assert_eq!(obstacle("1g.10gb", &[ten, eight]), None);
    let tenth = ShareSize::Fraction { parts: 1, of: 10 };
    let small = GpuObstacle::TooSmall { memory_mib: 844 };
    assert_eq!(obstacle("1g.10gb", &[tenth]), Some(small));
}

proptest! {
    /// A slice that exists, then the least free memory that fits, then the lowest GPU, then the lowest place; and never
    /// more than there is.
    #[test]
    fn chooses_fullest_that_fits(
        slices in proptest::collection::vec((0..MEMORY, proptest::bool::ANY), 1..8),
        mib in 1024..MEMORY,
    ) {
        let gpus: Vec<Gpu> = (0..4).map(mig_gpu).collect();
        let all: Vec<Candidate<'_>> = { slices.iter().enumerate() }
            .map(|(n, (booked, is_ready))| {
                let mut on = candidate(&gpus[n / 2], if n % 2 == 0 { 0 } else { 4 }, &[*booked]);
                on.slice.as_mut().unwrap().is_ready = *is_ready;
                on
            })
            .collect();
        let mut best: Option<(u64, usize)> = None;
        for ready in [true, false] {
            for (n, (booked, is_ready)) in slices.iter().enumerate() {
                let free = MEMORY - booked;
                let fits = *is_ready == ready && free >= mib + 128;
                if fits && best.is_none_or(|(least, at)| slices[at].1 == ready && free < least) {
                    best = Some((free, n));
                }
            }
        }
        let size = ShareSize::Memory(mib);
        let found = chosen_for(&all, size, &Constraints::one(&slice("3g.40gb")));
        prop_assert_eq!(found.map(|(n, _)| n), best.map(|(_, n)| n));
    }
}
