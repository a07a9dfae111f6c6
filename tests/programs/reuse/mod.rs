//! Slices that are not made but there already: kept after a container, made by an administrator, or
//! another container's of the pod.

mod adopting;
mod idling;
mod mixed;
mod racing;
mod sharing;

use nvml_sim::holders::Hold;
use testkit::prelude::*;

/// The driver calls of a create that change something.
fn changes(world: &World, during: impl FnOnce()) -> Vec<String> {
    let mut calls = world.driver_calls(during);
    calls.retain(|call| call.contains("Create") || call.contains("Destroy"));
    calls
}

/// This process computes on an instance until the value is dropped.
fn hold(world: &World, gpu: u32, gi: u32) -> Hold {
    world.hold(gpu, gi, Some(0))
}

/// A container of the pod.
fn create_in(world: &World, pod: &str, id: &str) -> Said {
    world.bundle_in_pod(id, world.profile, pod);
    said(&mut world.create_command(id))
}
