//! The last seat of a slice ends while another create joins it: one of the two is stopped at each of its steps in the
//! ledger, and the other runs as far as it can.

use testkit::faults::operations::{ID, PEER, named};
use testkit::faults::steps::{Step, steps, waits};
use testkit::faults::strace::Call;
use testkit::prelude::*;

/// Stops an operation at each of its steps, and has another command meet it. The container `stays` then has its seat,
/// and nothing else is left.
fn meet(operation: &str, stays: &str, other: fn(&World) -> Command) {
    if !strace::is_there() {
        return;
    }
    let operation = named(operation);
    let world = operation.world();
    let log = world.path("strace.log");
    let seat = [
        ("runmig.dev/slice", world.profile),
        ("runmig.dev/share", "1/2"),
    ];
    let steps = steps(&world, &operation.begin(&world), &log);
    for id in [ID, PEER] {
        let _ = said(&mut world.runmig(&["delete", "--force", id]));
    }
    assert!(steps.len() > 5);
    let mut ends = Ends::default();
    for step in &steps {
        world.behave("");
        let call = operation.begin(&world);
        world.bundle_saying(stays, &seat);
        let before = world.the_instance().generation;
        let stopped = step.stops(&call, &log);
        let mut meets: Going = going(other(&world).stdin(Stdio::null()));
        until("it has ended or waits", || {
            meets.ended().is_some() || waits(meets.pid())
        });
        strace::go_on(&stopped);
        stopped.end().ok();
        meets.end().ok();
        let at = format!("{}: {}", operation.name, step.point.shown);
        ends.well(&world, stays, before, &at);
        end(&world, stays, &at);
    }
    ends.both();
}

/// How often a create joined the slice, and how often it made one of its own.
#[derive(Default)]
struct Ends {
    joined: usize,
    made: usize,
}

impl Ends {
    /// The container has the only lease, a seat.
    #[track_caller]
    fn well(&mut self, world: &World, id: &str, before: u64, at: &str) {
        let is_well =
            { world.has_its_slices(id) }.and_then(|()| world.nothing_lost_nothing_given_twice());
        is_well.unwrap_or_else(|what| panic!("{at}: {what}"));
        let leases = world.leases();
        assert_eq!(leases.len(), 1, "{at}: {leases:?}");
        assert_eq!(leases[0]["kind"], "seat", "{at}");
        assert_eq!(leases[0]["state"], "ready", "{at}");
        match world.the_instance().generation == before {
            true => self.joined += 1,
            false => self.made += 1,
        }
    }

    fn both(&self) {
        let Ends { joined, made } = self;
        assert!(*joined > 0 && *made > 0, "{joined} joined, {made} did not");
    }
}

#[track_caller]
fn end(world: &World, id: &str, at: &str) {
    world.behave("");
    world.delete(id);
    world.gc().ok();
    { world.as_if_nothing_had_been() }.unwrap_or_else(|what| panic!("{at}: {what}"));
}

fn create_peer(world: &World) -> Command {
    world.create_command(PEER)
}

fn delete_peer(world: &World) -> Command {
    world.runmig(&["delete", "--force", PEER])
}

testkit::tests! {
    /// Failure: the last seat of a slice ends while a create joins the slice
    create_meets_last_release: meet("release-seat", PEER, create_peer);
    create_meets_last_release_at_mps: meet("release-mps-seat", PEER, create_peer);
    last_release_meets_create: meet("create-seat-beside", ID, delete_peer);
    last_release_meets_create_at_mps: meet("create-mps-seat-beside", ID, delete_peer);
}

/// The create has seen the last seat and is about to join its slice, while the release of that seat stands still at each
/// of its steps. A release that has begun takes the slice along, so the create makes another one.
fn meet_halfway(operation: &str) {
    if !strace::is_there() {
        return;
    }
    let operation = named(operation);
    let world = operation.world();
    let log = world.path("strace.log");
    let begin = || {
        world.behave("");
        let create = operation.begin(&world);
        world.vanish(PEER);
        create
    };
    let release = || -> Call { world.migctl(&["release", PEER]).into() };
    let creates = steps(&world, &begin(), &log);
    let releases = steps(&world, &release(), &log);
    end(&world, ID, "no step");
    let is_record =
        |step: &Step| step.file.is_none() && step.point.shown.contains("/ledger.json\"");
    let record = creates.iter().position(is_record);
    let record = record.expect("a lease on record");
    let mut locks = creates[..record].iter().filter(|step| step.file.is_some());
    let before = locks.next_back().expect("the ledger's lock");
    let mut ends = Ends::default();
    for step in &releases {
        let create = begin();
        let slice = world.the_instance().generation;
        let other_log = world.path("strace-of-release.log");
        let mut create = before.stops(&create, &log);
        let release = step.stops(&release(), &other_log);
        strace::go_on(&create);
        until("it has ended or waits", || {
            create.ended().is_some() || waits(create.pid())
        });
        strace::go_on(&release);
        release.end().ok();
        create.end().ok();
        let at = format!("{}: {}", operation.name, step.point.shown);
        ends.well(&world, ID, slice, &at);
        end(&world, ID, &at);
    }
    ends.both();
}

testkit::tests! {
    create_meets_begun_release: meet_halfway("create-seat-beside");
    create_meets_begun_release_at_mps: meet_halfway("create-mps-seat-beside");
}
