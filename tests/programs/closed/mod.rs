//! GPUs that give nothing new: sick by the driver's signs, or cordoned by an administrator.

mod claims;
mod cordoned;
mod drained;
mod sick;

use nvml_sim::engine::Health;
use testkit::prelude::*;

const SLICE: &str = "runmig.dev/slice";
const NONE: &str = "[sharing]\nenforcement = [\"none\"]\n";

/// Sets the health of a GPU.
fn health(world: &World, gpu: usize, health: Health) {
    world.change(|machine, _| machine.gpus[gpu].health = health);
}

/// A GPU that needs a reset.
fn sick() -> Health {
    Health {
        recovery_action: 1,
        ..Health::default()
    }
}

/// Returns the first GPU of `migctl gpus -o json`.
fn gpu(world: &World) -> Value {
    world.items(&["gpus"]).remove(0)
}
