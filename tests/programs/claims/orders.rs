//! Two processes want one place: one of them stands still at each of its steps in the ledger, and the other runs as far
//! as it can. One of them gets the place.

use super::containers::{containers, hook, hook_call, init};
use super::*;
use std::cell::RefCell;
use testkit::faults::operations::{ID, PEER};
use testkit::faults::steps::{steps, waits};
use testkit::faults::strace::Call;

/// The slice that takes the whole GPU.
const WHOLE: (&str, u32) = ("4g.24gb", 4);

type Begins = fn(&World) -> Call;
/// Judges the end of both commands. Returns whether the first one got the place.
type Judge = fn(&World, &Said, &Said) -> bool;

/// Has two commands meet at every step of the first, which stands still there. The first one gets the place as often as
/// this says.
#[track_caller]
fn meets(before: fn(&World), (first, second): (Begins, Begins), judge: Judge, firsts: &[bool]) {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let log = world.path("strace.log");
    before(&world);
    let steps = steps(&world, &first(&world), &log);
    end(&world, "no step");
    assert!(steps.len() > 3, "{}", steps.len());
    let mut got = BTreeSet::new();
    for step in &steps {
        before(&world);
        let stopped = step.stops(&first(&world), &log);
        let mut meets = second(&world).going();
        until("it has ended or waits", || {
            meets.ended().is_some() || waits(meets.pid())
        });
        strace::go_on(&stopped);
        let (first, second) = (stopped.end(), meets.end());
        let at = format!("{}\n{first:?}\n{second:?}", step.point.shown);
        { world.nothing_lost_nothing_given_twice() }.unwrap_or_else(|e| panic!("{at}: {e}"));
        got.insert(judge(&world, &first, &second));
        end(&world, &at);
    }
    assert_eq!(got, firsts.iter().copied().collect());
}

/// Ends all claims and containers.
fn end(world: &World, at: &str) {
    INIT.take();
    for uid in ["a", "b"] {
        unprepare(world, uid).unwrap();
    }
    for id in [ID, PEER] {
        said(&mut world.runmig(&["delete", "--force", id]));
    }
    world.gc().ok();
    with(world, |leases| leases.release_ended()).unwrap();
    { world.as_if_nothing_had_been() }.unwrap_or_else(|e| panic!("{at}: {e}"));
}

fn nothing(world: &World) {
    world.bundle_asking(ID, WHOLE.0);
}

/// A call for the claim with this UID, and the place that it wants.
fn call(world: &World, verb: &str, uid: &str, place: &[&str]) -> Call {
    let mut command = world.program("stub-claims");
    command.args([verb, uid]).args(place);
    command.into()
}

fn wants_whole(world: &World, verb: &str, uid: &str) -> Call {
    let (profile, size) = WHOLE;
    let gpu = &world.engine().gpus[0].uuid;
    call(world, verb, uid, &[gpu, profile, "0", &size.to_string()])
}

fn prepares_a(world: &World) -> Call {
    wants_whole(world, "prepare-at-once", "a")
}

fn prepares_b(world: &World) -> Call {
    wants_whole(world, "prepare-at-once", "b")
}

fn promises(world: &World) -> Call {
    wants_whole(world, "promise", "a")
}

fn creates(world: &World) -> Call {
    world.create_command(ID).into()
}

/// Returns whether the claim `a` has the only lease, or the other one has it. The loser says who has the place.
#[track_caller]
fn one_has_it(world: &World, of_claim: &Said, of_other: &Said) -> bool {
    let lease = the_lease(world);
    let claim_won = lease["claim"]["uid"] == "a";
    let (winner, loser) = match claim_won {
        true => (of_claim, of_other),
        false => (of_other, of_claim),
    };
    assert!(winner.status.success(), "{winner:?}");
    assert!(!loser.status.success(), "{loser:?}");
    assert!(loser.stderr.contains("cannot "), "{loser:?}");
    if lease["state"] == "ready" {
        assert_eq!(world.the_instance().uuids[0], lease["migUUID"]);
    } else {
        assert_eq!(lease["state"], "promised");
        assert!(world.instances().is_empty());
    }
    claim_won
}

const BOTH: [bool; 2] = [false, true];

fn second_claims(world: &World, of_other: &Said, of_claim: &Said) -> bool {
    !one_has_it(world, of_claim, of_other)
}

fn promised(world: &World) {
    nothing(world);
    said(&mut promises(world).command).ok();
}

testkit::tests! {
    /// Failure: Prepare, promise or attach meets a local create, another Prepare or Unprepare
    prepare_meets_local_create: meets(nothing, (prepares_a, creates), one_has_it, &BOTH);
    local_create_meets_prepare: meets(nothing, (creates, prepares_a), second_claims, &BOTH);
    promised_place_withstands_local_create: meets(promised, (prepares_a, creates), one_has_it, &[true]);
    promise_meets_local_create: meets(nothing, (promises, creates), one_has_it, &BOTH);
    local_create_meets_promise: meets(nothing, (creates, promises), second_claims, &BOTH);
    two_prepares_share_no_place: meets(nothing, (prepares_a, prepares_b), one_has_it, &BOTH);
}

/// With another place of the profile on the GPU both get one: the promise moves, or the create goes there.
#[test]
fn promise_moves_from_local_create() {
    // The place that a local create takes first.
    const START: u32 = 3;
    fn promise(world: &World) -> Call {
        let gpu = &world.engine().gpus[0].uuid;
        let place = [gpu, world.profile, &START.to_string(), "1"];
        call(world, "promise", "a", &place)
    }
    fn both(world: &World, _: &Said, _: &Said) -> bool {
        let leases = world.leases();
        assert_eq!(leases.len(), 2, "{leases:#?}");
        let start = |lease: &Value| lease["migPlacement"]["start"].clone();
        assert_ne!(start(&leases[0]), start(&leases[1]));
        let is_claim = |lease: &&Value| lease["claim"].is_object();
        let claim = leases.iter().find(is_claim).unwrap();
        start(claim) == START
    }
    let create: Begins = |world| world.create_command(PEER).into();
    meets(|_| (), (promise, create), both, &BOTH);
    meets(|_| (), (create, promise), both, &BOTH);
}

thread_local! {
    /// The container of this test alone, since the tests of a program run beside each other.
    static INIT: RefCell<Option<Killed>> = const { RefCell::new(None) };
}

fn attaches(world: &World) -> Call {
    INIT.with_borrow_mut(|init| {
        let init = init.get_or_insert_with(self::init);
        hook_call(world, "attach", "a", Some(init))
    })
}

fn unprepares(world: &World) -> Call {
    call(world, "unprepare", "a", &[])
}

/// The container has the slice until its end, or does not start.
#[track_caller]
fn container_has_it_or_none(world: &World, unprepare: &Said, attach: &Said) -> bool {
    assert!(unprepare.status.success(), "{unprepare:?}");
    let got_it = attach.status.success();
    if got_it {
        assert_eq!(containers(world), ["c"]);
        assert_eq!(the_lease(world)["migUUID"], world.the_instance().uuids[0]);
        // Only its end ends the slice.
        world.gc().ok();
        world.the_instance();
        hook(world, "detach", "a", None).ok();
        INIT.take();
        with(world, |leases| leases.release_ended()).unwrap();
    } else {
        has(&attach.stderr, "cannot start container c");
    }
    nothing_is_left(world);
    got_it
}

fn prepared(world: &World) {
    prepare(world, "a", &place(world, "1g.6gb", 0, 1)).unwrap();
}

testkit::tests! {
    unprepare_meets_attach: meets(prepared, (unprepares, attaches), container_has_it_or_none, &BOTH);
    attach_meets_unprepare: meets(prepared, (attaches, unprepares), |world, attach, unprepare| {
        container_has_it_or_none(world, unprepare, attach)
    }, &BOTH);
}
