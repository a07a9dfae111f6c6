//! Everything that makes a slice or releases one, as the matrices break it: what the world is like
//! before, and the command.

use super::check::names;
use super::strace::Call;
use super::{World, cgroup_of};
use crate::support::process::{kill, until};
use crate::support::said;
use runmig_lease::store::Store;
use std::fs;
use std::time::Duration;

/// The container that a command is about.
pub const ID: &str = "victim";
/// Another of its pod.
pub const PEER: &str = "peer";
/// The container that has the slice it waits for.
pub const HOLDER: &str = "holder";
/// All of the GPU.
const WHOLE: &str = "4g.24gb";

const KEPT: &str = "keep_idle = \"5m\"";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Makes the container.
    Create,
    /// The same, and it never succeeds.
    Refused,
    /// Releases, and the engine hears what its low-level runtime says, and nothing of ours.
    Delete,
    /// Releases, and says what went wrong.
    Collect,
    /// Limits a container, and says what went wrong.
    Limit,
}

pub struct Operation {
    pub name: &'static str,
    pub kind: Kind,
    begin: fn(&World) -> Call,
}

/// The one operation that finds the geometry of GPUs in the state directory.
const FROM_CACHE: &str = "create-from-cache";

impl Operation {
    /// Returns a world in which the operation can run.
    pub fn world(&self) -> World {
        match WITH_GPUS.contains(&self.name) {
            true => World::with_whole_gpus(),
            false => World::small(),
        }
    }

    /// Makes the world ready for the command. It asks the driver for all that it needs, whatever ran
    /// before, so that no call is missed.
    pub fn begin(&self, world: &World) -> Call {
        let call = (self.begin)(world);
        if self.name != FROM_CACHE {
            world.forget_geometry();
        }
        call
    }
}

/// Each operation has its place in a matrix, and only one.
pub fn each_once(names: &[&str]) {
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let all = ALL.iter().map(|o| o.name.to_owned()).collect();
    let these = names.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(sorted(these), sorted(all));
}

/// Operations on GPUs without MIG.
const WITH_GPUS: &[&str] = &[
    "create-gpu",
    "create-two-gpus",
    "delete-gpu",
    "poststop-gpu",
    "gc-of-gpu",
    "wait-for-gpu",
    "create-share",
    "create-share-beside",
    "delete-share",
    "delete-share-beside",
    "poststop-share",
    "gc-of-share",
    "wait-for-share",
    "create-mps",
    "create-mps-beside",
    "delete-mps",
    "poststop-mps",
    "gc-of-mps",
    "gc-restarting-mps",
    "create-limited",
    "create-limited-beside",
    "limit",
    "delete-limited",
    "gc-setting-limit-back",
    "gc-killing-around-mps",
];

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
    operation("run", Kind::Create, |world| {
        world.behave("run-ends\nno-hooks");
        world.make_command("run", ID).into()
    }),
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
    operation("release", Kind::Collect, |world| {
        world.abandoned(ID);
        world.migctl(&["release", ID]).into()
    }),
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
        let daemon = world.lease_of(PEER)["daemon"]["pid"].as_i64();
        kill(i32::try_from(daemon.unwrap()).unwrap());
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
    operation("gc-killing-around-mps", Kind::Collect, |world| {
        let cgroup = mps_in_cgroup(world, PEER);
        world.create(PEER);
        world.go_around_mps(PEER, &cgroup);
        world.configure("sharing.enforcement = [\"mps\"]\nsharing.round_mps = \"kill\"");
        world.migctl(&["gc"]).into()
    }),
    operation("create-seat", Kind::Create, |world| {
        seat(world, ID);
        create(world)
    }),
    operation("create-seat-beside", Kind::Create, |world| {
        seats(world, &[PEER]);
        seat(world, ID);
        create(world)
    }),
    operation("delete-seat", Kind::Delete, |world| {
        seats(world, &[ID]);
        delete(world)
    }),
    operation("delete-seat-beside", Kind::Delete, |world| {
        seats(world, &[PEER, ID]);
        delete(world)
    }),
    operation("poststop-seat", Kind::Delete, |world| {
        seat(world, ID);
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("gc-of-seats", Kind::Collect, |world| {
        for id in [PEER, ID] {
            seat(world, id);
            world.abandoned(id);
        }
        world.migctl(&["gc"]).into()
    }),
    operation("create-mps-seat", Kind::Create, |world| {
        mps_seat(world, ID);
        create(world)
    }),
    operation("create-mps-seat-beside", Kind::Create, |world| {
        mps_seats(world, &[PEER]);
        mps_seat(world, ID);
        create(world)
    }),
    operation("delete-mps-seat", Kind::Delete, |world| {
        mps_seats(world, &[ID]);
        delete(world)
    }),
    operation("delete-mps-seat-beside", Kind::Delete, |world| {
        mps_seats(world, &[PEER, ID]);
        delete(world)
    }),
    operation("poststop-mps-seat", Kind::Delete, |world| {
        mps_seat(world, ID);
        let lease = world.abandoned(ID);
        world.hook(ID, &lease)
    }),
    operation("gc-of-mps-seats", Kind::Collect, |world| {
        for id in [PEER, ID] {
            mps_seat(world, id);
            world.abandoned(id);
        }
        world.migctl(&["gc"]).into()
    }),
    operation("release-damaged-mps-seat", Kind::Collect, |world| {
        mps_seat(world, ID);
        let lease = abandoned_and_damaged(world);
        world.migctl(&["release", &lease]).into()
    }),
];

/// A seat for a container.
fn seat(world: &World, id: &str) {
    world.configure(SHARING);
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

/// Containers with seats in one slice.
fn seats(world: &World, ids: &[&str]) {
    for id in ids {
        seat(world, id);
        world.create(id);
    }
}

fn mps_seats(world: &World, ids: &[&str]) {
    for id in ids {
        mps_seat(world, id);
        world.create(id);
    }
}

/// The configuration for shares.
const SHARING: &str = "sharing.enforcement = [\"none\"]";

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

/// A share at `mps` for a container in a cgroup of its own. Returns the cgroup's name.
fn mps_in_cgroup(world: &World, id: &str) -> String {
    mps(world, id);
    world.bundle_with_cgroup(id);
    let cgroup = cgroup_of(world, id);
    cgroup.file_name().unwrap().to_string_lossy().into_owned()
}

const fn operation(name: &'static str, kind: Kind, begin: fn(&World) -> Call) -> Operation {
    Operation { name, kind, begin }
}

pub fn named(name: &str) -> &'static Operation {
    let mut all = ALL.iter();
    all.find(|o| o.name == name).expect("an operation")
}

fn create(world: &World) -> Call {
    world.create_command(ID).into()
}

/// By the engine, with the hook left out: the delete itself releases.
fn delete(world: &World) -> Call {
    world.behave("no-hooks");
    world.runmig(&["delete", "--force", ID]).into()
}

/// Idle slices.
fn idle(world: &World, ids: &[&str]) {
    world.configure(KEPT);
    ids.iter().for_each(|id| drop(world.create(id)));
    ids.iter().for_each(|id| drop(world.delete(id)));
}

fn abandoned_and_damaged(world: &World) -> String {
    let lease = world.abandoned(ID);
    world.damage_all();
    lease
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

/// Whole GPUs for a container.
fn gpus(world: &World, id: &str, count: &str) {
    world.configure("policy.gpus_per_container = 2");
    world.bundle_saying(id, &[("runmig.dev/gpu", count)]);
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

/// The holder releases its slice once another create waits or has ended.
pub fn makes_way(world: &World) {
    let mut delete = world.runmig(&["delete", "--force", HOLDER]);
    let (queue, stop) = (world.state().join("queue"), world.path("stop"));
    let done = world.path("done");
    fs::write(world.path("makes-way"), "").unwrap();
    std::thread::spawn(move || {
        let waits = |name: &String| !name.starts_with('.');
        until("somebody waits", || {
            stop.exists() || names(&queue).iter().any(waits)
        });
        said(&mut delete).ok();
        fs::write(done, "").unwrap();
    });
}

/// Before any other look: the container that had to make way has done so.
pub fn way_is_made(world: &World) {
    if world.path("makes-way").exists() {
        fs::write(world.path("stop"), "").unwrap();
        until("the other has made way", || world.path("done").exists());
        for file in ["makes-way", "stop", "done"] {
            fs::remove_file(world.path(file)).unwrap();
        }
    }
}

/// After damage to records, the operator releases what they still claim, and the next create of the
/// bundle starts from the original.
pub fn damage_is_mended(world: &World) {
    let marker = world.path(DAMAGED);
    if !marker.exists() {
        return;
    }
    fs::remove_file(marker).unwrap();
    for damaged in world.damaged() {
        let id = damaged["id"].as_str().unwrap();
        said(&mut world.migctl(&["release", id])).ok();
    }
    if world.bundle_is_edited(ID) {
        world.create(ID);
        world.delete(ID);
    }
}

/// Returns what `migctl list` would call damaged. A kill leaves whole records, and at most leases without
/// their instance.
pub fn torn_records(world: &World) -> Result<(), String> {
    if world.path(DAMAGED).exists() {
        return Ok(());
    }
    let store = Store::existing(&world.state(), Duration::from_secs(10)).unwrap();
    let damaged = store.map_or_else(Vec::new, |store| store.list().unwrap().damaged);
    let torn: Vec<_> = damaged
        .iter()
        .filter(|d| d.unfinished().is_none())
        .collect();
    match torn.is_empty() {
        true => Ok(()),
        false => Err(format!("records are torn: {torn:?}")),
    }
}

/// A file that says that records were damaged.
const DAMAGED: &str = "damaged";

impl World {
    /// Cuts every record off.
    pub fn damage_all(&self) {
        for file in self.records() {
            fs::write(file, "{").unwrap();
        }
        fs::write(self.path(DAMAGED), "").unwrap();
    }
}
