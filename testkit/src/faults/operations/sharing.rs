//! Whole GPUs, and shares at each level, on GPUs without MIG.

use super::*;

pub const ALL: &[Operation] = &[
    operation("create-mps", Kind::Create, |world| {
        mps(world, ID);
        create(world)
    }),
    operation("poststop-mps", Kind::Delete, |world| {
        mps(world, ID);
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("gc-restarting-mps", Kind::Collect, |world| {
        mps(world, PEER);
        world.create(PEER);
        world.kill_daemon(PEER);
        world.migctl(&["gc"]).into()
    }),
    operation("create-limited", Kind::Create, |world| {
        limited(world, ID);
        create(world)
    }),
    operation("create-limited-beside", Kind::Create, |world| {
        limited(world, PEER);
        world.create(PEER);
        limited(world, ID);
        create(world)
    }),
    // The low-level runtime's createRuntime hook, once more.
    operation("limit", Kind::Limit, |world| {
        limited(world, ID);
        world.create(ID);
        let lease = world.lease_of(ID)["id"].as_str().unwrap().to_owned();
        world.forget_memory_limits();
        world.limit_hook(ID, &lease)
    }),
    operation("delete-limited", Kind::Delete, |world| {
        for id in [PEER, ID] {
            limited(world, id);
            world.create(id);
        }
        delete(world)
    }),
    operation("gc-setting-limit-back", Kind::Collect, |world| {
        mps(world, PEER);
        world.create(PEER);
        world.raise_limit(PEER);
        world.migctl(&["gc"]).into()
    }),
    operation("run-limited", Kind::Create, |world| {
        limited(world, ID);
        run(world)
    }),
    operation("release-limited", Kind::Collect, |world| {
        limited(world, ID);
        release(world)
    }),
];

/// A share at `mps` for a container.
fn mps(world: &World, id: &str) {
    world.configure("sharing.enforcement = [\"mps\"]");
    world.install_mps();
    world.bundle_saying(id, &[("runmig.dev/share", "1/2")]);
}

/// A share at `driver` for a container.
fn limited(world: &World, id: &str) {
    world.configure("sharing.enforcement = [\"driver\"]");
    world.install_limits();
    world.bundle_saying(id, &[("runmig.dev/share", "1/2")]);
    world.bundle_with_cgroup(id);
}
