//! Every policy on every mix and load, with every seed; means and their errors.

use super::policy::{ALL, Policy};
use super::workloads::Fleet;
use super::world::{Count, Run, packer};
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Settings {
    pub seeds: u64,
    /// In each run; the first tenth of them is not counted.
    pub arrivals: usize,
    pub threads: usize,
}

/// Per cent, but for the GPUs; means over mixes and loads, each of which weighs the same.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Figures {
    pub accepted: f64,
    pub memory: f64,
    /// Rejected although a repack would fit.
    pub would_fit: f64,
    pub gpus: f64,
}

impl Figures {
    fn of(count: &Count) -> Figures {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
        Figures {
            accepted: share(count.accepted, count.asked),
            memory: share(count.memory_accepted, count.memory_asked),
            would_fit: share(count.would_fit, count.asked),
            gpus: count.gpus_used as f64 / count.asked as f64,
        }
    }

    fn map2(self, other: Figures, f: impl Fn(f64, f64) -> f64) -> Figures {
        Figures {
            accepted: f(self.accepted, other.accepted),
            memory: f(self.memory, other.memory),
            would_fit: f(self.would_fit, other.would_fit),
            gpus: f(self.gpus, other.gpus),
        }
    }
}

fn mean(all: impl Iterator<Item = Figures>) -> Figures {
    let (mut sum, mut n) = (Figures::default(), 0.0);
    for figures in all {
        sum = sum.map2(figures, |a, b| a + b);
        n += 1.0;
    }
    sum.map2(sum, |a, _| a / n)
}

/// The results of one policy: by seed, by mix, by load.
pub struct Result {
    pub policy: Policy,
    seeds: Vec<Vec<Vec<Figures>>>,
}

impl Result {
    pub fn whole(&self) -> Figures {
        mean(self.by_seed().into_iter())
    }

    fn by_seed(&self) -> Vec<Figures> {
        let of = |seed: &Vec<Vec<Figures>>| mean(seed.iter().flatten().copied());
        self.seeds.iter().map(of).collect()
    }

    pub fn cell(&self, mix: usize, load: usize) -> Figures {
        mean(self.seeds.iter().map(|seed| seed[mix][load]))
    }

    pub fn mix(&self, mix: usize) -> Figures {
        mean(self.seeds.iter().flat_map(|seed| seed[mix].iter().copied()))
    }
}

pub fn measure(fleet: &Fleet, loads: &[f64], settings: &Settings) -> Vec<Result> {
    let next = AtomicU64::new(0);
    let one_seed = |seed: u64| -> Vec<Vec<Vec<Figures>>> {
        let mut done = vec![Vec::new(); ALL.len()];
        for (mix, number) in fleet.mixes.iter().zip(0..) {
            let kinds = fleet.kinds(mix);
            let mut packer = packer(fleet, &kinds);
            for (policy, done) in ALL.into_iter().zip(&mut done) {
                let mut of = |load: &f64| {
                    let run = Run {
                        fleet,
                        kinds: &kinds,
                        load: *load,
                        seed: seed * 1_000_003 + number,
                        arrivals: settings.arrivals,
                    };
                    Figures::of(&run.count(policy, &mut packer))
                };
                done.push(loads.iter().map(&mut of).collect());
            }
        }
        done
    };
    let mut done: Vec<(u64, Vec<Vec<Vec<Figures>>>)> = Vec::new();
    std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= settings.seeds {
                    return mine;
                }
                mine.push((seed, one_seed(seed)));
            }
        };
        let threads: Vec<_> = (0..settings.threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            done.extend(thread.join().expect("no panic"));
        }
    });
    done.sort_by_key(|(seed, _)| *seed);
    let of = |(n, policy): (usize, Policy)| Result {
        policy,
        seeds: done.iter().map(|(_, all)| all[n].clone()).collect(),
    };
    ALL.into_iter().enumerate().map(of).collect()
}

/// In Markdown. Errors are of the difference to ours with the same requests, 95 %.
pub fn table(results: &[Result]) -> String {
    let ours = results.iter().find(|r| r.policy == Policy::Ours);
    let ours = ours.expect("it is one of all").by_seed();
    let mut out = String::from(
        "| policy | accepted | memory | runmig's lead | rejected, though a repack would fit | \
         GPUs in use |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for result in results {
        let whole = result.whole();
        let mine = result.by_seed();
        let lead = |f: fn(&Figures) -> f64| {
            let all: Vec<f64> = ours.iter().zip(&mine).map(|(a, b)| f(a) - f(b)).collect();
            let n = all.len() as f64;
            let mean = all.iter().sum::<f64>() / n;
            let spread = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
            (mean, 1.96 * (spread / n).sqrt())
        };
        let (count, memory) = (lead(|f| f.accepted), lead(|f| f.memory));
        let lead = match result.policy {
            Policy::Ours | Policy::Repack => "–".to_owned(),
            _ => format!(
                "{:+.2} ± {:.2}, {:+.2} ± {:.2}",
                count.0, count.1, memory.0, memory.1
            ),
        };
        let (would_fit, gpus) = match result.policy {
            Policy::Repack => ("0".to_owned(), "–".to_owned()),
            _ => (
                format!("{:.2} %", whole.would_fit),
                format!("{:.2}", whole.gpus),
            ),
        };
        out.push_str(&format!(
            "| {} | {:.2} % | {:.2} % | {lead} | {would_fit} | {gpus} |\n",
            result.policy.name(),
            whole.accepted,
            whole.memory,
        ));
    }
    out
}

/// The same mix by mix, in Markdown.
pub fn by_mix(fleet: &Fleet, results: &[Result]) -> String {
    let names: Vec<&str> = fleet.mixes.iter().map(|m| m.name.as_str()).collect();
    let mut out = format!(
        "| accepted / of the memory, % | {} |\n| --- |{}\n",
        names.join(" | "),
        " ---: |".repeat(names.len())
    );
    for result in results {
        let cells: Vec<String> = (0..names.len())
            .map(|mix| {
                let of = result.mix(mix);
                format!("{:.2} / {:.2}", of.accepted, of.memory)
            })
            .collect();
        out.push_str(&format!(
            "| {} | {} |\n",
            result.policy.name(),
            cells.join(" | ")
        ));
    }
    out
}
