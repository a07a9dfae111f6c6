//! A container from its start to its end, and what is left of it afterwards.

use crate::engine_cri::passed;
use testkit::cri::Cri;
use testkit::images::STAYS;
use testkit::prelude::*;

crate::on_every_engine! { releases_slice_of_ended_job, keeps_slice_of_left_process }

/// The whole GPU, which leaves no room beside it.
const ALL: [(&str, &str); 1] = [("runmig.dev/slice", "7g.80gb")];

fn init(cri: &Cri) -> i32 {
    cri.setup.the_lease()["initPid"].as_i64().unwrap() as i32
}

/// Nobody removes a finished job for hours. containerd has its container deleted when init has ended;
/// CRI-O when the job is removed, so there the next create that needs the room takes it. It may: init
/// is gone, by pid and start time, and nothing lives in the cgroup.
/// Failure: an ended job that no one removes
fn releases_slice_of_ended_job(cri: &mut Cri) {
    let (job, next) = (cri.pod(&ALL), cri.pod(&ALL));
    let done = cri.run(&job, "job", "true");
    until("it has ended", || cri.state(&done) == "CONTAINER_EXITED");
    if cri.engine.is_containerd() {
        until("the slice is back", || cri.setup.leases().is_empty());
        cri.setup.nothing_is_left();
    } else {
        assert_eq!(cri.setup.the_lease()["container"], done);
        assert!(!lives(init(cri)));
        assert!(cri.inside(&done).is_empty());
    }
    let id = cri.run(&next, "web", STAYS);
    assert_eq!(cri.setup.the_lease()["container"], id);
    cri.setup.machine.the_instance();
    // Its late removal takes nothing from its successor.
    cri.crictl(&["rmp", "--force", &job.id]).ok();
    assert_eq!(cri.setup.the_lease()["container"], id);
    cri.setup.machine.the_instance();
    passed(cri, "a job that ends by itself");
}

/// With process ids of the pod, what init has started outlives it; that may be at work on the GPU.
/// Failure: an ended job that no one removes, with a surviving process
fn keeps_slice_of_left_process(cri: &mut Cri) {
    let (job, next) = (cri.pod_with_common_pids(&ALL), cri.pod(&ALL));
    let done = cri.run(&job, "job", "sleep 1000 & exit 0");
    until("it has ended", || cri.state(&done) == "CONTAINER_EXITED");
    if cri.engine.is_containerd() {
        // Which kills the rest.
        until("the slice is back", || cri.setup.leases().is_empty());
        assert!(cri.inside(&done).is_empty());
        return;
    }
    assert!(!lives(init(cri)));
    let left = cri.inside(&done);
    assert_eq!(left.len(), 1, "{left:?}");
    let said = cri.try_run(&next, "web", STAYS, &[]).unwrap_err();
    let words = "cannot allocate 7g.80gb: too few memory slices are free";
    has(&said, words);
    assert_eq!(cri.setup.the_lease()["container"], done);
    kill(left[0]);
    let id = cri.run(&next, "web#1", STAYS);
    assert_eq!(cri.setup.the_lease()["container"], id);
}
