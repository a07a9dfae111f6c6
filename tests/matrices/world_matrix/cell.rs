//! One operation in one world, and then, back in the normal world, what must hold.

use crate::world_matrix::call::{self, Ended};
use crate::world_matrix::enter::Inside;
use crate::world_matrix::node::Node;
use crate::world_matrix::operations::{ALL, Kind, Operation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::faults::operations::{HOLDER, ID, way_is_made};
use testkit::mounted::own_mounts;
use testkit::prelude::*;

/// Report of a cell that is wrong.
const LONGEST: usize = 1500;

pub struct World {
    pub name: &'static str,
    /// Words of the errors that this world causes; without any, everything works.
    pub causes: &'static [&'static str],
    /// None: this machine cannot show it, and why.
    pub enter: fn(&Node) -> Result<Inside, &'static str>,
}

/// Each operation in a world. The thread has mounts of its own, so that nothing of the machine changes.
pub fn every_operation(world: World) {
    if !nix::unistd::geteuid().is_root() {
        return testkit::skip("worlds are made by root");
    }
    let thread = std::thread::spawn(move || {
        own_mounts();
        cells(&world);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn cells(world: &World) {
    let only = std::env::var("RUNMIG_WORLD_OPERATION").ok();
    let wanted = |o: &&Operation| only.as_ref().is_none_or(|only| only == o.name);
    let mut node = Node::new(wait(world));
    let (mut tried, mut failed) = (0, 0);
    let mut wrong = Vec::new();
    for operation in ALL.iter().filter(wanted) {
        let done = catch_unwind(AssertUnwindSafe(|| cell(&node, world, operation)));
        tried += 1;
        let why = match done {
            Ok(Ok(Cell::Works)) => continue,
            Ok(Ok(Cell::FailsAsItShould)) => {
                failed += 1;
                continue;
            }
            Ok(Ok(Cell::CannotBeShown(why))) => return testkit::skip(why),
            Ok(Err(why)) => why,
            Err(panic) => words(&*panic),
        };
        let why: String = why.chars().take(LONGEST).collect();
        wrong.push(format!("{}: {why}", operation.name));
        // The next cell starts without its leftovers.
        node = Node::new(wait(world));
    }
    if let Err(why) = node.end() {
        wrong.push(format!("after all: {why}"));
    }
    // Past the harness, which keeps what a passing test prints.
    let _ = writeln!(
        std::io::stderr(),
        "world matrix: {}: {tried} cells, in {failed} of them the operation failed as it should",
        world.name
    );
    let (count, lines) = (wrong.len(), wrong.join("\n"));
    assert!(
        wrong.is_empty(),
        "{count} wrong in {}:\n{lines}",
        world.name
    );
}

/// In a world that fails calls, no container may make way for a waiter.
fn wait(world: &World) -> &'static str {
    if world.causes.is_empty() { "10m" } else { "3s" }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").to_owned()
}

enum Cell {
    Works,
    FailsAsItShould,
    CannotBeShown(&'static str),
}

fn cell(node: &Node, world: &World, operation: &Operation) -> Result<Cell, String> {
    let call = (operation.prepare)(node);
    let log_before = runmig_log(node).len();
    let _ = fs::remove_file(node.log_of_call());
    let mut inside = match (world.enter)(node) {
        Ok(inside) => inside,
        Err(why) => return Ok(Cell::CannotBeShown(why)),
    };
    let ended = call::run(&call, &inside)?;
    let runs = match operation.kind {
        Kind::Create => state_of_it(node, &inside)?.contains("\"running\""),
        _ => false,
    };
    inside.leave();
    way_is_made(node);
    let log = runmig_log(node);
    let log = log.get(log_before..).unwrap_or(&log);
    let logged = fs::read_to_string(node.log_of_call()).unwrap_or_default();
    let said = format!("{}{logged}", ended.said);
    let outcome = Outcome {
        works: false,
        told: told(node, world, &[&said, log]),
        ended: Ended { said, ..ended },
    };
    let outcome = judge(node, operation, &inside, outcome, runs)?;
    if inside.has_own_ledger {
        // An idle slice would be kept in that ledger.
        node.set_nothing();
        delete_in_there(node, &inside)?;
    }
    node.check()
        .map_err(|why| format!("{why}\nafter {:?}", outcome.ended))?;
    if inside.keeps_containers && operation.kind == Kind::Create {
        delete_in_there(node, &inside)?;
    }
    drop(inside);
    node.tidy_up()
        .map_err(|why| format!("{why}\nafter {:?}", outcome.ended))?;
    Ok(match outcome.works {
        true => Cell::Works,
        false => Cell::FailsAsItShould,
    })
}

struct Outcome {
    ended: Ended,
    /// Whether a cause of the world's is named, wherever an engine or an operator looks.
    told: bool,
    works: bool,
}

fn judge(
    node: &Node,
    operation: &Operation,
    inside: &Inside,
    outcome: Outcome,
    runs: bool,
) -> Result<Outcome, String> {
    let (ended, told) = (&outcome.ended, outcome.told);
    let wrong = |what: &str| Err(format!("{what}: {ended:?}"));
    let (status, said) = (ended.status, &ended.said);
    if status.signal().is_some() || said.contains("panicked") || said.contains("unreachable") {
        return wrong("it broke down");
    }
    let works = match operation.kind {
        Kind::Create | Kind::Look => status.success(),
        // Its status is the container's. A slice that could not be released stays on record with its cause.
        Kind::Run => status.success() && !node.has_lease(ID),
        Kind::Refused => !status.success() && said.contains("memory slices are free"),
        Kind::GiveBack => status.success() && !node.has_lease(ID) && !node.bundle_is_edited(ID),
        Kind::Collect => status.success() && !node.has_idle(),
    };
    // A ledger that is not to be seen has nothing to collect. A bundle that is away stays as it is.
    let finds_nothing = match operation.kind {
        Kind::Collect => inside.has_own_ledger,
        Kind::GiveBack if inside.has_own_ledger => ["gc", "delete"].contains(&operation.name),
        Kind::GiveBack if inside.hides_ledger && operation.name == "delete" => true,
        Kind::GiveBack => inside.hides_bundle && !node.has_lease(ID),
        // The holder cannot make way for the waiter, or not in this ledger.
        Kind::Create if operation.name == "wait" => {
            (inside.has_own_ledger || node.has_lease(HOLDER))
                && said.contains("memory slices are free")
        }
        _ => false,
    };
    match operation.kind {
        Kind::Create if works && !runs => return wrong("it succeeds, and runs not"),
        Kind::Create if !works && runs => return wrong("it fails, and runs"),
        Kind::Create if works && !inside.has_own_ledger => node.has_its_slices(ID)?,
        Kind::Run if node.has_lease(ID) && !told => return wrong("it is over and has a slice"),
        Kind::Refused if status.success() => return wrong("it succeeds without room"),
        _ => {}
    }
    if !works && !told && !finds_nothing {
        return wrong("it does not say why");
    }
    Ok(Outcome { works, ..outcome })
}

fn told(node: &Node, world: &World, places: &[&str]) -> bool {
    let leases = node.leases();
    let mut errors = leases.iter().filter_map(|l| l["error"].as_str());
    let mut all = places.iter().copied().chain(errors.by_ref());
    all.any(|place| world.causes.iter().any(|cause| place.contains(cause)))
}

fn runmig_log(node: &Node) -> String {
    fs::read_to_string(node.state().join("runmig.log")).unwrap_or_default()
}

/// The low-level runtime's word from inside: outside its process may have another number.
fn state_of_it(node: &Node, inside: &Inside) -> Result<String, String> {
    let (state, outside) = (node.bare(&["state", ID]).into(), Inside::default());
    let at = if inside.keeps_containers {
        inside
    } else {
        &outside
    };
    Ok(call::run(&state, at)?.said)
}

fn delete_in_there(node: &Node, inside: &Inside) -> Result<(), String> {
    if node.root().join(ID).exists() {
        let delete = node.runmig(&["delete", "--force", ID]).into();
        let ended = call::run(&delete, inside)?;
        if !ended.status.success() {
            return Err(format!("cannot be deleted where it was made: {ended:?}"));
        }
    }
    Ok(())
}
