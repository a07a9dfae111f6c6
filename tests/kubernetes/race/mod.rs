//! podman, docker, pods with an annotation and pods with a claim race for the slices of one GPU.
//!
//! A load by seed keeps the GPU full, while a watch compares processes, ledger and driver. Each round of it ends with a
//! calm, in which no claim may wait for a free place. `RUNMIG_RACE_SECONDS` and `RUNMIG_RACE_SEED` say how long and
//! which; `scripts/soak --race` sets them. A seed gives the same calls in each thread, not the same order between them.

mod calm;
mod docker;
mod local;
mod moments;
mod podman;
mod pods;
mod watch;

use crate::node::Node;
use docker::Docker;
use local::Local;
use podman::Podman;
use pods::Pods;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use testkit::random::Random;

/// The time between two calms.
const ROUND: Duration = Duration::from_secs(60);
/// Profiles with the starts of their places and their size, as an A100 has them. Small ones are the most frequent.
pub const PROFILES: [(&str, &[u64], u64); 4] = [
    ("1g.10gb", &[0, 1, 2, 3, 4, 5, 6], 1),
    ("1g.10gb", &[0, 1, 2, 3, 4, 5, 6], 1),
    ("2g.20gb", &[0, 2, 4], 2),
    ("3g.40gb", &[0, 4], 4),
];
/// The variable by which each container of the race tells its name.
pub const RACER: &str = "RUNMIG_RACER";

/// State that all threads share.
pub struct Race<'a> {
    pub node: &'a Node,
    /// How often what happened.
    counts: Mutex<BTreeMap<String, u64>>,
    over: AtomicBool,
}

impl Race<'_> {
    pub fn count(&self, what: impl Into<String>) {
        *self.counts.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Ends the race for all when a thread fails.
struct Fails<'a>(&'a AtomicBool);

impl Drop for Fails<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

pub fn on_a_full_gpu(node: &Node) {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect(name));
    // Long enough for one engine; the other one has its moments.
    let seconds = match node.engine {
        "containerd" => 60,
        _ => 0,
    };
    let time = Duration::from_secs(number("RUNMIG_RACE_SECONDS").unwrap_or(seconds));
    let seed = number("RUNMIG_RACE_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::from(now.unwrap().subsec_nanos())
    });
    eprintln!("race: seed {seed}, {} s", time.as_secs());
    let random = |n: u64| Random::new(seed.wrapping_mul(1000) + n);
    let race = Race {
        node,
        counts: Mutex::default(),
        over: AtomicBool::new(false),
    };
    let (podman, docker) = (Podman::new(node), Docker::start(node));
    let mut locals = vec![Local::new(&race, &podman, random(0))];
    if let Some(docker) = &docker {
        locals.push(Local::new(&race, docker, random(1)));
    }
    let mut pods = Pods::new(&race, random(2));
    std::thread::scope(|scope| {
        let _fails = Fails(&race.over);
        scope.spawn(|| {
            let _fails = Fails(&race.over);
            watch::watch(&race);
        });
        moments::promise_moves(&race, &podman, &mut pods);
        moments::promise_waits(&race, &podman, &mut pods);
        let end = Instant::now() + time;
        while Instant::now() < end && !race.is_over() {
            round(
                &race,
                &mut locals,
                &mut pods,
                end.min(Instant::now() + ROUND),
            );
            calm::no_claim_waits_for_a_free_place(&race, &pods);
        }
        for local in &mut locals {
            local.end();
        }
        calm::each_claim_gets_its_slice(&race, &pods);
        race.over.store(true, Ordering::Relaxed);
    });
    calm::count_events(&race);
    pods.end();
    drop(locals);
    for (what, times) in &*race.counts.lock().unwrap() {
        eprintln!("race: {times:6} {what}");
    }
    if time.is_zero() {
        return;
    }
    let count = |what: &str| race.counts.lock().unwrap().get(what).copied();
    for started in ["podman started", "annotation started", "claim started"] {
        assert!(count(started) > Some(0), "{started}: none");
    }
}

/// All of them act until the time is up.
fn round(race: &Race, locals: &mut [Local], pods: &mut Pods, end: Instant) {
    std::thread::scope(|scope| {
        for local in locals {
            scope.spawn(move || {
                let _fails = Fails(&race.over);
                while Instant::now() < end && !race.is_over() {
                    local.act();
                }
            });
        }
        while Instant::now() < end && !race.is_over() {
            pods.act();
        }
    });
}
