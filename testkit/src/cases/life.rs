//! The life of a slice: create, start, delete, and what can happen in between.

use crate::diff::diff;
use crate::prelude::*;

pub fn create_start_delete(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", SHOW);
    let before = bundle.bytes();
    let id = unique();
    let created = setup.create(&bundle, &id);
    let instance = setup.machine.the_instance();
    assert_eq!(created.stdout_now(), "", "nothing runs yet");

    setup.runmig(&["start", &id]).ok();
    until("the container has ended", || {
        let state = setup.runmig(&["state", &id]).ok().json();
        state["status"] == "stopped"
    });
    let saw = created.stdout_now();
    assert_eq!(visible(&saw), Some(instance.uuid.as_str()));
    assert_eq!(nodes(&saw), setup.machine.nodes_of(&instance));
    let now = setup.machine.instances();
    assert_eq!(now, [instance], "its slice is its until delete");

    setup.runmig(&["delete", &id]).ok();
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
    assert_eq!(bundle.names(), ["config.json", "rootfs"]);
}

/// Nothing but what has to change: nodes, their rules, the environment, the hook.
pub fn changes_listed_fields_of_config(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    bundle.edit(|config| {
        config["future"] = json!({"field": [null, u64::MAX, {"": ""}]});
        config["linux"]["resources"]["unknown"] = json!(u64::MAX);
        // crun dies of SIGPIPE where a hook ends before it has read its standard input.
        let args = ["sh", "-c", "while read -r line; do :; done"];
        let kernel = json!({"path": "/bin/sh", "args": args, "timeout": 5});
        config["hooks"] = json!({"poststop": [kernel]});
    });
    let (before, was) = (bundle.config(), fs::metadata(bundle.file()).unwrap());
    let id = unique();
    setup.create(&bundle, &id);
    let (after, is) = (bundle.config(), fs::metadata(bundle.file()).unwrap());
    let [was, is] = [was, is].map(|file| (file.mode(), file.uid(), file.gid()));
    assert_eq!(was, is);

    let changes = diff(&before, &after);
    let group = |change: &'_ String| change.split('[').next().unwrap().to_owned();
    let groups: BTreeSet<String> = changes.iter().map(group).collect();
    let listed = [
        "/hooks/poststop",
        "/linux/devices",
        "/linux/resources/devices",
        "/process/env",
    ];
    let listed = BTreeSet::from(listed.map(|path| format!("+ {path}")));
    assert_eq!(groups, listed);
    let first = &after["hooks"]["poststop"][0];
    assert_eq!(first["path"], json!(setup.program("runmig-hook")));
    let is_whole = first["timeout"].is_u64() && first["env"].is_array();
    assert!(is_whole, "{first}");
    let instance = setup.machine.the_instance();
    let env = after["process"]["env"].as_array().unwrap();
    let visible = format!("NVIDIA_VISIBLE_DEVICES={}", instance.uuid);
    assert_eq!(env.iter().filter(|e| **e == visible.as_str()).count(), 1);
    setup.ends(&[&id]);
}

/// The hook is gone, or failed: `delete` releases the slice all the same.
pub fn delete_releases_without_hook(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let id = setup.create_new(&bundle);
    fs::remove_file(setup.program("runmig-hook")).unwrap();
    // Newer low-level runtimes answer 1 when a hook fails, older ones 0; both have deleted it.
    let deleted = setup.runmig(&["delete", "--force", &id]);
    // crun 1.8 writes the state to a hook that is not there, and may die of SIGPIPE.
    let broken_pipe = deleted.status.signal() == Some(Signal::SIGPIPE as i32);
    let ended = matches!(deleted.status.code(), Some(0 | 1));
    assert!(ended || (broken_pipe && setup.low.is_crun()), "{deleted:?}");
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

/// The front runs the low-level runtime itself, and a hook that released the slice leaves no work for
/// `runmig-slice`. runc runs no hook while the cgroup of a dying container is busy, so the container ends first. Without the hook as well, the lease stays for a later call, and the engine gets the
/// low-level runtime's answer.
pub fn deletes_without_slice_program(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    let id = unique();
    let create = || setup.create(&bundle, &id);
    create();
    let (program, aside) = (setup.program("runmig-slice"), setup.program("aside"));
    fs::rename(&program, &aside).unwrap();
    setup.runmig(&["kill", &id, "KILL"]).ok();
    until("it has ended", || in_cgroup(&bundle.cgroup()).is_empty());
    let deleted = setup.runmig(&["delete", "--force", &id]).ok();
    assert_eq!(deleted.stderr, "");
    setup.nothing_is_left();

    fs::rename(&aside, &program).unwrap();
    create();
    fs::rename(&program, &aside).unwrap();
    fs::remove_file(setup.program("runmig-hook")).unwrap();
    let deleted = setup.runmig(&["delete", "--force", &id]);
    has(&deleted.stderr, "install runmig-slice beside runmig");
    setup.the_lease();
    fs::rename(&aside, &program).unwrap();
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
}

/// The low-level runtime alone, behind our back: the hook is all there is.
pub fn hook_releases_alone(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let id = setup.create_new(&bundle);
    said(&mut setup.bare(&["delete", "--force", &id])).ok();
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

/// Neither the hook nor a delete: the state directory is gone. `migctl gc` finds it.
pub fn gc_finds_forgotten_leases(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let id = setup.create_new(&bundle);
    setup.migctl(&["gc"]).ok();
    setup.the_lease();

    fs::remove_file(setup.program("runmig-hook")).unwrap();
    let _ = said(&mut setup.bare(&["delete", "--force", &id]));
    setup.the_lease();
    setup.migctl(&["gc", "--dry-run"]).ok();
    setup.the_lease();
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

pub fn running_container_keeps_its_slice(setup: &Setup) {
    let (_, id) = setup.made("1g.10gb", "sleep 1000");
    setup.runmig(&["start", &id]).ok();
    let refused = setup.runmig(&["delete", &id]);
    assert!(!refused.status.success(), "{refused:?}");
    let instance = setup.machine.the_instance();
    setup.migctl(&["release", &id]).refused_for("lives");
    setup.migctl(&["gc"]).ok();
    assert_eq!(setup.machine.the_instance(), instance);
    setup.ends(&[&id]);
}

pub fn reuses_the_bundle(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let mut edited = Vec::new();
    for _ in 0..3 {
        let id = unique();
        setup.create(&bundle, &id);
        let mut config = bundle.config();
        // The lease's id is another each time.
        config["hooks"]["poststop"][0]["args"] = Value::Null;
        edited.push(config);
        setup.delete(&id);
        assert_eq!(bundle.bytes(), before);
    }
    assert_eq!(edited[0], edited[1]);
    assert_eq!(edited[1], edited[2]);
    setup.nothing_is_left();
}

pub fn tells_roots_of_id_apart(setup: &Setup) {
    let id = unique();
    for (root, slice) in [("a", "1g.10gb"), ("b", "2g.20gb")] {
        let bundle = setup.asking(slice, "true");
        said(&mut setup.under(root, &["create", "-b", bundle.as_str(), &id])).ok();
    }
    assert_eq!(setup.leases().len(), 2);
    said(&mut setup.under("a", &["delete", "--force", &id])).ok();
    assert_eq!(setup.machine.the_instance().profile, "2g.20gb");
    assert_eq!(setup.the_lease()["profile"], "2g.20gb");
    said(&mut setup.under("b", &["delete", "--force", &id])).ok();
    setup.nothing_is_left();
}

/// Until the machine is full; each its own, and the one too many is refused.
pub fn gives_no_slice_twice(setup: &Setup) {
    let containers: Vec<String> = (0..14).map(|_| unique()).collect();
    let create = |id: &String| {
        let bundle = setup.asking("1g.10gb", "true");
        let mut command = setup.command(&["create", "-b", bundle.as_str(), id]);
        going(command.stdin(Stdio::null()))
    };
    let creates: Vec<Going> = containers.iter().map(create).collect();
    creates
        .into_iter()
        .for_each(|create| drop(create.end().ok()));
    let instances = setup.machine.instances();
    let uuids: BTreeSet<&str> = instances.iter().map(|i| i.uuid.as_str()).collect();
    assert_eq!((instances.len(), uuids.len()), (14, 14));
    let leases = setup.leases();
    let uuid = |lease: &'_ Value| lease["migUUID"].as_str().unwrap().to_owned();
    let leased: BTreeSet<String> = leases.iter().map(uuid).collect();
    assert!(leased.iter().eq(uuids), "{leases:?}");

    let bundle = setup.asking("1g.10gb", "true");
    let full = "cannot allocate 1g.10gb: GPU 0 has no more instances of 1g.10gb";
    setup.try_create(&bundle, &unique()).refused_for(full);
    setup.ends(&containers);
}
