//! Whole GPUs, and shares at each level, on GPUs without MIG.

use super::*;

pub const ALL: &[Operation] = operations! {
    "create-mps", Create: |w| mps(w, ID) => create;
    "poststop-mps", Delete: |w| mps(w, ID) => poststop;
    "gc-restarting-mps", Collect: |w| {
        held(w, mps, &[PEER]);
        w.kill_daemon(PEER);
    } => gc;
    "create-limited", Create: |w| limited(w, ID) => create;
    "create-limited-beside", Create: |w| {
        held(w, limited, &[PEER]);
        limited(w, ID);
    } => create;
    "limit", Limit: |w| held(w, limited, &[ID]) => limit;
    "delete-limited", Delete: |w| held(w, limited, &[PEER, ID]) => delete;
    "gc-setting-limit-back", Collect: |w| {
        held(w, mps, &[PEER]);
        w.raise_limit(PEER);
    } => gc;
    "run-limited", Create: |w| limited(w, ID) => run;
    "release-limited", Collect: |w| limited(w, ID) => release;
};

/// The low-level runtime's createRuntime hook, once more.
fn limit(world: &World) -> Call {
    let lease = world.lease_of(ID)["id"].as_str().unwrap().to_owned();
    world.forget_memory_limits();
    world.limit_hook(ID, &lease)
}

/// Containers with such a share.
fn held(world: &World, share: fn(&World, &str), ids: &[&str]) {
    for id in ids {
        share(world, id);
        world.create(id);
    }
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
}
