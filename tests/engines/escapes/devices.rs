//! Devices that the engine gives, rules that let through, mounts that bring them.

use crate::escapes::inside::{Shared, asking, gets_only_its_slice, none_opens, run, script};
use crate::escapes::on_each;
use testkit::bundle::NODES;
use testkit::prelude::*;

fn allow(major: Option<u32>, minor: Option<u32>, access: &str) -> Value {
    let mut rule = json!({"allow": true, "type": "c", "access": access});
    if let Some(major) = major {
        rule["major"] = json!(major);
    }
    if let Some(minor) = minor {
        rule["minor"] = json!(minor);
    }
    rule
}

fn rules(config: &mut Value) -> &mut Vec<Value> {
    let rules = config["linux"]["resources"]["devices"].as_array_mut();
    rules.unwrap()
}

/// `podman run --device /dev/nvidia1 --device /dev/nvidia-caps/…`, by a user who knows the names.
#[test]
fn removes_nodes_and_rules_of_engine() {
    on_each(|setup| {
        let shared = Shared::new(setup);
        let mut paths: Vec<String> = Vec::new();
        let mut devices = Vec::new();
        for (at, (path, (major, minor))) in shared.foreign.iter().enumerate() {
            for path in [format!("/dev/{path}"), format!("/dev/innocent{at}")] {
                devices.push(json!({"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666}));
                paths.push(path);
            }
        }
        gets_only_its_slice(setup, &shared, &paths, |config| {
            config["linux"]["devices"] = json!(devices);
            for (_, (major, minor)) in &shared.foreign {
                rules(config).push(allow(Some(*major), Some(*minor), "rwm"));
            }
            // and the driver's majors as a whole
            rules(config).push(allow(Some(shared.granted.0), None, "rwm"));
        });
    });
}

/// docker's own list; and every node may be made, as runc itself allows: made, it does not open.
#[test]
fn seals_dockers_device_rules() {
    on_each(|setup| {
        let shared = Shared::new(setup);
        gets_only_its_slice(setup, &shared, &[], |config| {
            for (major, minor) in [(1, 5), (1, 3), (1, 9), (1, 8), (5, 0), (5, 1)] {
                rules(config).push(allow(Some(major), Some(minor), "rwm"));
            }
            let mut fuse = allow(Some(10), Some(229), "rwm");
            fuse["allow"] = json!(false);
            rules(config).push(fuse);
        });
        gets_only_its_slice(setup, &shared, &[], |config| {
            let block = json!({"allow": true, "type": "b", "access": "m"});
            rules(config).extend([allow(None, None, "m"), block]);
        });
    });
}

/// Without a first deny-all crun opens everything.
#[test]
fn seals_without_any_rule() {
    on_each(|setup| {
        let shared = Shared::new(setup);
        for none in [json!([]), Value::Null] {
            gets_only_its_slice(setup, &shared, &[], |config| {
                config["linux"]["resources"]["devices"] = none;
            });
        }
    });
}

#[track_caller]
fn is_refused(setup: &Setup, words: &str, change: impl FnOnce(&mut Value)) {
    let bundle = setup.asking("1g.10gb", "echo it runs");
    bundle.edit(change);
    let before = bundle.bytes();
    let were = setup.machine.instances();
    setup.try_run(&bundle).refused_for(words);
    assert_eq!(bundle.bytes(), before);
    assert_eq!(setup.machine.instances(), were);
}

#[test]
fn privileged_in_every_engine_s_way() {
    on_each(|setup| {
        let deny = json!({"allow": false, "access": "rwm"});
        let all = json!({"allow": true, "access": "rwm"});
        for said in [
            json!([all]),
            json!([deny, allow(Some(1), Some(3), "rwm"), all]),
            json!([deny, {"allow": true, "type": "a", "access": "rwm"}]),
            json!([deny, {"allow": true, "type": "c", "access": "rwm"}]),
            json!([deny, {"allow": true, "type": "c"}]),
            json!([deny, {"allow": true, "type": "c", "major": -1, "minor": 1, "access": "r"}]),
            // a device that a later rule takes away is still there in the other reading of the
            // rules
            json!([deny, allow(None, None, "rw"), {"allow": false, "type": "c", "major": 195, "access": "rw"}]),
        ] {
            let words = "NVIDIA devices that it was not given";
            is_refused(setup, words, |config| {
                config["linux"]["resources"]["devices"] = said;
            });
        }
        setup.nothing_is_left();
    });
}

/// `-v /dev/nvidia1:/innocent`, and through links of the host's.
#[test]
fn mounts_of_nodes_under_other_names() {
    on_each(|setup| {
        let shared = Shared::new(setup);
        let mut mounts = Vec::new();
        let mut paths = Vec::new();
        for (at, (source, _)) in shared.nodes_on_host(&setup.path("host")).iter().enumerate() {
            let link = setup.path(&format!("link{at}"));
            symlink(source, &link).unwrap();
            for (source, to) in [
                (source, format!("/dev/m{at}")),
                (&link, format!("/tmp/l{at}")),
            ] {
                mounts.push(bind(source, &to, &["bind", "rw"]));
                paths.push(to);
            }
        }
        gets_only_its_slice(setup, &shared, &paths, |config| {
            config["mounts"].as_array_mut().unwrap().extend(mounts);
        });
    });
}

/// A folder with the nodes in it, and the whole of the host: the rules keep what the mounts bring.
#[test]
fn mounts_of_folders_that_hold_nodes() {
    on_each(|setup| {
        let shared = Shared::new(setup);
        let dir = setup.path("host");
        let nodes = shared.nodes_on_host(&dir);
        let mut paths = Vec::new();
        for (path, _) in &nodes {
            let name = path.file_name().unwrap().display();
            paths.push(format!("/tmp/folder/{name}"));
            paths.push(format!("/tmp/root{}", path.display()));
        }
        gets_only_its_slice(setup, &shared, &paths, |config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(bind(dir, "/tmp/folder", &["rbind", "rw"]));
            mounts.push(bind("/", "/tmp/root", &["rbind", "rw"]));
        });
    });
}

#[test]
fn mounts_of_dev() {
    on_each(|setup| {
        let link = setup.path("to-dev");
        symlink("/dev", &link).unwrap();
        let machine = setup.machine.dir().join("dev");
        let innocent = |source: &Path| bind(source, "/innocent", &["rbind"]);
        for mount in [
            innocent(&link),
            innocent("/dev".as_ref()),
            innocent("/dev/.".as_ref()),
            innocent("/proc/self/root/dev".as_ref()),
            innocent(&machine),
            json!({"destination": "/x", "source": "devtmpfs", "type": "devtmpfs"}),
        ] {
            let words = "gives the container the devices of the host";
            is_refused(setup, words, |config| {
                config["mounts"].as_array_mut().unwrap().push(mount);
            });
        }
        setup.nothing_is_left();
    });
}

/// The driver's own files say what slices there are and whose.
#[test]
fn mounts_of_the_driver_s_files() {
    on_each(|setup| {
        let files = setup.machine.dir().join("proc/driver/nvidia");
        let link = setup.path("to-driver");
        symlink(&files, &link).unwrap();
        let script = "ls /tmp/a /tmp/b /tmp/c; echo end";
        let bundle = setup.asking("1g.10gb", script);
        bundle.mount([
            bind(&files, "/tmp/a", &["bind"]),
            bind(files.join("capabilities"), "/tmp/b", &["bind"]),
            bind(link, "/tmp/c", &["bind"]),
        ]);
        let out = run(setup, &bundle);
        assert_eq!(out, "end\n", "none of them is there");
        setup.nothing_is_left();
    });
}

/// A mount over what we put in hides it or replaces it.
#[test]
fn mounts_over_our_own_nodes() {
    on_each(|setup| {
        let shared = Shared::new(setup);
        let nodes = shared.nodes_on_host(&setup.path("host"));
        let bundle = asking(setup, &format!("{}; {SHOW}", script(&shared, &[])));
        bundle.mount([
            bind(&nodes[2].0, "/dev/nvidia0", &["bind"]),
            bind("/dev/zero", "/dev/nvidiactl", &["bind"]),
            bind(setup.path("host"), "/dev/nvidia-caps", &["bind"]),
        ]);
        let out = run(setup, &bundle);
        none_opens(&shared, &out, &[]);
        let seen = testkit::bundle::nodes(&out);
        assert_eq!(seen["nvidia0"], (shared.granted.0, 0));
        assert_eq!(seen["nvidiactl"], shared.granted);
        assert_eq!(seen.len(), NODES, "{seen:?}");
        assert!(!out.contains("innocent"), "{out}");
        assert!(setup.machine.instances().contains(&shared.neighbour));
    });
}

/// crun without cgroups enforces no rule, and config.json does not show it.
#[test]
fn refuses_container_without_cgroup() {
    let setup = Setup::of(testkit::Low::Crun);
    let bundle = setup.asking("1g.10gb", "echo it runs");
    for (option, words) in testkit::rows! {
        "--cgroup-manager=disabled" => "nothing enforces its device rules";
        "--cgroup-m=disabled" => "unknown option --cgroup-m=disabled";
    } {
        let run = [option, "run", "-b", bundle.as_str(), &unique()];
        setup.runmig(&run).refused_for(words);
        setup.nothing_is_left();
    }
}
