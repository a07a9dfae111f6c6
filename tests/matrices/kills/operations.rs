//! What makes or releases a slice, a share or a GPU, in process: the world before, and the act.

use crate::world::{ID, OTHER, PEER, PROFILE, WHOLE, World};
use kills::bundles;
use kills::spec::bundle::Bundle;
use runmig_lease::counters::Actor;
use runmig_lease::error::{self, Error, Result};
use runmig_lease::layout::LayoutFile;
use runmig_lease::model::{GpuUuid, Placement, Process};
use runmig_lease::process;
use runmig_lease::store::{Claim, ClaimPod, Held, Lease, Store};
use runmig_lease::{
    ApplyOptions, ClaimPlace, Leases, Liveness, NoBundles, Patience, Returned, request,
};
use std::time::Duration;

/// The processes that stand for the inits of containers: of the victim, and of those beside it.
#[derive(Clone, Copy, Debug)]
pub struct Inits {
    pub victim: i32,
    pub others: i32,
}

/// A piece of the core that a child runs.
pub type Act = fn(&World, Inits) -> Result<()>;

pub struct Operation {
    pub name: &'static str,
    /// The number of GPUs without MIG.
    pub gpus: u32,
    /// The configuration while the operation runs.
    pub config: &'static str,
    /// Whether processes belong to the world, so that no copy of it serves.
    pub is_fresh: bool,
    /// Makes the world. The victim's init dies after it, and its container is gone.
    pub before: fn(&World, Inits),
    pub act: Act,
}

impl Operation {
    /// Whether it waits for what another process ends meanwhile.
    pub fn waits(&self) -> bool {
        self.name == "wait" || self.name.starts_with("wait-for")
    }

    /// Whether it must not call the driver: what it releases lives on, or is no instance of the driver.
    pub fn is_quiet(&self) -> bool {
        QUIET.contains(&self.name)
    }

    /// Whether it can die twice, and stand still while another process runs: one that waits has a helper, and processes of
    /// the world are not put back.
    pub fn meets_others(&self) -> bool {
        !self.waits() && !self.is_fresh
    }
}

const QUIET: &[&str] = &[
    "delete-to-idle",
    "gc-of-earlier-boot",
    "delete-adopted",
    "delete-shared",
    "delete-gpu",
    "poststop-gpu",
    "gc-of-gpu",
    "delete-share",
    "delete-share-beside",
    "poststop-share",
    "gc-of-share",
    "gc-of-share-beside",
    "delete-seat-beside",
    "delete-mps",
    "gc-of-mps",
    "delete-mps-seat-beside",
    "unprepare-to-idle",
    "unprepare-promise",
    "cordon",
    "uncordon",
];

/// A layout, and the empty one that ends what it made.
pub const WANTED: &str = r#"{"1g.6gb": 2}"#;
pub const EMPTY: &str = "{}";

const KEPT: &str = "keep_idle = \"5m\"";
const NONE: &str = "sharing.enforcement = [\"none\"]";
const MPS: &str = "sharing.enforcement = [\"mps\"]";
const ADOPT: &str = "adopt = true";
const TWO: &str = "policy.slices_per_container = 2";
const GPUS: &str = "policy.gpus_per_container = 2";

/// Makes the operations of a table: `NAME, CONFIGURATION => BEFORE, ACT;`, in groups by their GPUs without MIG and whether
/// they need a fresh world.
macro_rules! operations {
    ($([$gpus:literal, $is_fresh:literal] $($name:literal, $config:expr => $before:expr, $act:expr;)+)+) => {[$($(
        Operation {
            name: $name,
            gpus: $gpus,
            config: $config,
            is_fresh: $is_fresh,
            before: $before,
            act: $act,
        }
    ),+),+]};
}

pub const ALL: &[Operation] = &operations! {
    [0, false]
    "create", "" => |w, _| slice(w, ID), create_victim;
    "create-again", "" => |w, i| made(w, i, &[ID], slice), create_victim;
    "create-from-idle", KEPT => |w, i| idle(w, i, &[ID]), create_victim;
    "create-evicting", KEPT => |w, i| {
        idle(w, i, &[ID, PEER]);
        w.ask(ID, &[("runmig.dev/slice", WHOLE)]);
    }, create_victim;
    "create-adopting", ADOPT => |w, _| {
        w.admin_leaves(2);
        slice(w, ID);
    }, create_victim;
    "create-shared", "" => |w, i| {
        made(w, i, &[PEER], in_pod);
        in_pod(w, ID);
    }, create_victim;
    "create-two", TWO => |w, _| two(w), create_victim;
    "create-seat", NONE => |w, _| seat(w, ID), create_victim;
    "create-seat-beside", NONE => |w, i| {
        made(w, i, &[PEER], seat);
        seat(w, ID);
    }, create_victim;
    "wait", "" => |w, i| wait(w, i, "10m"), create_victim;
    "wait-in-vain", "" => |w, i| wait(w, i, "1ms"), create_victim;
    "delete", "" => |w, i| made(w, i, &[ID], slice), delete_victim;
    "delete-to-idle", KEPT => |w, i| made(w, i, &[ID], slice), delete_victim;
    "delete-adopted", ADOPT => |w, i| {
        w.admin_leaves(2);
        made(w, i, &[ID], slice);
    }, delete_victim;
    "delete-shared", "" => |w, i| made(w, i, &[PEER, ID], in_pod), delete_victim;
    "delete-last-shared", "" => |w, i| {
        made(w, i, &[PEER, ID], in_pod);
        end(w, PEER).unwrap();
    }, delete_victim;
    "gc-of-shared", "" => |w, i| made(w, i, &[ID, OTHER], in_pod), gc;
    "delete-two", TWO => |w, i| {
        two(w);
        create(w, ID, i.victim).unwrap();
    }, delete_victim;
    "delete-seat", NONE => |w, i| made(w, i, &[ID], seat), delete_victim;
    "delete-seat-beside", NONE => |w, i| made(w, i, &[PEER, ID], seat), delete_victim;
    "poststop", "" => |w, i| made(w, i, &[ID], slice), poststop;
    "poststop-seat", NONE => |w, i| made(w, i, &[ID], seat), poststop;
    "gc", "" => |w, i| made(w, i, &[ID], slice), gc;
    "gc-of-seats", NONE => |w, i| made(w, i, &[ID, OTHER], seat), gc;
    "gc-of-idle", "keep_idle = \"1ns\"" => |w, i| idle(w, i, &[ID]), gc;
    "gc-of-earlier-boot", "" => |w, i| {
        made(w, i, &[ID], slice);
        w.reboot();
    }, gc;
    "promise", "" => |_, _| (), |w, _| promise(w);
    "prepare", "" => |_, _| (), |w, _| prepare(w);
    "prepare-promised", "" => |w, _| promise(w).unwrap(), |w, _| prepare(w);
    "unprepare", "" => |w, _| prepare(w).unwrap(), |w, _| unprepare(w);
    "unprepare-to-idle", KEPT => |w, _| prepare(w).unwrap(), |w, _| unprepare(w);
    "unprepare-promise", "" => |w, _| promise(w).unwrap(), |w, _| unprepare(w);
    "prepare-from-idle", KEPT => |w, _| {
        prepare(w).unwrap();
        unprepare(w).unwrap();
    }, |w, _| prepare(w);
    "cordon", "" => |w, i| made(w, i, &[PEER], slice), |w, _| cordon(w);
    "cordon-and-drain", KEPT => |w, i| {
        idle(w, i, &[ID]);
        made(w, i, &[PEER], slice);
    }, |w, _| drain(w);
    "uncordon", "" => |w, _| cordon(w).unwrap(), |w, _| uncordon(w).map(drop);
    "apply", KEPT => |w, i| idle(w, i, &[ID]), |w, _| apply(w, WANTED);

    [2, false]
    "create-gpu", GPUS => |w, _| gpu(w, ID), create_victim;
    "create-two-gpus", GPUS => |w, _| w.ask(ID, &[("runmig.dev/gpu", "2")]), create_victim;
    "delete-gpu", GPUS => |w, i| made(w, i, &[ID], gpu), delete_victim;
    "gc-of-gpu", GPUS => |w, i| made(w, i, &[ID], gpu), gc;
    "create-share", NONE => |w, _| share(w, ID), create_victim;
    "create-share-beside", NONE => |w, i| {
        made(w, i, &[PEER], share);
        share(w, ID);
    }, create_victim;
    "delete-share-beside", NONE => |w, i| made(w, i, &[PEER, ID], share), delete_victim;
    "gc-of-share", NONE => |w, i| made(w, i, &[ID], share), gc;
    "gc-of-share-beside", NONE => |w, i| made(w, i, &[PEER, ID], share), gc;
    "poststop-gpu", GPUS => |w, i| made(w, i, &[ID], gpu), poststop;
    "poststop-share", NONE => |w, i| made(w, i, &[ID], share), poststop;
    "delete-share", NONE => |w, i| made(w, i, &[ID], share), delete_victim;
    "wait-for-gpu", GPUS => |w, i| {
        all_gpus(w, i);
        w.ask(ID, &[("runmig.dev/gpu", "1"), ("runmig.dev/wait", "10m")]);
    }, create_victim;
    "wait-for-share", "policy.gpus_per_container = 2\nsharing.enforcement = [\"none\"]" => |w, i| {
        all_gpus(w, i);
        w.ask(ID, &[("runmig.dev/share", "1/2"), ("runmig.dev/wait", "10m")]);
    }, create_victim;

    [2, true]
    "create-mps-beside", MPS => |w, i| {
        made(w, i, &[PEER], mps);
        mps(w, ID);
    }, create_victim;
    "gc-restarting-mps", MPS => |w, i| {
        made(w, i, &[PEER], mps);
        kill_daemons(w);
    }, gc;
    "create-mps", MPS => |w, _| mps(w, ID), create_victim;
    "delete-mps", MPS => |w, i| made(w, i, &[ID], mps), delete_victim;
    "gc-of-mps", MPS => |w, i| made(w, i, &[ID], mps), gc;

    [0, true]
    "gc-restarting-mps-seat", MPS => |w, i| {
        made(w, i, &[PEER], mps_seat);
        kill_daemons(w);
    }, gc;
    "create-mps-seat", MPS => |w, _| mps_seat(w, ID), create_victim;
    "delete-mps-seat", MPS => |w, i| made(w, i, &[ID], mps_seat), delete_victim;
    "delete-mps-seat-beside", MPS => |w, i| made(w, i, &[PEER, ID], mps_seat), delete_victim;
};

pub fn named(name: &str) -> Option<&'static Operation> {
    ALL.iter().find(|operation| operation.name == name)
}

fn slice(w: &World, id: &str) {
    w.ask(id, &[("runmig.dev/slice", PROFILE)]);
}

fn two(w: &World) {
    w.ask(ID, &[("runmig.dev/slice", &format!("{PROFILE}*2"))]);
}

fn in_pod(w: &World, id: &str) {
    let all = [
        ("runmig.dev/slice", PROFILE),
        ("runmig.dev/scope", "pod"),
        ("io.kubernetes.cri.sandbox-id", "pod"),
    ];
    w.ask(id, &all);
}

fn seat(w: &World, id: &str) {
    w.ask(
        id,
        &[("runmig.dev/slice", PROFILE), ("runmig.dev/share", "1/2")],
    );
}

fn mps_seat(w: &World, id: &str) {
    w.install_mps();
    seat(w, id);
}

fn gpu(w: &World, id: &str) {
    w.ask(id, &[("runmig.dev/gpu", "1")]);
}

fn share(w: &World, id: &str) {
    w.ask(id, &[("runmig.dev/share", "1/2")]);
}

fn mps(w: &World, id: &str) {
    w.install_mps();
    share(w, id);
}

/// Gives all GPUs without MIG to a container.
fn all_gpus(w: &World, inits: Inits) {
    w.ask(PEER, &[("runmig.dev/gpu", "2")]);
    create(w, PEER, inits.others).unwrap();
}

/// Kills the control programs of all MPS daemons.
fn kill_daemons(w: &World) {
    let store = Store::existing(&w.path("state"), Duration::from_secs(5))
        .unwrap()
        .unwrap();
    for held in store.list().unwrap().held() {
        let daemon = held.lease.daemon().and_then(|daemon| daemon.process);
        let pid = nix::unistd::Pid::from_raw(daemon.unwrap().pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        while process::of(pid.as_raw()).is_some_and(|p| process::is_alive(&p)) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Brings the GPU with MIG to a layout. Returns whether nothing was left to do.
pub fn apply_to(w: &World, instances: &str) -> Result<bool> {
    let config = w.config();
    let (leases, _) = bundles::existing_or_new(&config, Actor::Operator)?;
    let text = format!(
        r#"{{"version": "v1", "mig-configs": {{"wanted":
            [{{"devices": [0], "mig-enabled": true, "mig-devices": {instances}}}]}}}}"#
    );
    let wanted = LayoutFile::parse(&text)?.select(None)?;
    let applied = leases.apply(&wanted, ApplyOptions::default())?;
    Ok(applied.instances.iter().all(|i| i.change == "keep"))
}

pub fn cordon(w: &World) -> Result<()> {
    let config = w.config();
    let (leases, _) = bundles::existing_or_new(&config, Actor::Operator)?;
    leases.cordon(&place(w).gpu, Some("a repair"), false)
}

/// As `migctl drain` without a wait.
fn drain(w: &World) -> Result<()> {
    let config = w.config();
    let (leases, _) = bundles::existing_or_new(&config, Actor::Operator)?;
    leases.cordon(&place(w).gpu, None, true)?;
    leases.gc(false)?;
    for entry in leases.store().list()?.entries {
        if entry.idle_since().is_some() {
            leases.release_instance(entry.instance(), Patience::default())?;
        }
    }
    Ok(())
}

pub fn uncordon(w: &World) -> Result<bool> {
    let config = w.config();
    let (leases, _) = bundles::existing_or_new(&config, Actor::Operator)?;
    leases.uncordon(&place(w).gpu)
}

fn apply(w: &World, instances: &str) -> Result<()> {
    apply_to(w, instances).map(drop)
}

/// Makes containers.
fn made(w: &World, inits: Inits, ids: &[&str], ask: fn(&World, &str)) {
    for id in ids {
        ask(w, id);
        let init = if *id == PEER {
            inits.others
        } else {
            inits.victim
        };
        create(w, id, init).unwrap();
    }
}

/// Leaves idle slices of containers.
fn idle(w: &World, inits: Inits, ids: &[&str]) {
    made(w, inits, ids, slice);
    for id in ids {
        end(w, id).unwrap();
    }
    slice(w, ID);
}

/// Another container has the whole GPU, and the victim waits this long for a slice.
fn wait(w: &World, inits: Inits, wait: &str) {
    w.ask(PEER, &[("runmig.dev/slice", WHOLE)]);
    create(w, PEER, inits.others).unwrap();
    w.ask(
        ID,
        &[("runmig.dev/slice", PROFILE), ("runmig.dev/wait", wait)],
    );
}

fn create_victim(w: &World, inits: Inits) -> Result<()> {
    create(w, ID, inits.victim)
}

fn delete_victim(w: &World, _: Inits) -> Result<()> {
    delete(w, ID)
}

/// The holder of all room ends once a create waits, or the test is over.
pub fn make_way(w: &World) -> Result<()> {
    let waits = || {
        let store = Store::existing(&w.path("state"), Duration::from_secs(5));
        let waiting = store.map(|store| store.map(|store| store.waiting()));
        matches!(waiting, Ok(Some(Ok(waiting))) if !waiting.is_empty())
    };
    while !waits() && !w.note("over").exists() {
        std::thread::sleep(Duration::from_micros(200));
    }
    end(w, PEER)
}

/// Makes a container as `runtime::create` does, whose low-level runtime only writes down a process of the test.
pub fn create(w: &World, id: &str, init: i32) -> Result<()> {
    let config = w.config();
    let dir = w.bundle(id);
    let bundle = Bundle::open(&dir)?;
    let (leases, _lock) = bundles::open_for(&config, &bundle, &dir)?;
    let request = request::parse(&w.annotations(id))?;
    let request = request.ok_or_else(|| Error::new("the container asks for nothing"))?;
    let original = bundle.original(&Default::default(), None)?;
    let acquired = leases.acquire(w.container(id), &request, w.cgroup(id))?;
    let all = &acquired.leases;
    let made = (|| {
        let edited = edited(&original, all);
        bundle.install(leases.author(all)?, &original, &edited)?;
        // One that has ended by the time of any look.
        let runtime = Process {
            pid: i32::MAX,
            start_time: 1,
        };
        for held in all {
            if leases.started(&held.lease, runtime)?.is_none() {
                return Err(Error::new("another process has removed the lease"));
            }
        }
        w.start_container(id, init)
    })();
    if let Err(e) = made {
        return Err(e.and(over(&leases, &bundle, all).err()));
    }
    leases.count_created(None);
    for held in all {
        // The container exists, even if runmig cannot record that.
        let _ = leases.ready(&held.lease);
    }
    leases.created(all, None);
    Ok(())
}

/// Releases the leases of a create that failed, as `runtime::create` does.
fn over(leases: &Leases<'_>, bundle: &Bundle, all: &[Held]) -> Result<()> {
    let released = error::all(
        all.iter()
            .map(|held| leases.release_if_over(held, Patience::default()).map(drop)),
    );
    let restored = bundle.restore(&all[0].lease.id);
    error::all([released, restored.map(drop)])
}

/// Names the devices of leases in a config.json.
fn edited(original: &[u8], leases: &[Held]) -> Vec<u8> {
    let uuids: Vec<String> = leases.iter().filter_map(uuid_of).collect();
    let to = format!(
        "\"PATH=/bin\", \"NVIDIA_VISIBLE_DEVICES={}\"",
        uuids.join(",")
    );
    String::from_utf8_lossy(original)
        .replace("\"PATH=/bin\"", &to)
        .into_bytes()
}

/// Returns the UUID that a lease gives its container: of the MIG device, or of the GPU.
pub fn uuid_of(held: &Held) -> Option<String> {
    held.instance.resource.device().map(str::to_owned)
}

/// Releases what a container has that has ended, by the delete of its low-level runtime.
pub fn delete(w: &World, id: &str) -> Result<()> {
    let config = w.config();
    match bundles::existing(&config, Actor::Delete)? {
        Some(leases) => leases.release_if_dead(&w.key(id), true),
        None => Ok(()),
    }
}

/// Ends a container that the test does not kill, and releases what it has.
pub fn end(w: &World, id: &str) -> Result<()> {
    w.remove_container(id);
    let config = w.config();
    let Some(leases) = bundles::existing(&config, Actor::Operator)? else {
        return Ok(());
    };
    for held in leases.of(&w.key(id))? {
        leases.release_unless(&held, Patience::default(), |_| None)?;
    }
    Ok(())
}

fn poststop(w: &World, _: Inits) -> Result<()> {
    let config = w.config();
    let Some(leases) = bundles::existing(&config, Actor::Hook)? else {
        return Ok(());
    };
    let released = leases.of(&w.key(ID))?.into_iter().map(|held| {
        let lives = |lease: &Lease| Liveness::here().container_lives(lease);
        let returned = leases.release_unless(&held, Patience::default(), lives)?;
        match returned {
            Returned::No(life) => Err(Error::new(format!("the hook leaves the slice: {life}"))),
            _ => Ok(()),
        }
    });
    error::all(released.collect::<Vec<_>>())
}

pub fn gc(w: &World, _: Inits) -> Result<()> {
    let config = w.config();
    match bundles::existing(&config, Actor::Gc)? {
        Some(leases) => leases.gc(false).map(drop),
        None => Ok(()),
    }
}

/// The calls of the kubelet's driver for a claim.
pub fn prepare(w: &World) -> Result<()> {
    let config = w.config();
    let leases = Leases::open(&config, Box::new(NoBundles))?;
    let patience = Duration::from_millis(300);
    leases
        .prepare(claim(), &place(w), patience, &|_| ())
        .map(drop)
}

fn promise(w: &World) -> Result<()> {
    let config = w.config();
    let leases = Leases::open(&config, Box::new(NoBundles))?;
    leases.promise(claim(), &place(w), &|_| ()).map(drop)
}

pub fn unprepare(w: &World) -> Result<()> {
    let config = w.config();
    let leases = Leases::open(&config, Box::new(NoBundles))?;
    leases.unprepare(ID, Patience::default())
}

fn place(w: &World) -> ClaimPlace {
    ClaimPlace {
        gpu: GpuUuid::new(w.engine().gpus[0].uuid.clone()),
        profile: PROFILE.to_owned(),
        placement: Placement { start: 0, size: 1 },
    }
}

fn claim() -> Claim {
    Claim {
        uid: ID.to_owned(),
        namespace: "team-a".to_owned(),
        name: "claim".to_owned(),
        request: "slice".to_owned(),
        pool: "runmig.node".to_owned(),
        device: "device".to_owned(),
        pods: vec![ClaimPod {
            uid: "pod-uid".to_owned(),
            name: "train".to_owned(),
        }],
    }
}
