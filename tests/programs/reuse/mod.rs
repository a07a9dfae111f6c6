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

/// This process computes on an instance of the first GPU until the value is dropped.
fn hold(world: &World, gi: u32) -> Hold {
    world.hold(0, gi, Some(0))
}

/// This process has a GPU instance open, as `13`, or a compute instance, as `13/ci0`, on which nothing computes.
fn open(world: &World, gi: impl std::fmt::Display) -> File {
    let access = format!("proc/driver/nvidia/capabilities/gpu0/mig/gi{gi}/access");
    File::open(world.machine().join(access)).unwrap()
}

/// A container of the pod.
fn create_in(world: &World, pod: &str, id: &str) -> Said {
    world.bundle_in_pod(id, world.profile, pod);
    said(&mut world.create_command(id))
}
