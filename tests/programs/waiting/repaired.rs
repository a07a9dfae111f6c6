//! Creates that wait while the ledger, with their tickets, is damaged and repaired.

use super::served_in_order;
use testkit::prelude::*;

/// The generation before has all tickets but the last one.
/// Failure: the ledger is damaged and repaired while creates wait
#[test]
fn repair_keeps_the_queue() {
    let damages: [fn(&Path); 2] = [
        |ledger| fs::remove_file(ledger).unwrap(),
        |ledger| fs::write(ledger, "{").unwrap(),
    ];
    for damage in damages {
        let world = World::small();
        let full = world.full();
        let killed = world.waits_asking("killed", "4g.24gb");
        let first = world.waits_asking("first", "4g.24gb");
        let second = world.waits_asking("second", world.profile);
        // Else one could look at the damaged ledger, and give up.
        [&first, &second].iter().for_each(|waiter| waiter.stop());
        killed.kill();
        damage(&world.state().join("ledger.json"));
        world.repair();
        assert_eq!(world.queue(), ["first"]);
        second.signal(Signal::SIGCONT);
        until("it takes its place again", || {
            world.queue() == ["first", "second"]
        });
        world.delete_all(&full);
        served_in_order(&world, first, second);
    }
}
