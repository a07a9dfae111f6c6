//! An update of resources: what engines send with it knows nothing of the slice's devices.

use crate::bundle::all_open;
use crate::prelude::*;

/// As engines write them: nothing, but what every container has.
fn own_rules() -> Value {
    json!([
        {"allow": false, "access": "rwm"},
        {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"}
    ])
}

fn container(setup: &Setup, bundle: &Bundle) -> String {
    let id = setup.create_new(bundle);
    setup.runmig(&["start", &id]).ok();
    id
}

/// Checks the one value of the update.
#[track_caller]
fn pids(bundle: &Bundle, limit: u32) {
    let cgroup = Path::new("/sys/fs/cgroup");
    let v1 = cgroup.join("pids").join(bundle.cgroup());
    let v2 = cgroup.join(bundle.cgroup());
    let read = |dir: &Path| fs::read_to_string(dir.join("pids.max"));
    let is = read(&v1).or_else(|_| read(&v2)).unwrap();
    assert_eq!(is.trim(), limit.to_string());
}

/// Failure: an `update` of a container with a slice contains resources that crun reads and runmig does not (comments, a NUL in a key)
pub fn keeps_devices_open(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "exec sleep 1000");
    let id = container(setup, &bundle);
    let file = setup.path("resources.json");
    let given = |limit: u32| {
        let resources = json!({"devices": own_rules(), "pids": {"limit": limit}});
        fs::write(&file, resources.to_string()).unwrap();
    };
    let update = |arguments: &[&str]| {
        let mut command = setup.command(&[&["update"], arguments].concat());
        going(command.stdin(File::open(&file).unwrap())).end()
    };
    let name = file.to_str().unwrap();
    let ways: [&[&str]; 5] = [
        &["--resources", name, &id],
        &["--resources=resources.json", &id],
        &["-r", "-", "--", &id],
        &["-r", "/dev/stdin", &id],
        &["--pids-limit=504", &id],
    ];
    for (limit, way) in (500..).zip(ways) {
        given(limit);
        update(way).ok();
        pids(&bundle, limit);
        all_open(&setup.runmig(&["exec", &id, "sh", "-c", OPEN]).ok().stdout);
    }
    if setup.low.is_crun() {
        given(900);
        update(&["--res", name, &id]).refused_for(&format!("container {id} has a slice"));
    }
    // None of them reaches the devices.
    let rules = own_rules();
    for wrong in [
        String::new(),
        "[".into(),
        "[]".into(),
        "{\"pids\": 1}".into(),
        // crun takes comments, and ends a key at a NUL
        format!("{{/**/\"devices\":{rules}}}"),
        format!("{{\"devices\\u0000\":{rules}}}"),
        format!("{{\"devices\":{rules},\"devices\":{rules}}}"),
    ] {
        fs::write(&file, wrong).unwrap();
        let said = update(&["--resources", "-", &id]);
        assert!(!said.stderr.contains("panicked"), "{said:?}");
    }
    fs::remove_file(&file).unwrap();
    let gone = setup.runmig(&["update", "-r", name, &id]);
    assert!(!gone.status.success(), "{gone:?}");
    all_open(&setup.runmig(&["exec", &id, "sh", "-c", OPEN]).ok().stdout);
    setup.ends(&[&id]);
}

/// Bounded, and nothing changed.
pub fn bounds_resources_of_update(setup: &Setup) {
    if !setup.low.is_crun() {
        return;
    }
    let bundle = setup.asking("1g.10gb", "exec sleep 1000");
    let id = container(setup, &bundle);
    let file = setup.path("resources.json");
    let resources = json!({"devices": own_rules(), "pids": {"limit": 500}}).to_string();
    fs::write(&file, resources + &" ".repeat(1 << 20)).unwrap();
    let update = setup.runmig(&["update", "-r", "resources.json", &id]);
    update.refused_for("longer than 1048576 bytes");
    all_open(&setup.runmig(&["exec", &id, "sh", "-c", OPEN]).ok().stdout);
    setup.ends(&[&id]);
}

/// The rules are the engine's business then, as without us.
pub fn updates_others_unchanged(setup: &Setup) {
    if !setup.low.is_crun() {
        return;
    }
    let bundle = setup.bundle("exec sleep 1000");
    bundle.edit(|config| {
        let node = json!([{"type": "c", "major": 195, "minor": 250, "path": "/dev/nvidia250"}]);
        let rules =
            json!([{"type": "c", "major": 195, "minor": 250, "allow": true, "access": "rwm"}]);
        config["linux"]["devices"] = node;
        config["linux"]["resources"]["devices"] = rules;
    });
    let id = container(setup, &bundle);
    let open = || setup.runmig(&["exec", &id, "sh", "-c", OPEN]).ok().stdout;
    assert!(open().contains("No such device"), "{}", open());
    let resources = json!({"devices": own_rules()}).to_string();
    fs::write(setup.path("resources.json"), resources).unwrap();
    setup.runmig(&["update", "-r", "resources.json", &id]).ok();
    assert!(open().contains("not permitted"), "{}", open());
    setup.delete(&id);
}

/// Limits must be changeable whatever became of our installation.
pub fn updates_without_our_program(setup: &Setup) {
    if !setup.low.is_crun() {
        return;
    }
    let bundle = setup.asking("1g.10gb", "exec sleep 1000");
    let id = container(setup, &bundle);
    fs::remove_file(setup.program("runmig-slice")).unwrap();
    fs::write(setup.path("resources.json"), r#"{"pids": {"limit": 77}}"#).unwrap();
    let said = setup.runmig(&["update", "-r", "resources.json", &id]).ok();
    assert!(said.stderr.contains("runmig-slice"), "{said:?}");
    pids(&bundle, 77);
    setup.ends(&[&id]);
}
