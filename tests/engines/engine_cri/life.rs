//! A container from its start to its end, and what is left of it afterwards.

use crate::engine_cri::requests::ON_CRUN;
use crate::engine_cri::{passed, with_low};
use testkit::bundle::{SHOW, nodes, visible};
use testkit::cri::Cri;
use testkit::images::STAYS;
use testkit::process::{kill, lives, until};

crate::on_every_engine! {
    exec, logs, stop_and_start_again, restart, update, remove, releases_slice_of_ended_job,
    keeps_slice_of_left_process,
}

const ASK: [(&str, &str); 1] = [("runmig.dev/slice", "1g.10gb")];
/// The whole GPU, which leaves no room beside it.
const ALL: [(&str, &str); 1] = [("runmig.dev/slice", "7g.80gb")];

/// As a probe of the kubelet's, and as `kubectl exec`. The devices are those of the slice; what is in
/// the environment is the engine's affair, and it knows nothing of config.json as it became.
fn exec(cri: &mut Cri) {
    let pod = cri.pod(&ASK);
    let id = cri.run(&pod, "web", STAYS);
    let instance = cri.setup.machine.the_instance();
    for how in [&["exec", "--sync"][..], &["exec"]] {
        let arguments = [how, &[&id, "/bin/sh", "-c", SHOW]].concat();
        let said = cri.crictl(&arguments).ok();
        assert_eq!(nodes(&said.stdout), cri.setup.machine.nodes_of(&instance));
        assert_eq!(visible(&said.stdout), Some(""));
    }
    passed(cri, "exec");
}

fn logs(cri: &mut Cri) {
    let pod = cri.pod(&ASK);
    let id = cri.run(&pod, "web", "echo one; echo two >&2; exit 3");
    until("it has ended", || cri.state(&id) == "CONTAINER_EXITED");
    let said = cri.crictl(&["logs", &id]).ok();
    assert_eq!((&said.stdout[..], &said.stderr[..]), ("one\n", "two\n"));
    assert_eq!(cri.inspect(&id)["status"]["exitCode"], 3);
    passed(cri, "logs");
}

/// A container that was stopped cannot be started; the kubelet makes another in its pod.
fn stop_and_start_again(cri: &mut Cri) {
    let pod = cri.pod(&ALL);
    let mut last = cri.run(&pod, "web", STAYS);
    for again in ["web#1", "web#2"] {
        let before = cri.setup.the_lease();
        cri.crictl(&["stop", "--timeout=10", &last]).ok();
        if cri.engine.is_containerd() {
            cri.setup.nothing_is_left();
        }
        assert_eq!(cri.state(&last), "CONTAINER_EXITED");
        assert!(!cri.crictl(&["start", &last]).status.success());
        cri.crictl(&["rm", &last]).ok();
        cri.setup.nothing_is_left();
        last = cri.run(&pod, again, STAYS);
        let lease = cri.setup.the_lease();
        assert_eq!(lease["container"], last);
        assert_ne!(lease["id"], before["id"]);
    }
    passed(cri, "stop, start again");
}

/// As the kubelet restarts a failed container. The dead one stays, so that its logs can be read.
fn restart(cri: &mut Cri) {
    let pod = cri.pod(&ALL);
    let mut last = cri.run(&pod, "web", STAYS);
    for again in ["web#1", "web#2"] {
        kill(init(cri));
        until("it has ended", || cri.state(&last) == "CONTAINER_EXITED");
        last = cri.run(&pod, again, STAYS);
        assert_eq!(cri.setup.the_lease()["container"], last);
        cri.setup.machine.the_instance();
    }
    let all = cri.crictl(&["ps", "--all", "--quiet"]).ok().stdout;
    assert_eq!(all.lines().count(), 3);
    passed(cri, "restart");
}

fn init(cri: &Cri) -> i32 {
    cri.setup.the_lease()["initPid"].as_i64().unwrap() as i32
}

/// Open devices stay open: an engine that writes the cgroup anew knows nothing of the slice.
fn update(cri: &mut Cri) {
    let pod = cri.pod(&ASK);
    let id = cri.run(&pod, "web", STAYS);
    let open = |node: &str| {
        let said = cri.crictl(&["exec", "--sync", &id, "cat", node]);
        assert!(!said.status.success());
        said.stderr
    };
    // There is no such device behind the number, but the cgroup has let it through.
    let allowed = |text: String| text.contains("No such device or address");
    let instance = cri.setup.machine.the_instance();
    for _ in 0..2 {
        for node in cri.setup.machine.nodes_of(&instance).keys() {
            let said = open(&format!("/dev/{node}"));
            assert!(allowed(said.clone()), "{node}: {said}");
        }
        let options = ["--cpu-share=512", "--memory=100000000", &id];
        cri.crictl(&[&["update"], &options[..]].concat()).ok();
        assert_eq!(
            cri.inspect(&id)["status"]["resources"]["linux"]["cpuShares"],
            "512"
        );
    }
    assert_eq!(cri.setup.machine.the_instance(), instance);
    assert_eq!(cri.setup.the_lease()["state"], "ready");
    passed(cri, "update");
}

#[test]
fn update_on_crun() {
    for (low, engine) in ON_CRUN {
        with_low(low, engine, update);
    }
}

/// The container alone, and with its pod; both while it runs.
fn remove(cri: &mut Cri) {
    let pod = cri.pod(&ASK);
    for name in ["web", "web#1"] {
        let id = cri.run(&pod, name, STAYS);
        cri.setup.machine.the_instance();
        cri.crictl(&["rm", "--force", &id]).ok();
        cri.setup.nothing_is_left();
    }
    cri.run(&pod, "web#2", STAYS);
    cri.run(&pod, "db", STAYS);
    assert_eq!(cri.setup.leases().len(), 2);
    cri.crictl(&["rmp", "--force", &pod.id]).ok();
    cri.setup.nothing_is_left();
    passed(cri, "remove");
}

/// Nobody removes a finished job for hours. containerd has its container deleted when init has ended;
/// CRI-O when the job is removed, so there the next create that needs the room takes it. It may: init
/// is gone, by pid and start time, and nothing lives in the cgroup.
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
    assert!(
        said.contains("cannot allocate 7g.80gb: too few memory slices are free"),
        "{said}"
    );
    assert_eq!(cri.setup.the_lease()["container"], done);
    kill(left[0]);
    let id = cri.run(&next, "web#1", STAYS);
    assert_eq!(cri.setup.the_lease()["container"], id);
}
