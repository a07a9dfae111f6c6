//! Whole GPUs, and shares at each level, on GPUs without MIG.

use super::*;

pub const ALL: &[Operation] = &[
    operation("create-gpu", Kind::Create, |world| {
        gpus(world, ID, "1");
        create(world)
    }),
    operation("create-two-gpus", Kind::Create, |world| {
        gpus(world, ID, "2");
        create(world)
    }),
    operation("delete-gpu", Kind::Delete, |world| {
        gpus(world, ID, "1");
        world.create(ID);
        delete(world)
    }),
    operation("poststop-gpu", Kind::Delete, |world| {
        gpus(world, ID, "1");
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("gc-of-gpu", Kind::Collect, |world| {
        gpus(world, ID, "1");
        world.abandoned(ID);
        world.migctl(&["gc"]).into()
    }),
    operation("wait-for-gpu", Kind::Create, |world| {
        gpus(world, HOLDER, "2");
        world.create(HOLDER);
        let asks = [("runmig.dev/gpu", "1"), ("runmig.dev/wait", "10m")];
        world.bundle_saying(ID, &asks);
        makes_way(world);
        create(world)
    }),
    operation("create-share", Kind::Create, |world| {
        share(world, ID);
        create(world)
    }),
    operation("create-share-beside", Kind::Create, |world| {
        share(world, PEER);
        world.create(PEER);
        share(world, ID);
        create(world)
    }),
    operation("delete-share", Kind::Delete, |world| {
        share(world, ID);
        world.create(ID);
        delete(world)
    }),
    operation("delete-share-beside", Kind::Delete, |world| {
        for id in [PEER, ID] {
            share(world, id);
            world.create(id);
        }
        delete(world)
    }),
    operation("poststop-share", Kind::Delete, |world| {
        share(world, ID);
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("gc-of-share", Kind::Collect, |world| {
        for id in [PEER, ID] {
            share(world, id);
            world.abandoned(id);
        }
        world.migctl(&["gc"]).into()
    }),
    operation("wait-for-share", Kind::Create, |world| {
        gpus(world, HOLDER, "2");
        world.create(HOLDER);
        world.configure(SHARING);
        let asks = [("runmig.dev/share", "1/2"), ("runmig.dev/wait", "10m")];
        world.bundle_saying(ID, &asks);
        makes_way(world);
        create(world)
    }),
    operation("create-mps", Kind::Create, |world| {
        mps(world, ID);
        create(world)
    }),
    operation("create-mps-beside", Kind::Create, |world| {
        mps(world, PEER);
        world.create(PEER);
        mps(world, ID);
        create(world)
    }),
    operation("delete-mps", Kind::Delete, |world| {
        for id in [PEER, ID] {
            mps(world, id);
            world.create(id);
        }
        delete(world)
    }),
    operation("poststop-mps", Kind::Delete, |world| {
        mps(world, ID);
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("gc-of-mps", Kind::Collect, |world| {
        mps(world, ID);
        world.abandoned(ID);
        world.migctl(&["gc"]).into()
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
    operation("run-gpu", Kind::Create, |world| {
        gpus(world, ID, "1");
        run(world)
    }),
    operation("release-gpu", Kind::Collect, |world| {
        gpus(world, ID, "1");
        release(world)
    }),
    operation("run-share", Kind::Create, |world| {
        share(world, ID);
        run(world)
    }),
    operation("release-share", Kind::Collect, |world| {
        share(world, ID);
        release(world)
    }),
    operation("run-mps", Kind::Create, |world| {
        mps(world, ID);
        run(world)
    }),
    operation("release-mps", Kind::Collect, |world| {
        mps(world, ID);
        release(world)
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

/// Whole GPUs for a container.
fn gpus(world: &World, id: &str, count: &str) {
    world.configure("policy.gpus_per_container = 2");
    world.bundle_saying(id, &[("runmig.dev/gpu", count)]);
}

/// A share for a container.
fn share(world: &World, id: &str) {
    world.configure(SHARING);
    world.bundle_saying(id, &[("runmig.dev/share", "1/2")]);
}

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
