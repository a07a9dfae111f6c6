//! Slices: one, several, idle, adopted, of a pod, and waits for one.

use super::*;

/// All of the GPU.
const WHOLE: &str = "4g.24gb";

const KEPT: &str = "keep_idle = \"5m\"";

pub const ALL: &[Operation] = &[
    operation("create", Kind::Create, create),
    operation(FROM_CACHE, Kind::Create, |world| {
        world.create(ID);
        world.delete(ID);
        create(world)
    }),
    operation("create-that-fails", Kind::Refused, |world| {
        world.behave("create-fails-early");
        create(world)
    }),
    operation("run", Kind::Create, run),
    operation("poststop", Kind::Delete, |world| {
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("delete", Kind::Delete, |world| {
        world.create(ID);
        delete(world)
    }),
    operation("gc", Kind::Collect, |world| {
        world.abandoned(ID);
        world.migctl(&["gc"]).into()
    }),
    operation("release", Kind::Collect, release),
    operation("poststop-damaged", Kind::Delete, |world| {
        let lease = abandoned_and_damaged(world);
        world.hook(ID, &lease)
    }),
    operation("repair", Kind::Collect, |world| {
        abandoned_and_damaged(world);
        world.migctl(&["gc", "--repair"]).into()
    }),
    operation("repair-beside-idle", Kind::Collect, |world| {
        idle(world, &["before"]);
        world.damage_all();
        world.migctl(&["gc", "--repair"]).into()
    }),
    operation("wait", Kind::Create, |world| {
        waiting(world, "10m");
        makes_way(world);
        create(world)
    }),
];

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
