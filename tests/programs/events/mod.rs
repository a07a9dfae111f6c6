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
    chosen(world, &[])
}

/// Returns the events that these options choose.
fn chosen(world: &World, options: &[&str]) -> Vec<Value> {
    lines(&printed(world, options).ok())
}

fn printed(world: &World, options: &[&str]) -> Said {
    world.ctl(&[&["events", "-o", "json"], options].concat())
}

fn lines(said: &Said) -> Vec<Value> {
    let lines = said.stdout.lines();
    let events = lines.map(|line| serde_json::from_str(line).unwrap());
    events.collect()
}

/// The types of these events, in their order.
fn types(events: &[Value]) -> Vec<&str> {
    let types = events.iter().map(|event| event["type"].as_str().unwrap());
    types.collect()
}
