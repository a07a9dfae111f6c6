//! Operations on leases over the simulated driver, in this process: what they make, tell and leave behind.

mod transcripts;

use nvml_sim::engine::Mode;
use nvml_sim::fault::{self, Rule};
use runmig_lease::config::Config;
use runmig_lease::counters::{Actor, Counter, HolderKind, LeaseKind, Outcome as End};
use runmig_lease::error::Result;
use runmig_lease::events::{Event, History};
use runmig_lease::layout::LayoutFile;
use runmig_lease::model::{Cgroup, GpuUuid, Placement};
use runmig_lease::request::Request;
use runmig_lease::store::{Claim, Container, Held, Key};
use runmig_lease::{
    Applied, ApplyOptions, BundleAccount, ClaimPlace, Inventory, LeaseView, Leases, Made,
    NoBundles, Patience, Returned, observe, process, request,
};
use std::cell::RefCell;
use testkit::faults::machine;
use testkit::faults::simulated::Simulated;
use testkit::prelude::{
    BTreeMap, Child, Command, Duration, Path, PathBuf, Stdio, TempDir, Value, begins_with, fs, has,
    json,
};

const IN_USE: u32 = 19;

struct Node {
    dir: TempDir,
    machine: Simulated,
    config: Config,
    inits: RefCell<BTreeMap<String, Child>>,
}

impl Node {
    /// Makes a machine with a GPU in MIG mode, so many GPUs without it, and a configuration.
    fn new(model: &str, without_mig: u32, more: &str) -> Node {
        let dir = testkit::temporary("runmig-leases-", &std::env::temp_dir());
        let machine = machine::new(dir.path().join("machine"), model, 1, without_mig);
        let text = format!(
            "state_dir = {:?}\ndata_dir = {:?}\ndriver_files = \"none\"\n{more}\n[driver]\nlibrary = {:?}\nroot = {:?}\n",
            dir.path().join("state"),
            dir.path().join("data"),
            machine.0.join("lib/libnvidia-ml.so.1"),
            machine.0
        );
        let config = Config::parse(&text).unwrap();
        Node {
            dir,
            machine,
            config,
            inits: RefCell::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn leases(&self) -> Leases<'_> {
        Leases::open(&self.config, Box::new(NoBundles)).unwrap()
    }

    fn asked(&self, annotations: &[(&str, &str)]) -> Result<Request> {
        let whole = |key: &str| match key.contains('.') {
            true => key.to_owned(),
            false => format!("runmig.dev/{key}"),
        };
        let pairs = annotations.iter();
        let pairs = pairs.map(|(key, value)| (whole(key), (*value).to_owned()));
        Ok(request::parse(&pairs.collect::<Vec<_>>())?.expect("a request"))
    }

    /// Creates a container, whose first process ends with its standard input.
    fn create(&self, id: &str, annotations: &[(&str, &str)]) -> Result<Held> {
        let wanted = self.asked(annotations)?;
        let holder = Container {
            key: Key::new(self.path("root"), id.to_owned()),
            container_name: Some("main".to_owned()),
            user: Some(7),
            ..Container::default()
        };
        let name = self.dir.path().file_name().unwrap().to_string_lossy();
        let cgroup = Cgroup {
            names: vec![format!("{name}-{id}")],
            path: None,
        };
        let leases = self.leases();
        let acquired = leases.acquire(holder, &wanted, cgroup)?;
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let init = process::of(child.id() as i32).unwrap();
        self.inits.borrow_mut().insert(id.to_owned(), child);
        let state = json!({"init_process_pid": init.pid, "init_process_start": init.start_time});
        fs::create_dir_all(self.path("root").join(id)).unwrap();
        fs::write(
            self.path("root").join(id).join("state.json"),
            state.to_string(),
        )
        .unwrap();
        let runtime = Some(Duration::from_secs(2));
        leases.count_created(runtime);
        leases
            .ready(&acquired.leases[0].lease)?
            .expect("the lease is on record");
        leases.created(&acquired.leases, runtime);
        Ok(leases.store().get(&acquired.leases[0].lease.id)?.unwrap())
    }

    fn ends(&self, id: &str) {
        let mut init = self.inits.borrow_mut().remove(id).unwrap();
        drop(init.stdin.take());
        init.wait().unwrap();
    }

    /// Lets the first calls of a function fail.
    fn fails(&self, call: &str, times: u64, code: u32) {
        let outcome = fault::Outcome::Return(code);
        let rule = Rule {
            to: Some(times),
            ..Rule::nth(call, 1, outcome)
        };
        fault::add(&self.machine.0, rule).unwrap();
    }

    #[track_caller]
    fn is_empty(&self) {
        assert_eq!((self.machine.instances(), self.views()), (vec![], vec![]));
    }

    fn apply(&self, entry: Value) -> Result<Applied> {
        let file = json!({"version": "v1", "mig-configs": {"wanted": [entry]}});
        let layout = LayoutFile::parse(&file.to_string())?.select(None)?;
        self.leases().apply(&layout, ApplyOptions::default())
    }

    fn events(&self) -> Vec<Event> {
        let (mut history, mut all) = (History::new(&self.path("state/events.jsonl")), Vec::new());
        history.read(true, &mut |event| all.push(event)).unwrap();
        all
    }

    fn told(&self) -> Vec<String> {
        self.events()
            .iter()
            .map(|event| event.event_type.word().to_owned())
            .collect()
    }

    fn views(&self) -> Vec<LeaseView> {
        let listing = self.leases().store().list().unwrap();
        listing.entries.iter().map(LeaseView::from).collect()
    }

    /// Returns the states on record, in their order.
    fn states(&self) -> Vec<String> {
        let mut states: Vec<_> = self
            .views()
            .into_iter()
            .map(|view| view.state.unwrap())
            .collect();
        states.sort();
        states
    }

    fn count(&self, counter: Counter) -> u64 {
        self.leases().store().list().unwrap().counters.get(counter)
    }
}

#[test]
fn tells_a_slice_from_create_to_release() {
    let node = Node::new("A30-24GB", 0, "");
    let held = node.create("train", &[("slice", "1g.6gb")]).unwrap();
    let made = node.machine.instances();
    let slice = held.instance.slice().unwrap();
    assert_eq!(made[0].uuids.as_slice(), slice.mig_uuid.as_slice());
    assert_eq!(
        (made.len(), Some(made[0].gi), made[0].start),
        (1, slice.gpu_instance, slice.placement.start)
    );
    let init = node.inits.borrow()["train"].id() as i32;
    assert_eq!(held.lease.init.map(|init| init.pid), Some(init));
    assert_eq!(node.told(), ["created", "ready"]);
    let events = node.events();
    let (ready, seconds) = (&events[1], events[1].seconds.clone().unwrap());
    assert_eq!(ready.lease, node.views().pop());
    assert_eq!(
        (ready.verdict.as_deref(), ready.user),
        (Some(End::Created.word()), Some(7))
    );
    let [total, driver] = [seconds.total, seconds.driver].map(|time| time.unwrap());
    assert!(total >= driver && driver > 0.0);
    assert_eq!((seconds.wait, seconds.runtime), (Some(0.0), Some(2.0)));
    let created = Counter::Creates(LeaseKind::Slice, HolderKind::Container, End::Created);
    assert_eq!(node.count(created), 1);

    let leases = node.leases().acting_as(Actor::Operator);
    let release = |life: Option<&str>| {
        leases
            .release_unless(&held, Patience::default(), |_| life.map(str::to_owned))
            .unwrap()
    };
    assert_eq!(
        release(Some("it lives")),
        Returned::No("it lives".to_owned())
    );
    assert_eq!(node.machine.instances(), made);
    node.fails("nvmlComputeInstanceDestroy", 1, IN_USE);
    assert_eq!(release(None), Returned::Yes);
    node.is_empty();
    assert_eq!(node.told(), ["created", "ready", "released"]);
    assert_eq!(
        node.count(Counter::Releases(LeaseKind::Slice, Actor::Operator)),
        1
    );

    // A refused create leaves nothing.
    let refused = node.create("train", &[("slice", "7g.80gb")]).unwrap_err();
    assert_eq!(node.events().pop().unwrap().error, Some(refused.line()));
    node.is_empty();
}

#[test]
fn applies_layouts_around_leases() {
    let node = Node::new("A30-24GB", 0, "adopt = true");
    let to = |instances: Value| {
        node.apply(json!({"devices": "all", "mig-enabled": true, "mig-devices": instances}))
            .unwrap()
    };
    let changes = |applied: &Applied| {
        let one = |i: &runmig_lease::PlannedInstance| {
            (
                i.change,
                i.profile.clone(),
                i.compute_slices.clone(),
                i.is_whole,
            )
        };
        let mut all: Vec<_> = applied.instances.iter().map(one).collect();
        all.sort();
        all
    };
    let parts = json!({"1c.2g.12gb": 2, "1g.6gb": 2});
    let three = |change| {
        let one = |name: &str, slices: &[u32], is_whole| {
            (change, name.to_owned(), slices.to_vec(), is_whole)
        };
        vec![
            one("1g.6gb", &[1], true),
            one("1g.6gb", &[1], true),
            one("2g.12gb", &[1, 1], false),
        ]
    };
    for change in ["create", "keep"] {
        let applied = to(parts.clone());
        assert_eq!(changes(&applied), three(change));
        assert_eq!(
            (applied.layout.as_str(), applied.made, applied.refusal()),
            ("wanted", Made::All, None)
        );
        let uuids = node
            .machine
            .instances()
            .iter()
            .map(|i| i.uuids.len())
            .sum::<usize>();
        assert_eq!((uuids, node.states()), (4, vec!["layout".to_owned(); 3]));
    }
    let listing = node.leases().store().list().unwrap();
    let slices = { listing.entries.iter() }.map(|entry| entry.instance().slice().unwrap());
    assert!(
        slices
            .into_iter()
            .all(|s| s.compute_instance.is_some() == (s.profile == "1g.6gb"))
    );

    let held = node.create("train", &[("slice", "1g.6gb")]).unwrap();
    let there = node.machine.instances();
    assert_eq!(there.len(), 3);
    let applied = to(json!({"4g.24gb": 1}));
    let refusal = applied.refusal().unwrap();
    let at = held.instance.slice().unwrap().placement;
    begins_with(
        &refusal,
        &format!(
            "cannot apply layout wanted: container main (train) has 1g.6gb at {at} on GPU 0; hint: end"
        ),
    );
    has(&refusal, "nothing has changed");
    assert_eq!(
        (applied.made, node.machine.instances()),
        (Made::Nothing, there)
    );
    let applied = to(json!({"1g.6gb": 1, "2g.12gb": 1}));
    assert!(
        applied
            .instances
            .iter()
            .any(|i| i.change == "keep" && i.mig_placement == at)
    );
    assert_eq!(node.states(), ["layout", "ready"]);

    node.ends("train");
    node.leases().gc(false).unwrap();
    assert_eq!(node.states(), ["layout"; 2]);
    to(json!({}));
    node.is_empty();
    let applied = node
        .told()
        .into_iter()
        .filter(|told| told == "layout-applied");
    assert_eq!(applied.count(), 4);
}

#[test]
fn switches_mig_off_and_on() {
    let node = Node::new("H100-80GB", 0, "");
    let seven = json!({"devices": [0], "mig-enabled": true, "mig-devices": {"1g.10gb": 7}});
    let off = json!({"devices": "all", "mig-enabled": false});
    for (entry, mode, count) in [
        (&seven, Mode::On, 7),
        (&off, Mode::Off, 0),
        (&off, Mode::Off, 0),
        (&seven, Mode::On, 7),
    ] {
        let before = node.machine.engine().gpus[0].mode;
        let applied = node.apply(entry.clone()).unwrap();
        let modes: Vec<bool> = applied.modes.iter().map(|mode| mode.mig_enabled).collect();
        let switched = (before != mode).then_some(mode == Mode::On);
        assert_eq!(
            (modes.as_slice(), applied.made),
            (switched.as_slice(), Made::All)
        );
        assert_eq!(
            (
                node.machine.engine().gpus[0].mode,
                node.machine.instances().len()
            ),
            (mode, count)
        );
        assert_eq!(node.states(), vec!["layout"; count]);
    }
}

#[test]
fn finds_what_a_lost_ledger_does_not_tell() {
    let node = Node::new("A30-24GB", 0, "");
    let create = |id| {
        let held = node.create(id, &[("slice", "1g.6gb")]).unwrap();
        let author = node.leases().author(std::slice::from_ref(&held)).unwrap();
        (
            held.lease.id.clone(),
            BundleAccount {
                author: Some(author),
                uuids: Vec::new(),
            },
        )
    };
    let (lost, damaged) = (create("lost"), create("damaged"));
    fs::remove_dir_all(node.path("state")).unwrap();
    let recover = |id: &str| node.leases().recover(&lost.1, &lost.0, id);
    begins_with(
        &recover("other").unwrap_err().line(),
        &format!("cannot release lease {}: its bundle does not tell", lost.0),
    );
    assert_eq!(recover("lost").unwrap().unwrap().lease.id, lost.0);
    assert_eq!(node.views()[0].container.as_deref(), Some("lost"));

    let end = || {
        node.leases()
            .end_unrecorded(&damaged.1, &damaged.0, "damaged", Path::new("/gone"))
    };
    assert!(!end().unwrap(), "the ledger is whole");
    fs::write(node.path("state/ledger.json"), "").unwrap();
    node.fails("nvmlComputeInstanceDestroy", 2, IN_USE);
    assert!(end().unwrap());
    assert_eq!(node.machine.instances().len(), 1);
    let repaired = node.leases().repair().unwrap().unwrap();
    assert_eq!(repaired.without_owner.len(), 1);
    assert!(node.leases().repair().unwrap().is_none());
    assert!(recover("lost").unwrap().is_some());
    node.ends("lost");
    node.leases().gc(false).unwrap();
    node.is_empty();
    assert_eq!(recover("lost").unwrap(), None);
}

#[test]
fn keeps_a_place_for_a_claim() {
    let node = Node::new("A30-24GB", 0, "");
    let gpu = GpuUuid::new(node.machine.engine().gpus[0].uuid.clone());
    let at = ClaimPlace {
        gpu: gpu.clone(),
        profile: "1g.6gb".to_owned(),
        placement: Placement { start: 2, size: 1 },
    };
    let claim = Claim {
        uid: "uid".to_owned(),
        namespace: "ns".to_owned(),
        name: "train".to_owned(),
        ..Claim::default()
    };
    let leases = node.leases();
    leases.promise(claim.clone(), &at, &|_| ()).unwrap();
    assert_eq!(
        (node.states(), node.machine.instances()),
        (vec!["promised".to_owned()], vec![])
    );
    let refused = node
        .create("whole", &[("slice", "4g.24gb")])
        .unwrap_err()
        .line();
    has(&refused, "cannot allocate");
    let held = leases.prepare(claim, &at, Duration::ZERO, &|_| ()).unwrap();
    assert_eq!(held.instance.slice().unwrap().placement, at.placement);
    assert_eq!(
        (node.states(), node.machine.instances()[0].start),
        (vec!["ready".to_owned()], 2)
    );
    leases.unprepare("uid", Patience::default()).unwrap();
    assert_eq!((node.states(), node.machine.instances()), (vec![], vec![]));
}

#[test]
fn counts_each_part_of_a_gpu_once() {
    let config = "sharing.enforcement = [\"none\"]\nkeep_idle = \"5m\"";
    let node = Node::new("A30-24GB", 3, config);
    for (id, kind, much) in testkit::rows! {
        "idle", "slice" => "1g.6gb";
        "slice", "slice" => "1g.6gb";
        "whole", "gpu" => "1";
        "share", "share" => "4Gi";
    } {
        node.create(id, &[(kind, much)]).unwrap();
    }
    node.ends("idle");
    node.leases().gc(false).unwrap();
    let starts: Vec<u32> = node.machine.instances().iter().map(|i| i.start).collect();
    let free = (0..4).find(|start| !starts.contains(start)).unwrap();
    node.machine.admin_creates(0, "1g.6gb", free, true);

    let driver = runmig_lease::driver(&node.config);
    let inventory = Inventory::look(&node.config, &driver).unwrap();
    let bookings = inventory.bookings(&driver);
    let slice = inventory.snapshot.gpus[0]
        .profiles
        .iter()
        .find(|p| p.name == "1g.6gb")
        .unwrap()
        .memory_mib;
    let of = |id: &str| {
        let held = inventory
            .leases
            .iter()
            .find(|held| held.lease.holder.name() == id)
            .unwrap();
        (held, held.instance.resource.gpu_index() as usize)
    };
    let ((whole, on), (share, beside)) = (of("whole"), of("share"));
    let total = whole.instance.resource.memory_mib();
    for (index, booked, memory, compute) in testkit::rows! {
        0, slice, [slice, slice, 0, slice] => [1, 1, 0, 1, 1];
        on, total, [total, 0, 0, 0] => [1, 0, 0, 0, 0];
        beside, 4096, [4096, 0, 0, 0] => [1, 0, 0, 0, 0];
        6 - on - beside, 0, [0; 4] => [0, 0, 0, 0, 1];
    } {
        let booking = &bookings[index];
        assert_eq!((booking.booked_mib, booking.is_told), (booked, true));
        let parts = inventory.parts(
            booking.gpu,
            &inventory.use_of(&driver, booking.gpu),
            booking.total_mib,
        );
        let parts_of_memory = parts.memory_bytes.unwrap();
        assert_eq!(parts_of_memory[..4], memory.map(|mib: u64| mib << 20));
        assert_eq!(
            parts_of_memory.iter().sum::<u64>() >> 20,
            booking.total_mib.unwrap()
        );
        assert_eq!(parts.compute_slices, Some(compute));
        assert_eq!(
            parts.memory_slices,
            if index == 0 { compute } else { [0; 5] }
        );
    }
    let entries = inventory.entries();
    let views = inventory.slices(&entries);
    let mut states: Vec<_> = { views.iter() }
        .map(|view| (view.gpu_index, view.state.unwrap_or("none"), view.kind()))
        .collect();
    states.sort_unstable();
    let mut wanted = vec![
        (0, "foreign", ""),
        (0, "idle", "slice"),
        (0, "leased", "slice"),
    ];
    wanted.extend([
        (on as u32, "leased", "gpu"),
        (beside as u32, "leased", "share"),
    ]);
    wanted.push((6 - on as u32 - beside as u32, "none", ""));
    wanted[3..].sort_unstable();
    assert_eq!(states, wanted);
    let seen = observe(&node.config, &driver, &[share]);
    assert_eq!(
        (seen.len(), seen[0].used_bytes, seen[0].unknown.len()),
        (1, Some(0), 0)
    );
}
