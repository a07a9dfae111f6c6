//! A slice in the making whose maker hangs.

use super::ending::gpu_lock;
use super::*;

/// The time that a create waits for another.
const TIMEOUT: &str = "lock_timeout = \"300ms\"";

fn begin(setup: &Setup, slice: &str, size: &str) -> (String, Going) {
    let (id, bundle) = (unique(), asking(setup, slice, size));
    let mut create = setup.command(&["create", "-b", bundle.as_str(), &id]);
    let going = going(create.stdin(Stdio::null()));
    until("its lease is on record", || {
        setup.leases().iter().any(|lease| lease["container"] == id)
    });
    (id, going)
}

/// Starts a create that hangs in the driver, with the GPU's lock.
fn hangs(setup: &Setup, slice: &str, size: &str) -> (String, Going) {
    let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
    let fault = ["--call", call, "--nth", "1", "--takes", "600s"];
    setup.sim("fault", &fault);
    let (id, maker) = begin(setup, slice, size);
    let rules = || setup.sim("fault", &["--list"]);
    until("it calls the driver", || rules().contains("\"seen\":1"));
    (id, maker)
}

/// Ends the create that hangs, and collects its lease.
fn end(setup: &Setup, maker: Going, ids: &[String]) {
    maker.kill();
    ids.iter().for_each(|id| setup.delete(id));
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
}

/// The slice in the making would have less free memory, and so be the first choice.
/// Failure: the maker of a slice for seats hangs
#[test]
fn prefers_slice_that_exists() {
    for level in ["none", "mps"] {
        let setup = with(level, TIMEOUT);
        let first = create(&setup, "3g.40gb", "1/4");
        let (_, maker) = hangs(&setup, "3g.40gb", "7/8");
        let second = create(&setup, "3g.40gb", "1/8");
        assert_eq!(device(&setup, &first), device(&setup, &second));
        end(&setup, maker, &[first, second]);
    }
}

/// After the wait the create makes a slice of its own, on a GPU that is not locked.
#[test]
fn makes_slice_on_other_gpu() {
    for level in ["none", "mps"] {
        let setup = Setup::on(Low::Runc, machine("2"));
        setup.configure(&format!("sharing.enforcement = [\"{level}\"]\n{TIMEOUT}"));
        let (slow, maker) = hangs(&setup, "3g.40gb", "1/2");
        let theirs = setup.lease(&slow)["gpuIndex"].clone();
        let second = create(&setup, "3g.40gb", "1/4");
        assert_ne!(setup.lease(&second)["gpuIndex"], theirs);
        end(&setup, maker, &[second]);
    }
}

/// With no other GPU the refusal names the maker, and nothing of the create is left.
#[test]
fn names_maker_that_hangs() {
    let setup = with("none", TIMEOUT);
    let (slow, maker) = hangs(&setup, "3g.40gb", "1/2");
    let pid = maker.pid();
    let makes = format!("on GPU 0: container {slow} makes it (process {pid}), waited 300ms)");
    let line = setup.refuses(&[(SLICE, "3g.40gb"), (SHARE, "1/4")], &makes);
    has(&line, " is held by process ");
    has(&line, "; hint: run migctl list to see ");
    assert_eq!(setup.leases().len(), 1);
    end(&setup, maker, &[]);
}

/// A maker that sleeps without the GPU's lock leaves the rest of the GPU to others.
#[test]
fn makes_slice_beside_sleeping_maker() {
    let setup = on(Low::Runc, "none");
    let before = create(&setup, "1g.10gb", "1/2");
    setup.delete(&before);
    setup.configure(&format!("{NONE}\nlock_timeout = \"60s\""));
    let path = gpu_lock(&setup);
    let gpu = File::open(&path).unwrap();
    gpu.lock().unwrap();
    let (slow, maker) = begin(&setup, "3g.40gb", "1/2");
    maker.waits_for(&path);
    maker.stop();
    drop(gpu);
    setup.configure(&format!("{NONE}\n{TIMEOUT}"));
    let second = create(&setup, "3g.40gb", "1/4");
    maker.signal(Signal::SIGCONT);
    maker.end().ok();
    assert_ne!(device(&setup, &slow), device(&setup, &second));
    setup.ends(&[&slow, &second]);
}
