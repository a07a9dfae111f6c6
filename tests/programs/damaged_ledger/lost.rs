//! A state directory that is removed, unmounted or replaced under a container that runs. Its hook is
//! the only one who still knows the lease, and its bundle tells the rest.

use super::{ID, World};
use testkit::prelude::*;

/// The container ends behind runmig's back; gives what its hook says.
fn ends_behind(world: &World, id: &str) -> String {
    let deleted = said(&mut world.bare(&["delete", "--force", id]));
    deleted.ok().stderr
}

/// runmig names an instance that stays, with the command that destroys it.
#[track_caller]
fn names_command(world: &World, said: &str) {
    let i = world.the_instance();
    let smi = format!("nvidia-smi mig -i {} -gi {}", i.gpu_uuid, i.gi);
    let command = format!("{smi} -ci 0 -dci && {smi} -dgi");
    has(said, &format!("hint: once no container uses it, {command}"));
}

/// Failure: someone removes, unmounts or replaces the state directory under a container
#[test]
fn hook_releases_slice_of_removed_ledger() {
    let world = World::small();
    world.create(ID);
    fs::remove_dir_all(world.state()).unwrap();
    let said = ends_behind(&world, ID);
    let dir = world.state().display().to_string();
    has(
        &said,
        &format!("runmig-hook: no ledger in {dir}: it was removed"),
    );
    has(&said, "is released by what its bundle tells");
    has(&world.log(), "no ledger in");
    world.as_if_nothing_had_been().unwrap();
}

/// Another container has the GPU by the time of the hook.
#[test]
fn hook_leaves_shared_gpu_to_others() {
    let world = World::with_whole_gpus();
    world.configure("sharing.enforcement = [\"none\"]");
    let asks = [("runmig.dev/share", "1/2")];
    world.create_saying(ID, &asks);
    fs::remove_dir_all(world.state()).unwrap();
    world.create_saying("other", &asks);
    let gpu = world.uuids_in_bundle("other");
    assert_eq!(world.uuids_in_bundle(ID), gpu);
    ends_behind(&world, ID);
    world.has_its_slices("other").unwrap();
    world.ends(&["other"]);
}

#[test]
fn releases_slices_of_lost_container() {
    let world = World::small();
    world.configure("[policy]\nslices_per_container = 2\n");
    world.create_asking(ID, &format!("{}*2", world.profile));
    assert_eq!(world.instances().len(), 2);
    fs::remove_dir_all(world.state()).unwrap();
    ends_behind(&world, ID);
    world.as_if_nothing_had_been().unwrap();
}

/// Another ledger has been begun since, with another container in it.
#[test]
fn hook_releases_slice_of_replaced_ledger() {
    let world = World::small();
    world.create(ID);
    fs::rename(world.state(), world.path("unmounted")).unwrap();
    world.create("other");
    has(&ends_behind(&world, ID), "was not in the ledger");
    assert_eq!(world.leases().len(), 1);
    world.nothing_lost_nothing_given_twice().unwrap();
    world.ends(&["other"]);
}

/// To the next create it looks like an administrator's.
#[test]
fn spares_slice_that_another_lease_has() {
    let world = World::small();
    world.configure("adopt = true\n");
    world.create(ID);
    fs::rename(world.state(), world.path("unmounted")).unwrap();
    world.create("other");
    let ours = world.the_instance();
    let said = ends_behind(&world, ID);
    has(&said, "another lease has its place");
    names_command(&world, &said);
    assert_eq!(world.the_instance(), ours);
    assert_eq!(world.leases().len(), 1);
    world.delete("other");
    world.admin_destroys(0, ours.gi);
    world.as_if_nothing_had_been().unwrap();
}

/// Failure: someone removes, unmounts or replaces the state directory under a container, and the slice is an administrator's, a pod's, another lease's, or newer
#[test]
fn spares_adopted_instance() {
    let world = World::small();
    world.configure("adopt = true\n");
    world.admin_leaves(0, world.profile, 0);
    world.create(ID);
    fs::remove_dir_all(world.state()).unwrap();
    ends_behind(&world, ID);
    world.as_if_nothing_had_been().unwrap();
    assert_eq!(world.instances().len(), 1);
}

#[test]
fn spares_slice_its_pod_may_use() {
    let world = World::small();
    for id in [ID, "other"] {
        world.create_in_pod(id, "pod");
    }
    let ours = world.the_instance();
    fs::remove_dir_all(world.state()).unwrap();
    let said = ends_behind(&world, ID);
    has(&said, "other containers of its pod may use");
    names_command(&world, &said);
    assert_eq!(world.the_instance(), ours);
    ends_behind(&world, "other");
    world.admin_destroys(0, ours.gi);
    world.as_if_nothing_had_been().unwrap();
}

/// The very same instance, but made after a boot, or after the lease was released.
#[test]
fn spares_instance_made_after_the_lease() {
    let is_theirs = |world: &World| world.admin_leaves(0, world.profile, 3);
    let world = World::small();
    world.create(ID);
    let ours = world.the_instance();
    assert_eq!(ours.start, 3);
    fs::remove_dir_all(world.state()).unwrap();
    world.reboot();
    assert_eq!(is_theirs(&world), ours.uuids[0]);
    ends_behind(&world, ID);
    world.as_if_nothing_had_been().unwrap();

    let world = World::small();
    world.create(ID);
    let lease = world.lease_id(ID);
    let sidecar = world.bundle(ID).join("config.json.runmig");
    let kept = fs::read(&sidecar).unwrap();
    world.delete(ID);
    fs::write(&sidecar, kept).unwrap();
    is_theirs(&world);
    settled(&world.hook(ID, &lease)).ok();
    assert_eq!(world.lost_of_theirs(), None);
}

/// There is no way to make a ledger, so nothing is destroyed.
/// Failure: someone removes, unmounts or replaces the state directory under a container, and no ledger is possible, or the bundle contains only a MIG UUID
#[test]
fn names_slice_without_any_ledger() {
    let world = World::small();
    world.create(ID);
    let ours = world.the_instance();
    fs::remove_dir_all(world.state()).unwrap();
    fs::write(world.state(), "").unwrap();
    let said = ends_behind(&world, ID);
    let line = format!("no ledger in {}: ", world.state().display());
    has(&said, "cannot release lease ");
    has(&said, &line);
    names_command(&world, &said);
    assert_eq!(world.the_instance(), ours);
    assert!(!world.bundle_is_edited(ID));
    fs::remove_file(world.state()).unwrap();
    world.admin_destroys(0, ours.gi);
    world.as_if_nothing_had_been().unwrap();
}

/// A bundle whose sidecar is gone tells no more than the UUID.
#[test]
fn names_uuid_of_poor_bundle() {
    let world = World::small();
    world.create(ID);
    let ours = world.the_instance();
    fs::remove_dir_all(world.state()).unwrap();
    fs::remove_file(world.bundle(ID).join("config.json.runmig")).unwrap();
    let said = ends_behind(&world, ID);
    has(&said, &format!("find {} with", ours.uuids[0]));
    assert_eq!(world.the_instance(), ours);
}
