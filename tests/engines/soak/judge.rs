//! The invariants at the end.

use crate::soak::churn::{Soak, device};
use testkit::prelude::*;

pub fn judge(soak: &Soak) {
    let setup = &soak.setup;
    // Low-level runtimes that outlived their front come to an end by themselves.
    until("nobody is at work", || at_work(soak).is_empty());
    collect(soak);
    with_survivors(soak);

    kill_everybody(soak);
    until("everything is back", || {
        collect(soak);
        setup.leases().is_empty()
    });
    setup.nothing_is_left();

    // Every slot of the machine can be had, and every GPU.
    let mut ids: Vec<String> = (0..14).map(|n| format!("last-{n}")).collect();
    for id in &ids {
        let bundle = setup.asking("1g.10gb", "true");
        setup.create(&bundle, id);
    }
    assert_eq!(setup.machine.instances().len(), ids.len());
    ids.push("last-gpus".to_owned());
    setup.create(&setup.bundle_with(&[("runmig.dev/gpu", "2")]), "last-gpus");
    setup.ends(&ids);
}

fn collect(soak: &Soak) {
    let said = soak.setup.migctl(&["gc"]);
    let told = format!("{} {}", said.stdout.trim(), said.stderr.trim());
    soak.note("last gc", said.status.success(), &told);
}

/// Some containers still live: they have what is there, each its own.
fn with_survivors(soak: &Soak) {
    let instances = soak.setup.machine.instances();
    let leases = soak.setup.leases();
    let is_alone = |l: &&Value| l["kind"] == "slice" || l["kind"] == "gpu";
    for lease in leases.iter().filter(is_alone) {
        let same = leases.iter().filter(|l| device(l) == device(lease));
        assert_eq!(same.count(), 1, "one for two: {leases:#?}");
    }
    let uuids = leases.iter().filter_map(|l| l["migUUID"].as_str());
    let leased: BTreeSet<String> = uuids.map(str::to_owned).collect();
    let there: BTreeSet<String> = instances.iter().map(|i| i.uuid.clone()).collect();
    assert_eq!(leased, there, "{leases:#?}\n{instances:#?}");
    for lease in &leases {
        let init = lease["initPid"].as_i64().unwrap_or_default() as i32;
        let bundle = std::path::Path::new(lease["bundle"].as_str().unwrap());
        // podman takes the bundle of a container away that it forgot, and that lives: its cgroup is
        // named after its id.
        let cgroup = match std::fs::read(bundle.join("config.json")) {
            Ok(config) => {
                let config: Value = serde_json::from_slice(&config).unwrap();
                config["linux"]["cgroupsPath"].as_str().unwrap().to_owned()
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                lease["container"].as_str().unwrap().to_owned()
            }
            Err(e) => panic!("{}: {e}", bundle.display()),
        };
        let is_alive = (init > 1 && lives(init)) || !in_cgroup(&cgroup).is_empty();
        assert!(is_alive, "nobody lives in {lease:#}");
    }
    let what = format!("{} containers", leases.len());
    soak.note("survivors", true, &what);
}

/// Every call names the folder in some argument.
fn at_work(soak: &Soak) -> Vec<i32> {
    with_argument(soak.setup.path("roots").to_str().unwrap())
}

/// All that lives in a container of ours, or makes one.
pub fn kill_everybody(soak: &Soak) {
    let ours = format!("runmig-e2e-{}-", std::process::id());
    until("everybody is dead", || {
        let mut pids = at_work(soak);
        pids.extend(in_cgroup(&ours));
        for lease in soak.setup.leases() {
            let id = lease["container"].as_str().unwrap_or_default();
            // podman's have cgroups of their own, named by unique ids.
            if id.len() == 64 {
                pids.extend(in_cgroup(id));
            }
        }
        for pid in &pids {
            kill(*pid);
        }
        pids.is_empty()
    });
}
