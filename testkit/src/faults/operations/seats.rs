//! Seats: shares of a slice, at `none` and at `mps`.

use super::*;

pub const ALL: &[Operation] = operations! {
    "create-mps-seat", Create: |w| mps_seat(w, ID) => create;
    "delete-mps-seat", Delete: |w| mps_seats(w, &[ID]) => delete;
    "poststop-mps-seat", Delete: |w| mps_seat(w, ID) => poststop;
    "repair-mps-seat", Collect: |w| mps_seat(w, ID) => repair;
    "gc-restarting-mps-seat", Collect: |w| {
        mps_seats(w, &[PEER]);
        w.kill_daemon(PEER);
    } => gc;
};

/// Those that another process meets at each of their steps. The forks kill and fail them.
pub const MET: &[Operation] = operations! {
    "create-seat-beside", Create: seats => create;
    "create-mps-seat-beside", Create: |w| {
        mps_seats(w, &[PEER]);
        mps_seat(w, ID);
    } => create;
    "release-seat", Collect: |w| seat(w, ID) => release;
    "release-mps-seat", Collect: |w| mps_seat(w, ID) => release;
};

/// A seat for a container.
fn seat(world: &World, id: &str) {
    world.configure("sharing.enforcement = [\"none\"]");
    world.bundle_saying(id, &seat_asks(world));
}

/// The same, beside another that is taken.
fn seats(world: &World) {
    seat(world, PEER);
    world.create(PEER);
    seat(world, ID);
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
