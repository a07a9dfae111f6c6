//! Chooses GPUs that are near each other: a pure function of how near each two are.

use crate::model::Nearness;

/// The most sets that are all tried. Beyond, as of more than 16 GPUs, the set grows from each GPU by the nearest ones.
const MOST_SETS: usize = 20_000;

/// How near the GPUs of a set are: more pairs with NVLink are better, then more on one NUMA node.
type Score = (usize, usize);

/// Chooses `count` of `all` GPUs, which stand in their order of preference. The first `taken` ones are chosen anyway. Of
/// equal sets the first in that order wins. Nothing is asked where there is no choice.
pub(super) fn nearest(
    near: impl Fn(usize, usize) -> Nearness,
    taken: usize,
    all: usize,
    count: usize,
) -> Vec<usize> {
    if count < 2 || count >= all || taken >= count {
        return (0..count.min(all)).collect();
    }
    let told: Vec<Vec<Nearness>> = { 0..all }
        .map(|a| (0..a).map(|b| near(a, b)).collect())
        .collect();
    let pairs = Pairs(&told);
    let start: Vec<usize> = (0..taken).collect();
    let mut best: Option<(Score, Vec<usize>)> = None;
    let mut offer = |set: &[usize]| {
        let score = pairs.score(set);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, set.to_vec()));
        }
    };
    if sets(all - taken, count - taken) <= MOST_SETS {
        each_set(&mut start.clone(), taken..all, count, &mut offer);
    } else {
        for first in taken..all {
            offer(&pairs.grown(&start, first, count));
        }
    }
    best.map_or_else(|| (0..count).collect(), |(_, set)| set)
}

/// How near each two GPUs are, at the larger number and then at the smaller one.
struct Pairs<'a>(&'a [Vec<Nearness>]);

impl Pairs<'_> {
    fn of(&self, a: usize, b: usize) -> Score {
        let near = self.0[a.max(b)][a.min(b)];
        let is = |least| usize::from(near >= least);
        (is(Nearness::Linked), is(Nearness::SameNode))
    }

    /// Returns the score that a GPU adds to a set.
    fn gain(&self, set: &[usize], gpu: usize) -> Score {
        let pairs = set.iter().map(|other| self.of(gpu, *other));
        pairs.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn score(&self, set: &[usize]) -> Score {
        let gains = (0..set.len()).map(|n| self.gain(&set[..n], set[n]));
        gains.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn grown(&self, start: &[usize], first: usize, count: usize) -> Vec<usize> {
        let mut set = [start, &[first]].concat();
        while set.len() < count {
            let left = (start.len()..self.0.len())
                .rev()
                .filter(|gpu| !set.contains(gpu));
            // Of equal ones the last is taken, so they come in reverse.
            let next = left.max_by_key(|gpu| self.gain(&set, *gpu));
            set.extend(next);
        }
        set.sort_unstable();
        set
    }
}

/// Returns the number of sets of `k` out of `n`, or more than [`MOST_SETS`].
fn sets(n: usize, k: usize) -> usize {
    (0..k).fold(1_usize, |sets, i| match sets > MOST_SETS {
        true => sets,
        false => sets * (n - i) / (i + 1),
    })
}

/// Visits every set that extends one by these GPUs to `count`, in order.
fn each_set(
    set: &mut Vec<usize>,
    mut left: std::ops::Range<usize>,
    count: usize,
    visit: &mut impl FnMut(&[usize]),
) {
    if set.len() == count {
        return visit(set);
    }
    while let Some(gpu) = left.next() {
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

    /// 32 GPUs on four nodes, where not every set is tried.
    #[test]
    fn grows_set_beyond_bound() {
        assert!(sets(16, 8) <= MOST_SETS && sets(32, 8) > MOST_SETS);
        let node = |gpu: usize| gpu % 4;
        let near = |a: usize, b: usize| match node(a) == node(b) {
            true => Nearness::SameNode,
            false => Nearness::Apart,
        };
        let chosen = nearest(near, 0, 32, 8);
        assert_eq!(chosen, [0, 4, 8, 12, 16, 20, 24, 28]);
    }

    #[test]
    fn asks_nothing_without_choice() {
        let never = |_: usize, _: usize| -> Nearness { panic!("asked") };
        assert_eq!(nearest(never, 0, 8, 1), [0]);
        assert_eq!(nearest(never, 0, 3, 3), [0, 1, 2]);
        assert_eq!(nearest(never, 2, 5, 2), [0, 1]);
    }
}
