//! Seats: shares of a slice, at `none` and at `mps`.

use super::*;

pub const ALL: &[Operation] = &[
    operation("create-mps-seat", Kind::Create, |world| {
        mps_seat(world, ID);
        create(world)
    }),
    operation("delete-mps-seat", Kind::Delete, |world| {
        mps_seats(world, &[ID]);
        delete(world)
    }),
    operation("poststop-mps-seat", Kind::Delete, |world| {
        mps_seat(world, ID);
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("repair-mps-seat", Kind::Collect, |world| {
        mps_seat(world, ID);
        abandoned_and_damaged(world);
        world.migctl(&["gc", "--repair"]).into()
    }),
    operation("gc-restarting-mps-seat", Kind::Collect, |world| {
        mps_seats(world, &[PEER]);
        world.kill_daemon(PEER);
        world.migctl(&["gc"]).into()
    }),
];

/// Those that another process meets at each of their steps. The forks kill and fail them.
pub const MET: &[Operation] = &[
    operation("create-seat-beside", Kind::Create, |world| {
        seat(world, PEER);
        world.create(PEER);
        seat(world, ID);
        create(world)
    }),
    operation("create-mps-seat-beside", Kind::Create, |world| {
        mps_seats(world, &[PEER]);
        mps_seat(world, ID);
        create(world)
    }),
    operation("release-seat", Kind::Collect, |world| {
        seat(world, ID);
        release(world)
    }),
    operation("release-mps-seat", Kind::Collect, |world| {
        mps_seat(world, ID);
        release(world)
    }),
];

/// A seat for a container.
fn seat(world: &World, id: &str) {
    world.configure("sharing.enforcement = [\"none\"]");
    world.bundle_saying(id, &seat_asks(world));
}

/// A seat at `mps` for a container.
fn mps_seat(world: &World, id: &str) {
    world.configure("sharing.enforcement = [\"mps\"]");
    world.install_mps();
    world.bundle_saying(id, &seat_asks(world));
}

fn seat_asks(world: &World) -> [(&str, &str); 2] {
    let slice = ("runmig.dev/slice", world.profile);
    [slice, ("runmig.dev/share", "1/2")]
}

fn mps_seats(world: &World, ids: &[&str]) {
    for id in ids {
        mps_seat(world, id);
        world.create(id);
    }
}
