//! Fills the file system of the ledger, which is small, and makes room again.

use crate::soak::churn::{Actor, Soak};
use testkit::prelude::*;

pub struct Filler<'a> {
    soak: &'a Soak,
    random: Random,
    /// Nobody fills a disk where the ledger lies beside everything else.
    disk: Option<&'a Mounted>,
}

impl<'a> Filler<'a> {
    pub fn new(soak: &'a Soak, random: Random) -> Filler<'a> {
        let disk = soak.disk.as_ref();
        Filler { soak, random, disk }
    }
}

impl Actor for Filler<'_> {
    fn act(&mut self) {
        let time = 200 + self.random.below(800);
        if let Some(disk) = self.disk {
            let free = self.random.below(12) as usize;
            let filler = disk.fill(free);
            let told = format!("{free} pages free");
            self.soak.note("disk full", true, &told);
            std::thread::sleep(Duration::from_millis(time / 2));
            fs::remove_file(filler).unwrap();
        }
        std::thread::sleep(Duration::from_millis(time));
    }
}
