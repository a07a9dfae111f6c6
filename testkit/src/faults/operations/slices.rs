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
    // The bundle is still edited, and the lease of a container that is no more is there.
    operation("create-again", Kind::Create, |world| {
        world.abandoned(ID);
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
    operation("create-from-idle", Kind::Create, |world| {
        idle(world, &["before"]);
        create(world)
    }),
    operation("create-evicting", Kind::Create, |world| {
        idle(world, &["before", "beside"]);
        world.bundle_asking(ID, WHOLE);
        create(world)
    }),
    operation("delete-to-idle", Kind::Delete, |world| {
        world.configure(KEPT);
        world.create(ID);
        delete(world)
    }),
    operation("gc-of-earlier-boot", Kind::Collect, |world| {
        world.abandoned(ID);
        world.reboot();
        world.migctl(&["gc"]).into()
    }),
    operation("gc-of-idle", Kind::Collect, |world| {
        idle(world, &["before"]);
        time_is_over(world);
        world.migctl(&["gc"]).into()
    }),
    operation("create-adopting", Kind::Create, |world| {
        adopting(world);
        create(world)
    }),
    operation("delete-adopted", Kind::Delete, |world| {
        adopting(world);
        world.create(ID);
        delete(world)
    }),
    operation("create-shared", Kind::Create, |world| {
        in_pod(world, &[PEER]);
        world.bundle_in_pod(ID, world.profile, "pod");
        create(world)
    }),
    operation("delete-shared", Kind::Delete, |world| {
        in_pod(world, &[PEER, ID]);
        delete(world)
    }),
    operation("delete-last-shared", Kind::Delete, |world| {
        in_pod(world, &[PEER, ID]);
        world.delete(PEER);
        delete(world)
    }),
    operation("gc-of-shared", Kind::Collect, |world| {
        in_pod(world, &[PEER, ID]);
        world.behave("no-hooks");
        for id in [PEER, ID] {
            said(&mut world.bare(&["delete", "--force", id])).ok();
        }
        world.behave("");
        world.migctl(&["gc"]).into()
    }),
    operation("create-two", Kind::Create, |world| {
        two(world);
        create(world)
    }),
    operation("delete-two", Kind::Delete, |world| {
        two(world);
        world.create(ID);
        delete(world)
    }),
    operation("poststop-damaged", Kind::Delete, |world| {
        let lease = abandoned_and_damaged(world);
        world.hook(ID, &lease)
    }),
    operation("delete-damaged", Kind::Delete, |world| {
        world.create(ID);
        world.damage_all();
        delete(world)
    }),
    operation("release-damaged", Kind::Collect, |world| {
        let lease = abandoned_and_damaged(world);
        world.migctl(&["release", &lease]).into()
    }),
    operation("gc-of-damaged-idle", Kind::Collect, |world| {
        idle(world, &["before"]);
        world.damage_all();
        world.migctl(&["gc"]).into()
    }),
    operation("wait", Kind::Create, |world| {
        waiting(world, "10m");
        makes_way(world);
        create(world)
    }),
    operation("wait-in-vain", Kind::Refused, |world| {
        waiting(world, "100ms");
        create(world)
    }),
];

/// Idle slices.
fn idle(world: &World, ids: &[&str]) {
    world.configure(KEPT);
    ids.iter().for_each(|id| drop(world.create(id)));
    ids.iter().for_each(|id| drop(world.delete(id)));
}

fn time_is_over(world: &World) {
    world.configure("keep_idle = \"1ns\"");
}

fn adopting(world: &World) {
    world.configure("adopt = true");
    world.admin_leaves(0, world.profile, 2);
}

/// Slices for the one container.
fn two(world: &World) {
    world.configure("policy.slices_per_container = 2");
    world.bundle_asking(ID, &format!("{}*2", world.profile));
}

fn in_pod(world: &World, ids: &[&str]) {
    for id in ids {
        world.bundle_in_pod(id, world.profile, "pod");
        world.create(id);
    }
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
