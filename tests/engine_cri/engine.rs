//! The engine goes, its containers stay.

use crate::passed;
use crate::support::cri::Cri;
use crate::support::images::STAYS;
use crate::support::process::lives;

crate::on_every_engine! { the_engine_is_restarted, the_engine_is_killed }

fn the_engine_is_restarted(cri: &mut Cri) {
    containers_outlive(cri, |cri| cri.stop());
    passed(cri, "the engine is restarted");
}

fn the_engine_is_killed(cri: &mut Cri) {
    containers_outlive(cri, |cri| cri.kill());
    passed(cri, "the engine is killed");
}

fn containers_outlive(cri: &mut Cri, end: impl Fn(&mut Cri)) {
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
    end(cri);
    unchanged(cri);
    cri.up();
    unchanged(cri);
    for id in [&web, &db] {
        assert_eq!(cri.state(id), "CONTAINER_RUNNING");
        cri.crictl(&["exec", "--sync", id, "true"]).ok();
    }
    // It gives back what it did not see being made.
    cri.crictl(&["stop", "--timeout=10", &web]).ok();
    cri.crictl(&["rm", &web]).ok();
    assert_eq!(cri.setup.the_lease()["container"], db);
    let again = cri.run(&pod, "web#1", STAYS);
    assert_eq!(cri.setup.leases().len(), 2);
    end(cri);
    cri.up();
    cri.crictl(&["rmp", "--force", &pod.id]).ok();
    assert!(cri.crictl(&["inspect", &again]).status.code() != Some(0));
    cri.setup.nothing_is_left();
}
