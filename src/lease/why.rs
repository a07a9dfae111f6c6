//! Why a create found no room, for who reads its error.

use super::Leases;
use super::acquire::Applicant;
use super::choose::No;
use super::outlook::{Outlook, no_room};
use super::queue::Place;
use super::rules::whose;
use super::world::World;
use crate::error::Result;
use crate::gpu::Inventory;
use crate::placement::{MAX_STEPS, Rejection};

impl Leases<'_> {
    /// The answer with what a search adds: what would have to lie elsewhere. Of a new look at the
    /// machine, without a lock, since nothing is decided by it; where that fails, or finds room
    /// after all, the answer is as it was.
    pub(super) fn explained(
        &self,
        driver: &impl Inventory,
        who: &Applicant<'_>,
        place: &Place,
        no: Rejection,
    ) -> Rejection {
        self.search(driver, who, place).ok().flatten().unwrap_or(no)
    }

    fn search(
        &self,
        driver: &impl Inventory,
        who: &Applicant<'_>,
        place: &Place,
    ) -> Result<Option<Rejection>> {
        let ahead = place.ahead(self)?;
        let world = World::of(self, driver)?;
        let whose = whose(who.holder);
        let outlook = Outlook::new((self.config, driver), &world, who.asked, whose, &ahead)?;
        let answers = outlook.alternatives().iter();
        // Others may wait for this process to end.
        let answers = answers.map(|asked| outlook.answer(asked, MAX_STEPS / 10));
        match no_room(answers.collect()) {
            Some(No::Limit(over)) => Err(over),
            Some(No::Room(no)) => Ok(Some(no)),
            None => Ok(None),
        }
    }
}
