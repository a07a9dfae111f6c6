//! Operations on leases over the simulated driver, in this process: what they make, tell and leave behind.

mod transcripts;

use nvml_sim::fault::{self, Rule};
use runmig_lease::config::Config;
use runmig_lease::counters::{Actor, Counter, HolderKind, LeaseKind, Outcome as End};
use runmig_lease::error::{Error, Result};
use runmig_lease::events::{Event, History};
use runmig_lease::layout::LayoutFile;
use runmig_lease::model::{Cgroup, Process};
use runmig_lease::request::Request;
use runmig_lease::store::{ClaimName, Container, Held, Key, Lease};
use runmig_lease::{
    Acquired, Applied, ApplyOptions, BundleAccount, LeaseView, Leases, Made, NoBundles, Patience,
    Returned, process, request,
};
use std::sync::{Arc, Mutex};
use testkit::cgroup2;
use testkit::faults::simulated::Simulated;
use testkit::faults::{daemons, machine};
use testkit::leftovers::remove_cgroup;
use testkit::prelude::{
    BTreeMap, Child, Command, Duration, Path, PathBuf, Stdio, TempDir, Value, begins_with, fs, has,
    json, until,
};
use testkit::process::{executing, kill};

const IN_USE: u32 = 19;
const MPS_CONTROL: &str = "nvidia-cuda-mps-control";

struct Node {
    dir: TempDir,
    machine: Simulated,
    config: Config,
    inits: Mutex<BTreeMap<String, Child>>,
    /// The creates at work.
    creates: Mutex<Vec<Acquired>>,
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
            inits: Mutex::default(),
            creates: Mutex::default(),
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

    /// Creates a container, whose first process ends with its standard input. `cgroup` among the annotations is the path of its
    /// cgroup, in which no process is.
    fn create(&self, id: &str, annotations: &[(&str, &str)]) -> Result<Held> {
        let (cgroup, asked): (Vec<_>, Vec<_>) =
            annotations.iter().partition(|(key, _)| *key == "cgroup");
        let wanted = self.asked(&asked)?;
        let holder = Container {
            key: Key::new(self.path("root"), id.to_owned()),
            container_name: Some("main".to_owned()),
            user: Some(7),
            ..Container::default()
        };
        let name = self.dir.path().file_name().unwrap().to_string_lossy();
        let cgroup = Cgroup {
            names: vec![format!("{name}-{id}")],
            path: cgroup.first().map(|(_, path)| format!("/{name}{path}")),
        };
        let leases = self.leases();
        let acquired = leases.acquire(holder, &wanted, cgroup)?;
        self.begins(id);
        let runtime = Some(Duration::from_secs(2));
        leases.count_created(runtime);
        leases
            .ready(&acquired.leases[0].lease)?
            .expect("the lease is on record");
        leases.created(&acquired.leases, runtime);
        Ok(leases.store().get(&acquired.leases[0].lease.id)?.unwrap())
    }

    /// Starts the first process of a container.
    fn begins(&self, id: &str) -> Process {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let init = process::of(child.id() as i32).unwrap();
        self.inits.lock().unwrap().insert(id.to_owned(), child);
        let state = json!({"init_process_pid": init.pid, "init_process_start": init.start_time});
        fs::create_dir_all(self.path("root").join(id)).unwrap();
        fs::write(
            self.path("root").join(id).join("state.json"),
            state.to_string(),
        )
        .unwrap();
        init
    }

    /// Gives a container of a pod the slice of a claim.
    fn attach(&self, id: &str, claim: &ClaimName, pod: &str) -> Result<Arc<Lease>> {
        let holder = self.in_pod(id, pod);
        let init = self.begins(id);
        self.leases().attach(claim, holder, init, Duration::ZERO)
    }

    /// As `attach`, before the container exists.
    fn attach_new(&self, id: &str, claim: ClaimName, pod: &str) -> Result<Acquired> {
        let cgroup = Cgroup {
            names: Vec::new(),
            path: None,
        };
        let holder = self.in_pod(id, pod);
        self.leases()
            .acquire_claimed(&holder, &[claim], &cgroup, Duration::ZERO)
    }

    fn in_pod(&self, id: &str, pod: &str) -> Container {
        Container {
            key: Key::new(self.path("root"), id.to_owned()),
            namespace: Some("team".to_owned()),
            pod: Some(pod.to_owned()),
            pod_uid: Some(pod.to_owned()),
            ..Container::default()
        }
    }

    /// Returns the cgroup of a container's MPS daemon in one hierarchy; without a container, of one that is gone.
    fn cgroup(&self, of: Option<&str>) -> PathBuf {
        let hierarchy = hierarchies().swap_remove(0);
        let gone = self.dir.path().file_name().unwrap().to_string_lossy();
        let name = of.map_or(gone.into(), |id| self.lease(id).id.to_string());
        hierarchy.join(format!("runmig-mps-{name}"))
    }

    /// Moves the first process of a container into a cgroup of version 2, below those of this machine.
    fn moves(&self, id: &str, to: &str) {
        let cgroup = self.unified(to);
        fs::create_dir_all(&cgroup).unwrap();
        let pid = self.inits.lock().unwrap()[id].id().to_string();
        fs::write(cgroup.join("cgroup.procs"), pid).unwrap();
    }

    fn unified(&self, name: &str) -> PathBuf {
        let of_machine = self.dir.path().file_name().unwrap();
        Path::new(cgroup2::ROOT).join(of_machine).join(name)
    }

    /// Returns the cgroup of a container in one hierarchy.
    fn cgroup_of_container(&self, id: &str) -> PathBuf {
        let name = self.dir.path().file_name().unwrap().to_string_lossy();
        let of_machine = hierarchies().swap_remove(0).join(&*name);
        of_machine.join(format!("{name}-{id}"))
    }

    /// Returns the first process of a container, or the control program of its MPS daemon.
    fn process_of(&self, who: &str, id: &str) -> Process {
        match who {
            "init" => self.lease(id).init,
            _ => self.lease(id).daemon().unwrap().process,
        }
        .unwrap()
    }

    /// Returns the directory of a container's MPS daemon.
    fn home(&self, id: &str) -> PathBuf {
        self.path("state/mps").join(self.lease(id).id.as_str())
    }

    /// Returns the answer of the MPS daemon of a container to a command.
    fn tell(&self, id: &str, command: &str) -> String {
        daemons::ask(&self.machine.0, &self.home(id), command)
    }

    fn lease(&self, id: &str) -> Arc<Lease> {
        let key = Key::new(self.path("root"), id.to_owned());
        self.leases().of(&key).unwrap()[0].lease.clone()
    }

    fn ends(&self, id: &str) {
        let mut init = self.inits.lock().unwrap().remove(id).unwrap();
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

    fn count(&self, counter: Counter) -> u64 {
        self.leases().store().list().unwrap().counters.get(counter)
    }
}

/// Returns the roots of the cgroup hierarchies.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    { mounts.lines() }
        .filter(|line| line.contains(" cgroup"))
        .map(|line| PathBuf::from(line.split(' ').nth(1).unwrap()))
        .collect()
}

impl Drop for Node {
    /// Ends what a test that has failed leaves of MPS daemons.
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.cgroup(None));
        let program = self.machine.0.join("usr/bin").join(MPS_CONTROL);
        executing(&program).into_iter().for_each(kill);
        remove_cgroup(&self.dir.path().file_name().unwrap().to_string_lossy());
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
    let init = node.inits.lock().unwrap()["train"].id() as i32;
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
    assert!(total >= driver);
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
    let events = node.events();
    let told = { events.iter() }.find(|event| event.event_type.word() == "record-damaged");
    has(&told.unwrap().to_string(), "it is cut");
    assert!(node.leases().repair().unwrap().is_none());
    assert!(recover("lost").unwrap().is_some());
    node.ends("lost");
    node.leases().gc(false).unwrap();
    node.is_empty();
    assert_eq!(recover("lost").unwrap(), None);
}

#[test]
fn apply_waits_in_the_queue_for_a_lease_in_its_way() {
    let node = Node::new("A30-24GB", 0, "");
    let held = node.create("train", &[("slice", "1g.6gb")]).unwrap();
    let entry = json!({"devices": "all", "mig-enabled": true, "mig-devices": {"4g.24gb": 1}});
    let file = json!({"version": "v1", "mig-configs": {"wanted": [entry]}});
    let layout = &LayoutFile::parse(&file.to_string()).unwrap();
    let apply = |dry_run: bool| {
        let options = ApplyOptions {
            dry_run,
            wait: Duration::from_secs(60),
            ..ApplyOptions::default()
        };
        let layout = layout.select(None).unwrap();
        node.leases().apply(&layout, options).unwrap().made
    };
    // A plan is told at once.
    assert_eq!(apply(true), Made::Nothing);
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| apply(false));
        until("the apply waits", || {
            let all = node.leases().store().waiting().unwrap();
            all.iter().any(|w| w.waiter.request == "layout wanted")
        });
        let released = node
            .leases()
            .release_unless(&held, Patience::default(), |_| None);
        assert_eq!(released.unwrap(), Returned::Yes);
        assert_eq!(applied.join().unwrap(), Made::All);
    });
}

#[test]
fn tells_creates_that_end_outside_of_an_allocation() {
    let node = Node::new("A30-24GB", 0, "");
    let wanted = node.asked(&[("slice", "1g.6gb")]).unwrap();
    let why = Error::new("it has no rootfs");
    node.leases()
        .count_refused(Some(&wanted), Some(node.in_pod("one", "web")), &why);
    let leases = node.leases();
    let cgroup = Cgroup {
        names: Vec::new(),
        path: None,
    };
    let two = leases.acquire(node.in_pod("two", "web"), &wanted, cgroup);
    leases.count_failed(End::Runtime, None);
    drop((two.unwrap(), leases));
    let told: Vec<_> = { node.events().into_iter() }
        .map(|event| {
            (
                event.lease.unwrap().container.unwrap(),
                event.verdict,
                event.error,
            )
        })
        .collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        told,
        [
            (
                "one".to_owned(),
                some(End::Refused.word()),
                some("it has no rootfs")
            ),
            ("two".to_owned(), None, None),
            ("two".to_owned(), some(End::Runtime.word()), None),
        ]
    );
    for end in [End::Refused, End::Runtime] {
        let counter = Counter::Creates(LeaseKind::Slice, HolderKind::Container, end);
        assert_eq!(node.count(counter), 1, "{end:?}");
    }
}
