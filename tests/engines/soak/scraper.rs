//! A Prometheus that scrapes five times a second, in every second phase. So the destroy retries beside scrapes and those
//! without stand side by side.

use crate::soak::churn::{Actor, Soak};
use runmig_lease::counters::{Counter, ResourceKind};
use runmig_lease::store::Store;
use testkit::prelude::*;

const GAP: Duration = Duration::from_millis(200);
const PHASE: Duration = Duration::from_secs(5);

pub struct Scraper<'a> {
    soak: &'a Soak,
    scrapes: bool,
    begun: Instant,
    /// The retries of this boot at the begin of the phase.
    before: u64,
    /// The retries and the time, without scrapes and beside them.
    sums: [(u64, Duration); 2],
}

impl<'a> Scraper<'a> {
    pub fn new(soak: &'a Soak) -> Scraper<'a> {
        Scraper {
            soak,
            scrapes: true,
            begun: Instant::now(),
            before: retries(soak),
            sums: Default::default(),
        }
    }

    fn end_phase(&mut self) {
        let retries = retries(self.soak);
        let (sum, time) = &mut self.sums[usize::from(self.scrapes)];
        // The counters of a new boot begin anew.
        *sum += retries.checked_sub(self.before).unwrap_or(retries);
        *time += self.begun.elapsed();
        (self.before, self.begun) = (retries, Instant::now());
        self.scrapes = !self.scrapes;
    }
}

impl Actor for Scraper<'_> {
    fn act(&mut self) {
        if self.begun.elapsed() >= PHASE {
            self.end_phase();
        }
        if self.scrapes {
            let _on = self.soak.power.read().unwrap();
            let setup = &self.soak.setup;
            let mut scrape = setup.plain(&setup.program("migctl"));
            let said = going(scrape.arg("metrics").stdin(Stdio::null())).end();
            self.soak.note("scrape", said.status.success(), "");
        }
        std::thread::sleep(GAP);
    }

    fn finish(&mut self) {
        self.end_phase();
        let shown = |(n, time): (u64, Duration)| format!("{n} in {:.0} s", time.as_secs_f64());
        let [without, beside] = self.sums.map(shown);
        println!("soak: destroy retries: {beside} beside 5 scrapes a second, {without} without");
    }
}

fn retries(soak: &Soak) -> u64 {
    let boot = runmig_lease::process::boot_id(&soak.setup.machine.dir()).unwrap();
    let store = Store::existing(&soak.setup.path("state"), Duration::from_secs(10)).unwrap();
    let listing = store.map(|store| store.at_boot(&boot).list().unwrap());
    let listing = listing.unwrap_or_default();
    let all = ResourceKind::ALL.iter();
    let count = |kind: &ResourceKind| listing.counters.get(Counter::DestroyRetries(*kind));
    all.map(count).sum()
}
