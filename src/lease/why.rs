//! Why a create found no room, for who reads its error.

use super::Leases;
use super::acquire::{Applicant, reserved};
use super::reuse::place_of;
use super::rules::Ruled;
use crate::error::Result;
use crate::gpu::Driver;
use crate::placement::{self, NoRoom, Wanted};
use crate::store::{Lease, State};

impl Leases<'_> {
    /// The answer with what a search adds: what would have to lie elsewhere. Of a new look at the
    /// machine, without a lock, since nothing is decided by it; where that fails, or finds room
    /// after all, the answer is as it was.
    pub(super) fn explained(
        &self,
        driver: &impl Driver,
        who: &Applicant<'_>,
        no: NoRoom,
    ) -> NoRoom {
        self.search(driver, who).ok().flatten().unwrap_or(no)
    }

    fn search(&self, driver: &impl Driver, who: &Applicant<'_>) -> Result<Option<NoRoom>> {
        let snapshot = driver.snapshot()?;
        let (leases, damaged) = self.store.list()?;
        let of = |which: fn(&Lease) -> bool| {
            let those = leases.iter().filter(|l| which(l));
            those.map(|l| place_of(&l.slice)).collect::<Vec<_>>()
        };
        let idle = of(|l| l.idle_since.is_some());
        let mut stuck = of(|l| l.state == State::Releasing && l.idle_since.is_none() || l.adopted);
        let claims = self.claims(&snapshot, &leases, damaged);
        let mut reserved: Vec<_> = claims.iter().map(reserved).collect();
        let readable: Vec<_> = leases.iter().map(|l| place_of(&l.slice)).collect();
        stuck.extend(reserved.iter().filter(|r| !readable.contains(r)).cloned());
        reserved.retain(|r| !idle.contains(r));
        let ruled = Ruled::new(&self.config.policy, &snapshot, who)?;
        let wanted = Wanted {
            idle: &idle,
            stuck: &stuck,
            ..ruled.wanted()
        };
        let mut noes = Vec::new();
        for asked in &ruled.alternatives {
            let one = Wanted {
                alternatives: std::slice::from_ref(&asked.slice),
                ..wanted
            };
            let Err(none) = placement::choose_several(&snapshot, &reserved, asked, &one) else {
                return Ok(None);
            };
            let (taken, _) = *none;
            let no = placement::no_room(&snapshot, &taken.reserved, &taken.wanted(&one));
            noes.extend(no.map(|no| placement::of_several(no, asked, taken.beside.len())));
        }
        Ok((!noes.is_empty()).then(|| placement::none_of(noes)))
    }
}
