//! The whole of it: who takes part, what they count, and what is shown when it goes wrong.

use crate::soak::claimer::Claimer;
use crate::soak::closer::Closer;
use crate::soak::filler::Filler;
use crate::soak::scraper::Scraper;
use crate::soak::worker::Worker;
use crate::soak::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use testkit::prelude::*;

const WORKERS: u64 = 3;

pub struct Soak {
    /// The small file system of the ledger, if it has one of its own.
    pub disk: Option<Mounted>,
    pub setup: Setup,
    /// Held to read while anything is done, to write when the machine goes down.
    pub power: RwLock<()>,
    /// The reboots so far.
    pub boots: AtomicU64,
    seed: u64,
    began: Instant,
    over: AtomicBool,
    /// The operations done: how often, and how often with success.
    counts: Mutex<BTreeMap<String, (u64, u64)>>,
    log: Mutex<Vec<String>>,
}

impl Soak {
    /// `disk`: the options of a tmpfs for the ledger.
    pub fn new(low: Low, seed: u64, disk: Option<&str>) -> Soak {
        // The last two have no MIG.
        let gpus = "--gpu A100-80GB --gpu A100-80GB --gpu L4 --gpu L4";
        let setup = Setup::on(low, Machine::of(gpus));
        setup.configure("sharing.enforcement = [\"none\"]\npolicy.gpus_per_container = 2");
        Soak {
            disk: disk.map(|of| Mounted::tmpfs(&setup.path("state"), &format!("mode=0755,{of}"))),
            setup,
            power: RwLock::new(()),
            boots: AtomicU64::new(0),
            seed,
            began: Instant::now(),
            over: AtomicBool::new(false),
            counts: Mutex::default(),
            log: Mutex::default(),
        }
    }

    pub fn note(&self, what: &str, well: bool, detail: &str) {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(what.to_owned()).or_default();
        count.0 += 1;
        count.1 += u64::from(well);
        let at = self.began.elapsed().as_secs_f64();
        let end = if well { "" } else { " FAILED" };
        let line = format!("{at:8.3} {what}{end} {detail}");
        self.log.lock().unwrap().push(line);
    }

    pub fn run(&self, time: Duration) {
        println!("soak: seed {}, {} s", self.seed, time.as_secs());
        let end = self.began + time;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            std::thread::scope(|scope| {
                for n in 0..WORKERS {
                    scope.spawn(move || self.until(end, || Worker::new(self, n, self.random(n))));
                }
                scope.spawn(|| self.until(end, || Scraper::new(self)));
                let closer = self.random(WORKERS + 1);
                scope.spawn(|| self.until(end, || Closer::new(self, closer)));
                let filler = self.random(WORKERS + 2);
                scope.spawn(|| self.until(end, || Filler::new(self, filler)));
                let claimer = self.random(WORKERS + 3);
                scope.spawn(|| self.until(end, || Claimer::new(self, claimer)));
                self.until(end, || World::new(self, self.random(WORKERS)));
            });
            crate::soak::judge::judge(self);
        }));
        for (what, (tried, well)) in self.counts.lock().unwrap().iter() {
            println!("soak: {tried:6} {what}, {well} of them well");
        }
        if let Err(panic) = ended {
            self.tell();
            std::panic::resume_unwind(panic);
        }
        println!("soak: seed {} holds", self.seed);
    }

    fn random(&self, n: u64) -> Random {
        Random::new(self.seed.wrapping_mul(1000) + n)
    }

    /// Repeats until the time is up or another worker has found a fault.
    fn until<A: Actor>(&self, end: Instant, make: impl FnOnce() -> A) {
        let acted = catch_unwind(AssertUnwindSafe(|| {
            let mut actor = make();
            while Instant::now() < end && !self.over.load(Ordering::Relaxed) {
                actor.act();
            }
            actor.finish();
        }));
        if let Err(panic) = acted {
            self.over.store(true, Ordering::Relaxed);
            std::panic::resume_unwind(panic);
        }
    }

    fn tell(&self) {
        let text = |path: &str| std::fs::read_to_string(self.setup.path(path)).unwrap_or_default();
        let log = self.log.lock().unwrap();
        let last = |lines: &[String]| lines[lines.len().saturating_sub(300)..].join("\n");
        let ours = text("state/runmig.log");
        let ours: Vec<String> = ours.lines().map(str::to_owned).collect();
        println!("soak: what was done\n{}", last(&log));
        println!("soak: runmig.log\n{}", last(&ours));
        println!("soak: ledger.json\n{}", text("state/ledger.json"));
        println!("soak: the driver\n{}", self.setup.sim("show", &[]));
        println!("soak: seed {} FAILED", self.seed);
    }
}

/// Returns the device of a lease: its slice, or its GPU.
pub fn device(lease: &Value) -> &str {
    let uuid = lease["migUUID"].as_str().or(lease["gpuUUID"].as_str());
    uuid.unwrap_or_default()
}

pub trait Actor {
    fn act(&mut self);
    fn finish(&mut self) {}
}

/// Kills one of those that a call consists of, somewhere in its course.
pub fn kill_somewhere(going: &Going, random: &mut Random, whom: &str) {
    use testkit::process::{children, descendants};
    let within = 1 << random.of(&[12, 15, 17, 18]);
    std::thread::sleep(Duration::from_micros(random.below(within)));
    let pids = match whom {
        "front" => vec![going.pid()],
        "runtime" => children(going.pid()),
        "both" => [vec![going.pid()], children(going.pid())].concat(),
        _ => descendants(going.pid()),
    };
    for pid in pids {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    }
}
