//! Slices: one, several, idle, adopted, of a pod, and waits for one.

use super::*;

/// All of the GPU.
const WHOLE: &str = "4g.24gb";

const KEPT: &str = "keep_idle = \"5m\"";

pub const ALL: &[Operation] = operations! {
    "create", Create: |_| () => create;
    FROM_CACHE, Create: |w| {
        w.create(ID);
        w.delete(ID);
    } => create;
    "create-that-fails", Refused: |w| w.behave("create-fails-early") => create;
    "run", Create: |_| () => run;
    "poststop", Delete: |_| () => poststop;
    "delete", Delete: |w| drop(w.create(ID)) => delete;
    "gc", Collect: |w| drop(w.abandoned(ID)) => gc;
    "release", Collect: |_| () => release;
    "poststop-damaged", Delete: |_| () => |w| w.hook(ID, &abandoned_and_damaged(w));
    "repair", Collect: |_| () => repair;
    "repair-beside-idle", Collect: |w| idle(w, &["before"]) => repair_alone;
    "wait", Create: |w| {
        waiting(w, "10m");
        makes_way(w);
    } => create;
};

/// No container is gone.
fn repair_alone(world: &World) -> Call {
    world.damage_all();
    world.migctl(&["gc", "--repair"]).into()
}

/// Idle slices.
fn idle(world: &World, ids: &[&str]) {
    world.configure(KEPT);
    ids.iter().for_each(|id| drop(world.create(id)));
    ids.iter().for_each(|id| drop(world.delete(id)));
}

/// Nothing is free, and this long it may wait.
fn waiting(world: &World, wait: &str) {
    let asks = [
        ("runmig.dev/slice", world.profile),
        ("runmig.dev/wait", wait),
    ];
    world.bundle_saying(ID, &asks);
    world.bundle_asking(HOLDER, WHOLE);
    world.create(HOLDER);
}
