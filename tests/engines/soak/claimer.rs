//! A Kubernetes that prepares claims and takes them back: runmig-dra's calls of the ledger, killed in between.

use crate::soak::churn::{Actor, Soak, kill_somewhere};
use testkit::prelude::*;

const MOST: usize = 3;

pub struct Claimer<'a> {
    soak: &'a Soak,
    random: Random,
    gpus: Vec<String>,
    /// Prepared, or half prepared.
    claims: Vec<String>,
    last: u64,
}

impl<'a> Claimer<'a> {
    pub fn new(soak: &'a Soak, random: Random) -> Claimer<'a> {
        Claimer {
            gpus: (0..2).map(|gpu| soak.setup.machine.gpu_uuid(gpu)).collect(),
            soak,
            random,
            claims: Vec::new(),
            last: 0,
        }
    }

    fn call(&mut self, verb: &str, arguments: &[&str]) -> bool {
        let mut stub = self.soak.setup.plain(&testkit::program("stub-claims"));
        let going = going(stub.arg(verb).args(arguments).stdin(Stdio::null()));
        let killed = self.random.one_in(4);
        if killed {
            kill_somewhere(&going, &mut self.random, "front");
        }
        let said = going.end();
        let well = said.status.success();
        let what = format!("{verb}{}", if killed { ", killed" } else { "" });
        let told = format!("{} {}", arguments.join(" "), said.stderr.trim());
        self.soak.note(&what, well, &told);
        well
    }

    fn prepare(&mut self) {
        self.last += 1;
        let uid = format!("claim-{}", self.last);
        let gpu = self.gpus[self.random.below(2) as usize].clone();
        let start = self.random.below(7).to_string();
        let verb = self.random.of(&["promise", "prepare-at-once"]);
        self.call(verb, &[&uid, &gpu, "1g.10gb", &start, "1"]);
        self.claims.push(uid);
    }

    fn unprepare(&mut self, at: usize) -> bool {
        let uid = self.claims[at].clone();
        let well = self.call("unprepare", &[&uid]);
        if well {
            self.claims.remove(at);
        }
        well
    }
}

impl Actor for Claimer<'_> {
    fn act(&mut self) {
        {
            let soak = self.soak;
            let _on = soak.power.read().unwrap();
            let at = self.random.below(MOST as u64) as usize;
            match at < self.claims.len() {
                true => drop(self.unprepare(at)),
                false => self.prepare(),
            }
        }
        std::thread::sleep(Duration::from_millis(self.random.below(200)));
    }

    fn finish(&mut self) {
        while !self.claims.is_empty() {
            until("the claim is taken back", || {
                let soak = self.soak;
                let _on = soak.power.read().unwrap();
                self.unprepare(0)
            });
        }
    }
}
