//! An exact test whether a set of slices fits on a set of GPUs in any order, by the sets that one GPU can
//! hold.

use super::occupancy::Occupancy;
use std::collections::{HashMap, HashSet};

/// How many of each profile, in the order of `Packer::names`.
type Counts = Vec<u32>;

/// A search for a way to pack slices on GPUs.
pub struct Packer {
    names: Vec<String>,
    /// The memory slices of each profile, on the model where it needs the fewest.
    sizes: Vec<u32>,
    /// The kind of each GPU. Equal GPUs are together, and the most common come last.
    bins: Vec<usize>,
    kinds: Vec<Kind>,
    /// Known answers, by the first of the remaining GPUs and the slices that they should hold.
    known: HashMap<(usize, Counts), bool>,
    /// The steps that one question may take.
    steps: u32,
}

struct Kind {
    free: u32,
    /// The sets to which no slice can be added.
    fills: Vec<Counts>,
}

impl Packer {
    /// Creates a packer for these GPUs, whose occupants stay. `steps` bounds the work of each `holds`.
    pub fn new(occupancies: &[Occupancy<'_>], steps: u32) -> Self {
        let (mut names, mut sizes): (Vec<String>, Vec<u32>) = Default::default();
        for p in occupancies.iter().flat_map(|r| &r.gpu.profiles) {
            match names.iter().position(|n| *n == p.name) {
                Some(at) => sizes[at] = sizes[at].min(p.memory_slices()),
                None => {
                    names.push(p.name.clone());
                    sizes.push(p.memory_slices());
                }
            }
        }
        let mut alike: Vec<(&Occupancy<'_>, usize)> = Vec::new();
        for occupancy in occupancies {
            match alike
                .iter_mut()
                .find(|(other, _)| occupancy.is_like(other, |a, b| a == b))
            {
                Some((_, count)) => *count += 1,
                None => alike.push((occupancy, 1)),
            }
        }
        alike.sort_by_key(|(_, count)| *count);
        let bins = alike.iter().enumerate();
        Packer {
            bins: bins.flat_map(|(k, (_, n))| vec![k; *n]).collect(),
            kinds: alike
                .iter()
                .map(|(occupancy, _)| Kind {
                    free: occupancy.free_slices(),
                    fills: fills(occupancy, &names),
                })
                .collect(),
            names,
            sizes,
            known: HashMap::new(),
            steps,
        }
    }

    /// Says whether slices of these profiles fit on the GPUs together. Returns none if the answer takes
    /// more steps than allowed.
    pub fn holds<'n>(&mut self, profiles: impl Iterator<Item = &'n str>) -> Option<bool> {
        let mut counts = vec![0; self.names.len()];
        for profile in profiles {
            let Some(at) = self.names.iter().position(|n| n == profile) else {
                return Some(false);
            };
            counts[at] += 1;
        }
        let mut left = self.steps;
        self.from(0, counts, &mut left)
    }

    fn from(&mut self, bin: usize, counts: Counts, left: &mut u32) -> Option<bool> {
        if counts.iter().all(|n| *n == 0) {
            return Some(true);
        }
        let free = |kind: &usize| u64::from(self.kinds[*kind].free);
        let occupancy: u64 = self.bins[bin..].iter().map(free).sum();
        let need = |counts: &Counts| -> u64 {
            counts
                .iter()
                .zip(&self.sizes)
                .map(|(n, size)| u64::from(*n) * u64::from(*size))
                .sum()
        };
        if need(&counts) > occupancy {
            return Some(false);
        }
        let key = (bin, counts);
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        *left = left.checked_sub(1)?;
        let counts = &key.1;
        let kind = self.bins[bin];
        // If the remaining GPUs are equal, the largest slice goes on the first.
        let largest = self.bins[bin..].iter().all(|k| *k == kind).then(|| {
            let left = (0..counts.len()).filter(|p| counts[*p] > 0);
            left.max_by_key(|p| self.sizes[*p])
        });
        let mut tries: Vec<Counts> = self.kinds[kind]
            .fills
            .iter()
            .map(|fill| fill.iter().zip(counts).map(|(f, c)| *f.min(c)).collect())
            .filter(|fill: &Counts| largest.flatten().is_none_or(|p| fill[p] > 0))
            .collect();
        tries.sort_by_key(|fill| (std::cmp::Reverse(need(fill)), fill.clone()));
        tries.dedup();
        let mut found = false;
        for (i, fill) in tries.iter().enumerate() {
            if tries[..i].iter().any(|more| is_within(fill, more)) {
                continue;
            }
            let rest = counts.iter().zip(fill).map(|(c, f)| c - f).collect();
            if bin + 1 < self.bins.len() {
                found = self.from(bin + 1, rest, left)?;
            } else {
                found = rest.iter().all(|n| *n == 0);
            }
            if found {
                break;
            }
        }
        self.known.insert(key, found);
        Some(found)
    }
}

fn is_within(a: &Counts, b: &Counts) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b)
}

fn fills(occupancy: &Occupancy<'_>, names: &[String]) -> Vec<Counts> {
    let of = |name: &str| names.iter().position(|n| n == name).expect("all are named");
    let mut seen = HashSet::new();
    let mut full = HashSet::new();
    let mut open = vec![(occupancy.clone(), vec![0; names.len()])];
    while let Some((occupancy, counts)) = open.pop() {
        let mut more = false;
        for profile in &occupancy.gpu.profiles {
            for at in occupancy.places(profile) {
                more = true;
                let mut next = counts.clone();
                next[of(&profile.name)] += 1;
                let with = occupancy.with(profile, at);
                if seen.insert((with.free(), next.clone())) {
                    open.push((with, next));
                }
            }
        }
        if !more {
            full.insert(counts);
        }
    }
    let mut most: Vec<Counts> = full
        .iter()
        .filter(|a| !full.iter().any(|b| b != *a && is_within(a, b)))
        .cloned()
        .collect();
    most.sort();
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::tests::machine;

    #[test]
    fn counts_more_than_255_slices() {
        let machine = machine(40);
        let occupancies: Vec<Occupancy<'_>> = { machine.gpus.iter() }
            .map(|gpu| Occupancy::new(gpu, &[], &[]))
            .collect();
        let holds = |occupancies: &[Occupancy<'_>], count| {
            Packer::new(occupancies, 10_000).holds(std::iter::repeat_n("1g.10gb", count))
        };
        assert_eq!(holds(&occupancies, 280), Some(true));
        assert_eq!(holds(&occupancies, 281), Some(false));
        // A count of 256 wrapped to 0 once.
        assert_eq!(holds(&occupancies[..1], 256), Some(false));
    }
}
