//! Closes GPUs and opens them again: they fall sick and recover, fall off the bus and come back, are cordoned and
//! uncordoned. Nothing new is given on one meanwhile.

use crate::soak::churn::{Actor, Soak};
use std::sync::atomic::Ordering;
use testkit::prelude::*;

const GPUS: [&str; 4] = ["0", "1", "2", "3"];

pub struct Closer<'a> {
    soak: &'a Soak,
    random: Random,
    closed: [Option<Closed>; 4],
}

struct Closed {
    how: How,
    /// The reboots before it. A reboot heals a GPU.
    boot: u64,
    /// The leases that were there.
    leases: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Sick,
    OffTheBus,
    Cordoned,
}

impl<'a> Closer<'a> {
    pub fn new(soak: &'a Soak, random: Random) -> Closer<'a> {
        Closer {
            soak,
            random,
            closed: Default::default(),
        }
    }

    /// The driver may be at fault just now, so each step is made until it succeeds.
    fn set(&self, gpu: usize, how: How, closes: bool) {
        let setup = &self.soak.setup;
        let gpu = GPUS[gpu];
        let sim = |verb, more: &[&str]| drop(setup.sim(verb, &[&["--gpu", gpu], more].concat()));
        match (how, closes) {
            (How::Sick, true) => sim("health", &["--remap-pending"]),
            (How::Sick, false) => sim("health", &[]),
            (How::OffTheBus, true) => sim("lose", &[]),
            (How::OffTheBus, false) => sim("restore", &[]),
            (How::Cordoned, _) => {
                let verb = if closes { "cordon" } else { "uncordon" };
                until("the cordon is set", || {
                    setup.migctl(&[verb, gpu]).status.success()
                });
            }
        }
    }

    fn leases_on(&self, gpu: usize) -> BTreeSet<String> {
        let leases = self.soak.setup.leases();
        let here = leases.iter().filter(|l| l["gpuIndex"] == gpu);
        here.map(|l| l["id"].as_str().unwrap().to_owned()).collect()
    }

    fn step(&mut self, gpu: usize) {
        let boot = self.soak.boots.load(Ordering::Relaxed);
        if let Some(closed) = &self.closed[gpu] {
            if closed.how != How::Cordoned && closed.boot != boot {
                self.closed[gpu] = None;
                return;
            }
            let now = self.leases_on(gpu);
            let new: Vec<&String> = now.difference(&closed.leases).collect();
            let how = closed.how;
            assert!(new.is_empty(), "GPU {gpu} is {how:?}, and gave {new:?}");
            if self.random.one_in(2) {
                self.set(gpu, how, false);
                self.closed[gpu] = None;
                let told = format!("{gpu}, was {how:?}");
                self.soak.note("GPU opened", true, &told);
            }
            return;
        }
        if self.random.one_in(3) {
            let how = self.random.of(&[How::Sick, How::OffTheBus, How::Cordoned]);
            self.set(gpu, how, true);
            let leases = self.leases_on(gpu);
            let told = format!("{gpu}: {how:?} with {leases:?}");
            self.soak.note("GPU closed", true, &told);
            self.closed[gpu] = Some(Closed { how, boot, leases });
        }
    }
}

impl Actor for Closer<'_> {
    /// While nobody else acts, so that no create has looked at the GPU before it closes.
    fn act(&mut self) {
        {
            let _alone = self.soak.power.write().unwrap();
            (0..GPUS.len()).for_each(|gpu| self.step(gpu));
        }
        std::thread::sleep(Duration::from_millis(200 + self.random.below(800)));
    }

    fn finish(&mut self) {
        let _alone = self.soak.power.write().unwrap();
        for gpu in 0..GPUS.len() {
            for how in [How::Sick, How::OffTheBus, How::Cordoned] {
                self.set(gpu, how, false);
            }
        }
    }
}
