//! Seats: shares of a MIG slice, in containers and beside each other. The session seats has the rest.

mod joining;
mod mps;

use testkit::prelude::*;

const SLICE: &str = "runmig.dev/slice";
const SHARE: &str = "runmig.dev/share";
/// The memory of a 3g.40gb of an A100-80GB, in MiB.
const MEMORY: u64 = 40_192;

/// One A100 with seats at a level, and MPS.
fn on(low: Low, level: &str) -> Setup {
    let setup = Setup::on(low, Machine::of("--gpu A100-80GB --mig on --mps"));
    setup.configure(&format!("sharing.enforcement = [\"{level}\"]"));
    setup
}

fn asking(setup: &Setup, slice: &str, size: &str) -> Bundle {
    setup.bundle_with(&[(SLICE, slice), (SHARE, size)])
}

/// Returns the UUID of the MIG device of a container.
#[track_caller]
fn device(setup: &Setup, id: &str) -> String {
    setup.lease(id)["migUUID"].as_str().unwrap().to_owned()
}

/// A container has the nodes of the slice of its seat, and the share in its environment.
fn gives_seat(low: Low) {
    let setup = on(low, "none");
    let first = asking(&setup, "3g.40gb", "1/4");
    let (before, one) = (first.bytes(), unique());
    setup.create(&first, &one);
    let made = setup.machine.the_instance();

    // The next container gets a seat in the same slice.
    let second = setup.bundle(&format!("{SHOW}; env"));
    second.annotate(SLICE, "3g.40gb");
    second.annotate(SHARE, "10Gi");
    let said = setup.run(&second);
    assert_eq!(visible(&said.stdout), Some(made.uuid.as_str()));
    let seen: Vec<String> = nodes(&said.stdout).into_keys().collect();
    for node in setup.machine.nodes_of(&made).keys() {
        assert!(seen.contains(node), "{node}: {seen:?}");
    }
    said.says("RUNMIG_GPU_MEMORY=10737418240\n");
    let part = 10_240 * 10_000 / MEMORY;
    said.says(&format!("RUNMIG_GPU_MEMORY_FRACTION=0.{part}\n"));
    assert_eq!(setup.machine.the_instance(), made);
    setup.ends(&[&one]);
    assert_eq!(first.bytes(), before);
}

testkit::tests! {
    runc_gives_seat: gives_seat(Low::Runc);
    crun_gives_seat: gives_seat(Low::Crun);
}

/// Creates at once share one slice: those that find it in the making wait for it.
/// Failure: creates of seats at once
#[test]
fn seats_come_at_once() {
    for level in ["none", "mps"] {
        let setup = on(Low::Runc, level);
        let ids: Vec<String> = (0..8).map(|_| unique()).collect();
        let create = |id: &String| {
            let bundle = asking(&setup, "7g.80gb", "1/8");
            let mut create = setup.command(&["create", "-b", bundle.as_str(), id]);
            going(create.stdin(Stdio::null()))
        };
        // The others come while the driver makes the slice.
        let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
        setup.slow(call, "2s");
        let first = create(&ids[0]);
        until("the slice is on record", || !setup.leases().is_empty());
        let creates: Vec<Going> = ids[1..].iter().map(create).collect();
        first.end().ok();
        creates.into_iter().for_each(|one| drop(one.end().ok()));
        assert_eq!(setup.machine.instances().len(), 1);
        assert_eq!(setup.leases().len(), 8);
        let delete = |id: &String| {
            let mut delete = setup.command(&["delete", "--force", id]);
            going(delete.stdin(Stdio::null()))
        };
        let deletes: Vec<Going> = ids.iter().map(delete).collect();
        deletes.into_iter().for_each(|one| drop(one.end().ok()));
        setup.nothing_is_left();
    }
}

/// The time for which a release tries again, with some to spare.
const PATIENCE: Duration = Duration::from_millis(3100);

/// The end of the daemon takes all of the patience, so the slice, which stays in use, is tried once.
#[test]
fn daemon_and_slice_share_patience() {
    let setup = on(Low::Runc, "mps");
    let (id, bundle) = (unique(), asking(&setup, "3g.40gb", "1/4"));
    setup.create(&bundle, &id);
    in_cgroup(&bundle.cgroup()).into_iter().for_each(kill);
    let call = "nvmlComputeInstanceDestroy";
    setup.fault(call, "IN_USE");
    let mut names = names_in(&setup.state()).into_iter();
    let name = names.find(|name| name.starts_with("gpu-"));
    let path = setup.state().join(name.unwrap());
    let gpu = File::open(&path).unwrap();
    gpu.lock().unwrap();
    let begun = Instant::now();
    let mut release = setup.plain(&setup.program("migctl"));
    let release = going(release.args(["release", &id]).stdin(Stdio::null()));
    release.waits_for(&path);
    until("the patience is over", || begun.elapsed() > PATIENCE);
    drop(gpu);
    release.end().exits(1).warns("in use");
    let rule: Value = serde_json::from_str(&setup.sim("fault", &["--list"])).unwrap();
    assert_eq!(rule["seen"], 1);
    assert_eq!(setup.daemons(), Vec::<String>::new());
    setup.no_faults();
    setup.migctl(&["gc"]).ok();
    setup.ends(&[&id]);
}
