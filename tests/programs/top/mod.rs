//! migctl list with its choices and its watch, and migctl top on a real pseudo terminal.

mod choices;
mod live;
mod terminal;
mod tmux;
mod watch;

use runmig_lease::config::Config;
use runmig_lease::model::{GpuUuid, InstanceId, LeaseId, Placement};
use runmig_lease::store::{Claim, Holder, Resource, Store, WholeGpu};
use runmig_lease::{ClaimPlace, LeaseManager, NoBundles};
use std::time::Duration;
use testkit::{Low, Machine, Setup, unique};

/// A machine with a GPU in MIG mode and two without MIG.
fn setup() -> Option<Setup> {
    let gpus = ["--gpu", "A100-80GB", "--gpu", "L4", "--count", "2"];
    let setup = Setup::on(Low::Runc, Machine::with(&gpus))?;
    setup.configure("sharing.enforcement = [\"none\"]");
    Some(setup)
}

/// Creates a container in a pod of a namespace, and returns its id.
fn create(setup: &Setup, namespace: &str, asked: &[(&str, &str)]) -> String {
    let (id, bundle) = (unique(), setup.bundle("exec sleep 1000"));
    let names = [
        ("io.kubernetes.cri.container-type", "container"),
        ("io.kubernetes.cri.container-name", "main"),
        ("io.kubernetes.cri.sandbox-name", "pod"),
        ("io.kubernetes.cri.sandbox-namespace", namespace),
        ("io.kubernetes.cri.sandbox-uid", &id),
        ("io.kubernetes.cri.sandbox-id", &id),
    ];
    for (key, value) in names.iter().chain(asked) {
        bundle.annotate(key, value);
    }
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    id
}

/// Gives a claim of the namespace `team` a small slice, as runmig-dra does, without any engine.
fn claim(setup: &Setup, name: &str, start: u32) {
    let config = Config::read(&setup.config()).unwrap();
    let claim = Claim {
        uid: format!("uid-{name}"),
        namespace: "team".to_owned(),
        name: name.to_owned(),
        device: format!("device-{name}"),
        ..Claim::default()
    };
    let place = ClaimPlace {
        gpu: GpuUuid::new(setup.machine.gpu_uuid(0)),
        profile: "1g.10gb".to_owned(),
        placement: Placement { start, size: 1 },
    };
    let manager = LeaseManager::open(&config, Box::new(NoBundles)).unwrap();
    manager
        .prepare(claim, &place, Duration::ZERO, &|_| ())
        .unwrap();
}

/// Puts so many leases of a whole GPU on record, into a state directory in memory, and returns that directory.
fn fill(setup: &Setup, leases: usize) -> tempfile::TempDir {
    claim(setup, "first", 0);
    let config = Config::read(&setup.config()).unwrap();
    let store = Store::existing(&config.state_dir, config.lock_timeout)
        .unwrap()
        .unwrap();
    let first = store.list().unwrap().held().next().unwrap().clone();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let text = std::fs::read_to_string(setup.config()).unwrap();
    let text = text.replace(
        &config.state_dir.display().to_string(),
        &memory.path().display().to_string(),
    );
    std::fs::write(setup.config(), text).unwrap();
    let store = Store::open(memory.path(), config.lock_timeout).unwrap();
    let ledger = store.lock("a test").unwrap();
    let gpu_uuid = GpuUuid::new(setup.machine.gpu_uuid(1));
    for n in 0..leases {
        let mut held = first.clone();
        held.lease.id = LeaseId::new(format!("{n:032x}"));
        held.lease.instance = InstanceId::new(format!("{n:032x}"));
        held.instance.id = held.lease.instance.clone();
        held.instance.resource = Resource::Gpu(WholeGpu {
            gpu_uuid: gpu_uuid.clone(),
            gpu_index: 1,
            gpu_minor: 1,
            model: "NVIDIA L4".to_owned(),
            memory_mib: 22522,
            level: None,
        });
        if let Holder::Claim(claim) = &mut held.lease.holder {
            claim.uid = format!("uid-{n}");
            claim.name = format!("claim-{n:05}");
        }
        ledger.put_new(&held).unwrap();
    }
    drop(ledger);
    memory
}
