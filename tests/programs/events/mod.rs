//! The history of creates, leases and instances.

mod failing;
mod printed;
mod written;

use testkit::prelude::*;

fn file(world: &World) -> PathBuf {
    world.state().join("events.jsonl")
}

/// Returns the events that `migctl events` prints for programs.
fn events(world: &World) -> Vec<Value> {
    lines(&printed(world, &[]).ok())
}

fn printed(world: &World, options: &[&str]) -> Said {
    said(&mut world.migctl(&[&["events", "-o", "json"], options].concat()))
}

fn lines(said: &Said) -> Vec<Value> {
    let lines = said.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The types of these events, in their order.
fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}
