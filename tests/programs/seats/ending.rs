//! The end of a seat, and then of its slice.

use super::*;

/// The time for which a release tries again, with some to spare.
const PATIENCE: Duration = Duration::from_millis(3100);

pub fn gpu_lock(setup: &Setup) -> PathBuf {
    let mut names = names_in(&setup.state()).into_iter();
    let name = names.find(|name| name.starts_with("gpu-"));
    setup.state().join(name.unwrap())
}

/// The end of the daemon takes all of the patience, so the slice, which stays in use, is tried once.
#[test]
fn daemon_and_slice_share_patience() {
    let setup = on(Low::Runc, "mps");
    let (id, bundle) = (unique(), asking(&setup, "3g.40gb", "1/4"));
    setup.create(&bundle, &id);
    in_cgroup(&bundle.cgroup()).into_iter().for_each(kill);
    let call = "nvmlComputeInstanceDestroy";
    setup.fault(call, "IN_USE");
    let path = gpu_lock(&setup);
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
