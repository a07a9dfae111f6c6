//! The engine goes, its containers stay.

use crate::engine_cri::passed;
use testkit::cri::{Cri, Pod};
use testkit::images::STAYS;
use testkit::prelude::*;

crate::on_every_engine! { survives_restarted_engine, ends_while_engine_is_gone, next_attempt_gets_abandoned_room, deletes_pod_while_it_waits }

/// Failure: a restart or kill of containerd or CRI-O while its containers run
fn survives_restarted_engine(cri: &mut Cri) {
    let pod = cri.pod(&[("runmig.dev/slice", "1g.10gb")]);
    let (web, db) = (cri.run(&pod, "web", STAYS), cri.run(&pod, "db", STAYS));
    let (instances, leases) = (cri.setup.machine.instances(), cri.setup.leases());
    assert_eq!(leases.len(), 2);
    let unchanged = |cri: &Cri| {
        cri.setup.migctl(&["gc"]).ok();
        assert_eq!(cri.setup.machine.instances(), instances);
        for (was, is) in leases.iter().zip(cri.setup.leases()) {
            assert_eq!(
                (&is["migUUID"], &is["state"]),
                (&was["migUUID"], &was["state"])
            );
            assert!(lives(is["initPid"].as_i64().unwrap() as i32));
        }
    };
    cri.kill();
    unchanged(cri);
    cri.up();
    unchanged(cri);
    for id in [&web, &db] {
        assert_eq!(cri.state(id), "CONTAINER_RUNNING");
        cri.crictl(&["exec", "--sync", id, "true"]).ok();
    }
    // It releases what it did not see being made.
    cri.crictl(&["stop", "--timeout=10", &web]).ok();
    cri.crictl(&["rm", &web]).ok();
    assert_eq!(cri.setup.the_lease()["container"], db);
    let again = cri.run(&pod, "web#1", STAYS);
    assert_eq!(cri.setup.leases().len(), 2);
    cri.stop();
    cri.up();
    cri.crictl(&["rmp", "--force", &pod.id]).ok();
    assert!(cri.crictl(&["inspect", &again]).status.code() != Some(0));
    cri.setup.nothing_is_left();
    passed(cri, "the engine is restarted");
}

/// Two of them: one slice is collected meanwhile, the other is the engine's to release. containerd does
/// so when it is there again, CRI-O when the container is removed.
fn ends_while_engine_is_gone(cri: &mut Cri) {
    let pod = cri.pod(&[("runmig.dev/slice", "1g.10gb")]);
    let (web, db) = (cri.run(&pod, "web", STAYS), cri.run(&pod, "db", STAYS));
    let init = |id: &str| {
        let leases = cri.setup.leases();
        let lease = leases.iter().find(|lease| lease["container"] == id);
        lease.unwrap()["initPid"].as_i64().unwrap() as i32
    };
    let (first, second) = (init(&web), init(&db));
    cri.kill();
    kill(first);
    until("the slice is back", || {
        cri.setup.migctl(&["gc"]).ok();
        cri.setup.leases().len() == 1
    });
    assert_eq!(cri.setup.the_lease()["container"], db);
    kill(second);
    cri.up();
    for id in [&web, &db] {
        until("it has ended", || cri.state(id) == "CONTAINER_EXITED");
    }
    if cri.engine.is_containerd() {
        until("the slice is back", || cri.setup.leases().is_empty());
    } else {
        assert_eq!(cri.setup.the_lease()["container"], db);
    }
    cri.crictl(&["rm", &web, &db]).ok();
    cri.setup.nothing_is_left();
    cri.run(&pod, "web#1", STAYS);
    cri.setup.machine.the_instance();
}

/// A create that waits for room until its client's deadline is over. containerd kills the runtime;
/// under CRI-O it goes on.
fn waits_in_vain(cri: &Cri, pod: &Pod) {
    let mut call = cri.create(pod, "web", STAYS, &[]).to_vec();
    if cri.engine.is_containerd() {
        let id = said(cri.command(&[]).args(&call)).ok().stdout;
        call = vec!["start".into(), id.trim().into()];
    }
    let late = said(cri.command(&["--timeout=2s"]).args(call)).exits(1);
    assert!(late.stderr.contains("DeadlineExceeded"), "{late:?}");
}

const ALL: (&str, &str) = ("runmig.dev/slice", "7g.80gb");

fn patient(wait: &'static str) -> [(&'static str, &'static str); 2] {
    [ALL, ("runmig.dev/wait", wait)]
}

/// CRI-O gives the container to the next attempt, and asks for another one while it still writes it down.
fn run_as_the_kubelet(cri: &Cri, pod: &Pod) -> String {
    let mut id = None;
    until("CRI-O gives the container", || {
        match cri.try_run(pod, "web", STAYS, &[]) {
            Ok(made) => id = Some(made),
            Err(said) => assert!(
                said.contains("name is reserved") || said.contains("DeadlineExceeded"),
                "{said}\n{}",
                cri.log()
            ),
        }
        id.is_some()
    });
    id.unwrap()
}

/// The kubelet's next attempt has the room when there is some. CRI-O made the container in the
/// meantime, and gives it to that attempt.
/// Failure: the kubelet's deadline passes while a create waits for room
fn next_attempt_gets_abandoned_room(cri: &mut Cri) {
    let (first, second) = (cri.pod(&[ALL]), cri.pod(&patient("10m")));
    cri.run(&first, "web", STAYS);
    waits_in_vain(cri, &second);
    cri.crictl(&["rmp", "--force", &first.id]).ok();
    let id = if cri.engine.is_containerd() {
        cri.setup.nothing_is_left();
        cri.run(&second, "web#1", STAYS)
    } else {
        let ready = |lease: &Value| lease["state"] == "ready";
        until("it is made", || cri.setup.leases().iter().any(ready));
        run_as_the_kubelet(cri, &second)
    };
    let lease = cri.setup.the_lease();
    assert_eq!(lease["container"], id);
    assert_eq!(lease["pod"], second.name());
    cri.setup.machine.the_instance();
}

/// CRI-O removes a pod only when no create of it is at work, so a removal waits as long as that does.
fn deletes_pod_while_it_waits(cri: &mut Cri) {
    let (first, second) = (cri.pod(&[ALL]), cri.pod(&patient("6s")));
    let id = cri.run(&first, "web", STAYS);
    waits_in_vain(cri, &second);
    cri.crictl(&["rmp", "--force", &second.id]).ok();
    assert_eq!(cri.setup.the_lease()["container"], id);
    cri.crictl(&["rmp", "--force", &first.id]).ok();
    let runtime = cri.runtime.program.to_str().unwrap();
    until("nobody waits", || with_argument(runtime).is_empty());
    cri.setup.nothing_is_left();
}
