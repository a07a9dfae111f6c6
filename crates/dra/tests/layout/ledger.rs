//! The used places of a real ledger over a simulated driver.

use crate::scheduler::counters;
use runmig_dra::resource_slices::{
    Amounts, DeviceName, Node, Published, Uses, lay_out, pool, uses,
};
use runmig_lease::config::Config;
use runmig_lease::model::Cgroup;
use runmig_lease::store::{Claim, Container, Held, Key};
use runmig_lease::{ClaimPlace, Inventory, Leases, NoBundles, Patience, request};
use testkit::prelude::*;

/// A machine with one A100 in MIG mode, and a state directory.
struct Host {
    home: TempDir,
    machine: Machine,
    config: Config,
}

impl Host {
    fn new() -> Host {
        let home = tempfile::tempdir().unwrap();
        let machine = Machine::new("A100-80GB", 1);
        let mut config = Config::default();
        config.driver.library = machine.library();
        config.driver.root = machine.dir();
        config.state_dir = home.path().join("state");
        config.data_dir = home.path().join("data");
        config.keep_idle = Duration::from_secs(3600);
        Host {
            home,
            machine,
            config,
        }
    }

    fn leases(&self) -> Leases<'_> {
        Leases::open(&self.config, Box::new(NoBundles)).unwrap()
    }

    fn uses(&self) -> Uses {
        uses(&self.inventory(), "node-a").unwrap()
    }

    fn acquire(&self, profile: &str) -> Held {
        let annotations = [(request::SLICE.to_owned(), profile.to_owned())];
        let request = request::parse(&annotations).unwrap().unwrap();
        let holder = Container {
            key: Key::new("/run/runc".into(), profile.to_owned()),
            ..Container::default()
        };
        let cgroup = Cgroup {
            names: vec![profile.to_owned()],
            path: None,
        };
        let acquired = self.leases().acquire(holder, &request, cgroup);
        acquired.unwrap().leases.remove(0)
    }

    fn release(&self, held: &Held) {
        let released = { self.leases() }.release_unless(held, Patience::default(), |_| None);
        released.unwrap();
    }

    /// Prepares or promises a device for a claim in a pool.
    fn claim(&self, device: &str, pool: &str, is_prepared: bool) -> Held {
        let name: DeviceName = device.parse().unwrap();
        let inventory = self.inventory();
        let (gpu, profile) = name.find(&inventory.snapshot).unwrap();
        let place = ClaimPlace {
            gpu: gpu.uuid.clone(),
            profile: profile.name.clone(),
            placement: name.placement(),
        };
        let claim = Claim {
            pool: pool.to_owned(),
            device: device.to_owned(),
            ..testkit::claims::claim(UID)
        };
        let leases = self.leases();
        match is_prepared {
            true => leases.prepare(claim, &place, Duration::ZERO, &|_| ()),
            false => leases.promise(claim, &place, &|_| ()),
        }
        .unwrap()
    }

    fn inventory(&self) -> Inventory {
        Inventory::look(&self.config, &runmig_lease::driver(&self.config)).unwrap()
    }

    fn counters(&self) -> Amounts {
        let inventory = self.inventory();
        let ledger = uses(&inventory, "node-a").unwrap();
        let layout = lay_out(
            &Node {
                name: "node-a",
                snapshot: &inventory.snapshot,
                compute_capabilities: &BTreeMap::new(),
                excluded: &[],
                denied_profiles: &[],
                sick: &BTreeSet::new(),
                evicted: &BTreeSet::new(),
                ledger: &ledger,
            },
            &Published::default(),
        );
        counters(&layout.slices, "gpu-0000-07-00-0")
    }
}

#[test]
fn container_lowers_counters_until_idle() {
    let host = Host::new();
    let empty = host.counters();
    assert_eq!((empty["compute-slices"], empty["memory-slice-0"]), (7, 1));
    let held = host.acquire("4g.40gb");
    let used = host.counters();
    assert_eq!((used["compute-slices"], used["memory-slice-0"]), (3, 0));
    assert_eq!((used["memory-slice-3"], used["memory-slice-4"]), (0, 1));
    assert_eq!(used["instances-3g-40gb"], 2);
    assert_eq!(used["instances-4g-40gb"], 0);
    assert_eq!(used["copy-engines"], empty["copy-engines"] - 4);
    assert_eq!(used["memory"], empty["memory"] - (40192 << 20));
    host.release(&held);
    let inventory = host.inventory();
    assert_eq!(inventory.snapshot.gpus[0].instances.len(), 1);
    assert_eq!(host.uses().idle.len(), 1);
    assert_eq!(host.counters(), empty);
}

#[test]
fn blind_ledger_is_an_error() {
    let host = Host::new();
    host.acquire("3g.40gb");
    fs::write(host.home.path().join("state/ledger.json"), "").unwrap();
    let error = uses(&host.inventory(), "node-a").unwrap_err().line();
    begins_with(&error, "cannot read the used places: ");
}

/// The uid of the one claim.
const UID: &str = "claim-uid";
const HALF: &str = "gpu-0000-07-00-0-mig-3g-40gb-4-4";

#[test]
fn claim_lowers_nothing_in_any_state() {
    let host = Host::new();
    let empty = host.counters();
    for is_prepared in [false, true, true] {
        host.claim(HALF, &pool("node-a"), is_prepared);
        assert_eq!(host.counters(), empty);
    }
    let ledger = host.uses();
    assert_eq!(ledger.allocated, [HALF.parse().unwrap()].into());
    assert_eq!(ledger.uses.len(), 1);
    host.leases().unprepare(UID, Patience::default()).unwrap();
    let ledger = host.uses();
    assert!(ledger.allocated.is_empty() && ledger.uses.is_empty());
}

/// A claim of another pool names none of the published devices.
#[test]
fn claim_of_another_pool_lowers_counters() {
    let host = Host::new();
    host.claim(HALF, "runmig.node-b", false);
    assert_eq!(host.counters()["compute-slices"], 4);
}

/// A container was faster than the counters, so the promise has moved to the other half.
#[test]
fn moved_promise_lowers_its_new_half() {
    let host = Host::new();
    let empty = host.counters();
    let held = host.acquire("3g.40gb");
    let taken = held.instance.slice().unwrap().placement;
    let place = format!("{}-{}", taken.start, taken.size);
    let device = format!("gpu-0000-07-00-0-mig-3g-40gb-{place}");
    let moved = host.claim(&device, &pool("node-a"), false);
    assert_ne!(moved.instance.slice().unwrap().placement, taken);
    let used = host.counters();
    assert_eq!((used["memory-slice-0"], used["memory-slice-4"]), (0, 0));
    assert_eq!((used["compute-slices"], used["instances-3g-40gb"]), (4, 1));
    assert_eq!(used["memory"], empty["memory"] - (40192 << 20));
    let ledger = host.uses();
    let claims = ledger.uses.iter().filter(|used| used.claim.is_some());
    assert_eq!(claims.count(), 1);
}

/// A quarantined slice stays, whatever becomes of its claim.
#[test]
fn quarantined_claim_lowers_counters() {
    let mut host = Host::new();
    host.config.keep_idle = Duration::ZERO;
    host.claim(HALF, &pool("node-a"), true);
    let gi = host.machine.the_instance().gi.to_string();
    let _hold = host.machine.hold(&["--gpu", "0", "--gi", &gi, "--ci", "0"]);
    host.leases().unprepare(UID, Patience::NONE).unwrap_err();
    assert_eq!(host.counters()["compute-slices"], 4);
}
