//! Everything that makes a slice, a share or a GPU of a container, or releases one, as the matrices break it: the world
//! before, and the command.

/// Operations: the name and the kind of each, what makes the world, and the command.
macro_rules! operations {
    ($($name:expr, $kind:ident: $before:expr => $act:expr;)*) => {
        &[$(Operation {
            name: $name,
            kind: Kind::$kind,
            begin: |world| {
                let (before, act): (fn(&World), fn(&World) -> Call) = ($before, $act);
                before(world);
                act(world)
            },
        }),*]
    };
}

mod claims;
mod layouts;
mod seats;
mod sharing;
mod slices;

use claims::kubelet_tries_again;
use layouts::layout_is_removed;
pub use layouts::{is_in_place, next_apply_succeeds};

use super::World;
use super::check::tickets;
use super::strace::Call;
use crate::prelude::*;
use runmig_lease::store::Store;

/// The container that a command is about.
pub const ID: &str = "victim";
/// Another of its pod.
pub const PEER: &str = "peer";
/// The container that has the slice it waits for.
pub const HOLDER: &str = "holder";
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
    /// Applies a layout, and says what went wrong.
    Apply,
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
        let has_its_name = |other: &Operation| other.name == self.name;
        match sharing::ALL.iter().any(has_its_name) {
            true => World::with_whole_gpus(),
            false if self.name == "apply-modes" => World::of(super::SMALL, 2),
            false => World::small(),
        }
    }

    /// Whether the command waits for what another process does.
    pub fn waits(&self) -> bool {
        self.name == "wait" || self.name.starts_with("wait-")
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
    let all = all().map(|o| o.name.to_owned()).collect();
    let these = names.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(sorted(these), sorted(all));
}

fn all() -> impl Iterator<Item = &'static Operation> {
    let all = [
        slices::ALL,
        sharing::ALL,
        seats::ALL,
        claims::ALL,
        layouts::ALL,
    ];
    all.into_iter().flatten()
}

pub fn named(name: &str) -> &'static Operation {
    let mut all = all().chain(seats::MET);
    all.find(|o| o.name == name).expect("an operation")
}

fn create(world: &World) -> Call {
    world.create_command(ID).into()
}

/// A foreground run whose container ends by itself.
fn run(world: &World) -> Call {
    world.behave("run-ends\nno-hooks");
    world.make_command("run", ID).into()
}

/// By the operator, of a container that is gone.
fn release(world: &World) -> Call {
    world.abandoned(ID);
    world.migctl(&["release", ID]).into()
}

/// By the engine, with the hook left out: the delete itself releases.
fn delete(world: &World) -> Call {
    world.behave("no-hooks");
    world.runmig(&["delete", "--force", ID]).into()
}

/// By the engine, of a container that is gone.
fn poststop(world: &World) -> Call {
    let lease = world.abandoned(ID);
    world.hook(ID, &lease)
}

fn gc(world: &World) -> Call {
    world.migctl(&["gc"]).into()
}

fn repair(world: &World) -> Call {
    abandoned_and_damaged(world);
    world.migctl(&["gc", "--repair"]).into()
}

fn abandoned_and_damaged(world: &World) -> String {
    let lease = world.abandoned(ID);
    world.damage_all();
    lease
}

/// The holder releases its slice once another create waits or has ended. A fault of the driver kills whoever calls
/// first, so the release may be what dies; the engine then tries again.
pub fn makes_way(world: &World) {
    let mut delete = world.runmig(&["delete", "--force", HOLDER]);
    let (state, stop) = (world.state(), world.path("stop"));
    let done = world.path("done");
    fs::write(world.path("makes-way"), "").unwrap();
    std::thread::spawn(move || {
        until("somebody waits", || {
            stop.exists() || !tickets(&state).is_empty()
        });
        let mut released = said(&mut delete);
        if released.status.signal().is_some() || released.stderr.contains("SIGKILL") {
            released = said(&mut delete);
        }
        released.ok();
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

/// Removes what an operation leaves beside its containers, once these have ended: claims, what layouts made, idle and adopted
/// instances, and damage. `applies`: an apply comes before an empty layout.
pub fn what_stays_goes(world: &World, applies: bool) -> Result<(), String> {
    if let Some(lost) = world.lost_of_theirs() {
        return Err(format!("an administrator's instance is gone: {lost}"));
    }
    kubelet_tries_again(world)?;
    if applies {
        next_apply_succeeds(world)?;
    }
    layout_is_removed(world);
    world.configure("");
    world.admin_tidies_up();
    damage_is_mended(world);
    Ok(())
}

/// After damage to the ledger, the operator repairs it, and the next create of the bundle starts from the original.
pub fn damage_is_mended(world: &World) {
    let marker = world.path(DAMAGED);
    if !marker.exists() {
        return;
    }
    fs::remove_file(marker).unwrap();
    said(&mut world.migctl(&["gc", "--repair"])).ok();
    said(&mut world.migctl(&["gc"])).ok();
    let has_bundle = world.path("bundles").join(ID).exists();
    if has_bundle && world.bundle_is_edited(ID) {
        world.create(ID);
        world.delete(ID);
    }
}

/// Fails if a kill left a damaged ledger.
pub fn torn_records(world: &World) -> Result<(), String> {
    if world.path(DAMAGED).exists() {
        return Ok(());
    }
    let store = Store::existing(&world.state(), Duration::from_secs(10)).unwrap();
    match store.and_then(|store| store.damage().unwrap()) {
        None => Ok(()),
        Some(why) => Err(format!("the ledger is damaged: {}", why.line())),
    }
}

/// A file that says that the ledger was damaged.
const DAMAGED: &str = "damaged";

impl World {
    /// Kills the control program of a container's daemon.
    fn kill_daemon(&self, id: &str) {
        let daemon = self.lease_of(id)["daemon"]["pid"].as_i64();
        kill(i32::try_from(daemon.unwrap()).unwrap());
    }

    /// Cuts the ledger off.
    pub fn damage_all(&self) {
        fs::write(self.state().join("ledger.json"), "{").unwrap();
        fs::write(self.path(DAMAGED), "").unwrap();
    }
}
