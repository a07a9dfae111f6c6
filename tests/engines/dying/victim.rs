//! A container to whose makers something happens.

use testkit::gate::Reached;
use testkit::prelude::*;

/// One GPU, so that a request for all of it finds no room as long as anybody has a slice.
pub fn setup(low: Low) -> Setup {
    Setup::on(low, Machine::new("A100-80GB", 1))
}

/// A create whose low-level runtime has come to a hook, and waits there.
pub struct Halfway {
    pub id: String,
    pub bundle: Bundle,
    /// As the bundle was given to the create.
    pub before: Vec<u8>,
    pub front: Going,
    pub runtime: i32,
    pub reached: Reached,
    _gate: Gate,
}

pub const SLEEPS: &str = "echo up; exec sleep 1000";

#[track_caller]
pub fn halfway(setup: &Setup, hook: &str) -> Halfway {
    halfway_in(setup, setup.asking("1g.10gb", SLEEPS), hook)
}

/// Stopped before it does anything: there is nothing of a container yet.
#[track_caller]
pub fn at_the_beginning(setup: &Setup) -> Halfway {
    let gate = Gate::new(&setup.path(&format!("gate-{}", unique())));
    gate.before(setup);
    let bundle = setup.asking("1g.10gb", SLEEPS);
    at_gate(setup, gate, bundle)
}

pub fn create(setup: &Setup, bundle: &Bundle, id: &str) -> Going {
    let mut command = setup.command(&["create", "-b", bundle.as_str(), id]);
    going(command.stdin(Stdio::null()))
}

#[track_caller]
pub fn halfway_in(setup: &Setup, bundle: Bundle, hook: &str) -> Halfway {
    let gate = Gate::new(&setup.path(&format!("gate-{}", unique())));
    gate.put(&bundle, hook);
    at_gate(setup, gate, bundle)
}

#[track_caller]
fn at_gate(setup: &Setup, gate: Gate, bundle: Bundle) -> Halfway {
    let (id, before) = (unique(), bundle.bytes());
    let front = create(setup, &bundle, &id);
    let reached = gate.reached();
    let runtime = child(&front);
    Halfway {
        id,
        bundle,
        before,
        front,
        runtime,
        reached,
        _gate: gate,
    }
}

/// The low-level runtime that it started.
#[track_caller]
pub fn child(front: &Going) -> i32 {
    let all = children(front.pid());
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

/// Collects by `migctl gc`, and by a create without room, and finds that the container keeps its
/// slice.
#[track_caller]
pub fn keeps_its_slice(setup: &Setup, id: &str) {
    let instance = setup.machine.the_instance();
    setup.migctl(&["gc"]).ok();
    no_room(setup);
    assert_eq!(setup.machine.the_instance(), instance);
    let lease = setup.the_lease();
    assert_eq!(lease["container"], id);
    assert_eq!(lease["migUUID"], instance.uuid);
    assert_ne!(lease["state"], "releasing");
}

#[track_caller]
fn no_room(setup: &Setup) {
    let whole = setup.asking("7g.80gb", "true");
    has(&setup.refused(&whole), "cannot allocate 7g.80gb: ");
}

/// A create that needs all of the machine has it: what was there is back without anybody's `gc`.
#[track_caller]
pub fn the_next_create_has_room(setup: &Setup) {
    let (_, id) = setup.made("7g.80gb", "true");
    assert_eq!(setup.the_lease()["container"], id.as_str());
    assert_eq!(setup.machine.the_instance().profile, "7g.80gb");
    setup.ends(&[&id]);
}

/// A container that runs: its bundle, its id and its init.
#[track_caller]
pub fn running(setup: &Setup) -> (Bundle, String, i32) {
    let (bundle, id) = (setup.asking("1g.10gb", SLEEPS), unique());
    let init = started(setup, &bundle, &id);
    (bundle, id, init)
}

/// `create` and `start`; gives init's number.
#[track_caller]
pub fn started(setup: &Setup, bundle: &Bundle, id: &str) -> i32 {
    let created = setup.create(bundle, id);
    setup.runmig(&["start", id]).ok();
    until("it is up", || created.stdout_now().contains("up"));
    init(setup, id)
}

#[track_caller]
pub fn init(setup: &Setup, id: &str) -> i32 {
    let state = setup.runmig(&["state", id]).ok().json();
    state["pid"].as_i64().unwrap() as i32
}

#[track_caller]
pub fn ended(what: &str, pid: i32) {
    until(what, || !lives(pid));
}
