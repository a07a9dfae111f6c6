//! Chooses GPUs that are near each other: a pure function of how near each two are.

use crate::model::Nearness;
use std::ops::Range;

/// The most sets that are compared. 16 GPUs have at most 12,870 of one size; beyond, the order alone decides.
const MOST_SETS: usize = 20_000;

/// How near the GPUs of a set are: more pairs with NVLink are better, then more on one NUMA node.
type Score = (usize, usize);

/// Chooses `count` of `all` GPUs, which stand in their order of preference. The first `taken` ones are chosen anyway. Of
/// equal sets the first in that order wins. It asks only when there is a choice.
pub(super) fn nearest(
    near: impl Fn(usize, usize) -> Nearness,
    taken: usize,
    all: usize,
    count: usize,
) -> Vec<usize> {
    let mut set: Vec<usize> = (0..count.min(all)).collect();
    if count < 2 || count >= all || taken >= count || sets(all - taken, count - taken) > MOST_SETS {
        return set;
    }
    let row = |a| (0..a).map(|b| near(a, b)).collect();
    let told: Vec<Vec<Nearness>> = (0..all).map(row).collect();
    let mut best: Option<(Score, Vec<usize>)> = None;
    set.truncate(taken);
    each_set(&mut set, taken..all, count, &mut |set| {
        let score = score(&told, set);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, set.to_vec()));
        }
    });
    best.map_or(set, |(_, set)| set)
}

/// `told` has how near each two GPUs are, at the larger number and then at the smaller one.
fn score(told: &[Vec<Nearness>], set: &[usize]) -> Score {
    let pairs = { set.iter().enumerate() }.flat_map(|(n, a)| set[..n].iter().map(|b| told[*a][*b]));
    pairs.fold((0, 0), |(linked, node), near| match near {
        Nearness::Linked => (linked + 1, node + 1),
        Nearness::SameNode => (linked, node + 1),
        Nearness::Apart => (linked, node),
    })
}

/// Returns the number of sets of `k` out of `n`, or more than [`MOST_SETS`].
fn sets(n: usize, k: usize) -> usize {
    (0..k.min(n - k)).fold(1_usize, |sets, i| match sets > MOST_SETS {
        true => sets,
        false => sets * (n - i) / (i + 1),
    })
}

/// Visits every set that extends one by these GPUs to `count`, in order.
fn each_set(
    set: &mut Vec<usize>,
    mut left: Range<usize>,
    count: usize,
    visit: &mut impl FnMut(&[usize]),
) {
    if set.len() == count {
        return visit(set);
    }
    while set.len() + left.len() >= count
        && let Some(gpu) = left.next()
    {
        set.push(gpu);
        each_set(set, left.clone(), count, visit);
        set.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any nearness of each two of so many GPUs.
    fn world(gpus: usize) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0..3_u8, gpus * gpus)
    }

    fn near(world: &[u8], gpus: usize, a: usize, b: usize) -> Nearness {
        match world[a.max(b) * gpus + a.min(b)] {
            0 => Nearness::Apart,
            1 => Nearness::SameNode,
            _ => Nearness::Linked,
        }
    }

    /// Counts the pairs of a set of bits.
    fn score(world: &[u8], gpus: usize, set: u32) -> Score {
        let mut score = (0, 0);
        for a in 0..gpus {
            for b in 0..a {
                if set >> a & 1 == 1 && set >> b & 1 == 1 {
                    score.0 += usize::from(near(world, gpus, a, b) == Nearness::Linked);
                    score.1 += usize::from(near(world, gpus, a, b) != Nearness::Apart);
                }
            }
        }
        score
    }

    fn agrees(world: &[u8], gpus: usize, taken: usize, count: usize) {
        let chosen = nearest(|a, b| near(world, gpus, a, b), taken, gpus, count);
        assert_eq!(chosen.len(), count);
        assert!(chosen.is_sorted() && (0..taken).all(|gpu| chosen.contains(&gpu)));
        let bits = chosen.iter().fold(0, |bits, gpu| bits | 1 << gpu);
        let must = (1_u32 << taken) - 1;
        let all = (0..1_u32 << gpus).filter(|set| set.count_ones() as usize == count);
        let all = all.filter(|set| set & must == must);
        let best = all.clone().map(|set| score(world, gpus, set)).max();
        assert_eq!(Some(score(world, gpus, bits)), best);
        // The first in order: its lowest GPU that another lacks is lower.
        let first = all.filter(|set| Some(score(world, gpus, *set)) == best);
        let first = first.max_by_key(|set| set.reverse_bits());
        assert_eq!(Some(bits), first);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn finds_nearest_of_8(world in world(8), taken in 0..4_usize, count in 2..8_usize) {
            agrees(&world, 8, taken.min(count - 1), count);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn finds_nearest_of_16(world in world(16), taken in 0..4_usize, count in 2..16_usize) {
            agrees(&world, 16, taken.min(count - 1), count);
        }
    }

    #[test]
    fn keeps_order_beyond_bound() {
        assert!(sets(16, 8) <= MOST_SETS && sets(32, 8) > MOST_SETS);
        assert_eq!(sets(64, 63), 64);
        let never = |_: usize, _: usize| -> Nearness { panic!("asked") };
        assert_eq!(nearest(never, 0, 32, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn leaves_out_the_one_that_is_apart() {
        let near = |a: usize, b: usize| match a == 7 || b == 7 {
            true => Nearness::Apart,
            false => Nearness::Linked,
        };
        let chosen = nearest(near, 0, 64, 63);
        assert!(chosen.len() == 63 && !chosen.contains(&7));
    }

    #[test]
    fn asks_nothing_without_choice() {
        let never = |_: usize, _: usize| -> Nearness { panic!("asked") };
        assert_eq!(nearest(never, 0, 8, 1), [0]);
        assert_eq!(nearest(never, 0, 3, 3), [0, 1, 2]);
        assert_eq!(nearest(never, 2, 5, 2), [0, 1]);
    }
}
