//! Containers with a claim whose low-level runtime is runmig: it attaches them itself, and seals them.

use super::*;
use containers::containers;

fn read(world: &World, id: &str, name: &str) -> Value {
    let file = world.path("bundles").join(id).join(name);
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn config(world: &World, id: &str) -> Value {
    read(world, id, "config.json")
}

/// Returns the UUIDs of the container's devices, in their order.
fn visible(world: &World, id: &str) -> Vec<String> {
    let config = config(world, id);
    let env = config["process"]["env"].as_array().unwrap().iter();
    let value = env.filter_map(|entry| entry.as_str()?.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
    let values: Vec<&str> = value.collect();
    assert_eq!(values.len(), 1, "{config}");
    values[0].split(',').map(str::to_owned).collect()
}

/// Returns the programs of the hooks of a stage.
fn hooks(config: &Value, stage: &str) -> Vec<String> {
    let hooks = config["hooks"][stage].as_array();
    let program = |hook: &Value| hook["args"][0].as_str().unwrap().to_owned();
    hooks.into_iter().flatten().map(program).collect()
}

fn original(world: &World, id: &str) -> Value {
    read(world, id, "original")
}

#[test]
fn attaches_and_seals_container() {
    let world = prepared(&["a", "b"]);
    world.bundle_with_claims("c", &["b", "a"]);
    let calls = world.driver_calls(|| drop(world.create("c")));
    assert_eq!(calls, [""; 0]);
    let uuid = |uid: &str| {
        let leases = world.leases();
        let its = leases.iter().find(|l| l["claim"]["uid"] == uid).unwrap();
        its["migUUID"].as_str().unwrap().to_owned()
    };
    assert_eq!(visible(&world, "c"), [uuid("b"), uuid("a")]);
    let edited = config(&world, "c");
    assert_eq!(hooks(&edited, "createRuntime"), [""; 0]);
    assert_eq!(hooks(&edited, "poststop"), ["runmig-hook"]);
    // The device nodes of two slices, of the GPU, and the common ones.
    let nodes = edited["linux"]["devices"].as_array().unwrap();
    assert!(nodes.len() > 6, "{nodes:#?}");
    assert_eq!(containers(&world), ["c", "c"]);
    for lease in world.leases() {
        assert_eq!(lease["state"], "ready");
        assert_eq!(lease["pod"], "train");
    }
    // A collection takes nothing from a living container, and its end nothing from the claims.
    world.gc().ok();
    world.delete("c");
    assert_eq!(containers(&world), [""; 0]);
    assert_eq!((world.leases().len(), world.instances().len()), (2, 2));
    assert_eq!(config(&world, "c"), original(&world, "c"));
    for uid in ["a", "b"] {
        unprepare(&world, uid).unwrap();
    }
    nothing_is_left(&world);
}

/// An early Unprepare took the claim from a container that lived. Once it has ended, an engine may start it again from its
/// bundle, with or without a delete.
/// Failure: a claim ends before its container of the class `runmig`
#[test]
fn names_claim_that_ended_early() {
    for is_deleted in [true, false] {
        let world = prepared(&["a"]);
        world.bundle_with_claims("c", &["a"]);
        world.create("c");
        unprepare(&world, "a").unwrap();
        world.the_instance();
        assert_eq!(containers(&world), ["c"]);
        if is_deleted {
            world.delete("c");
            nothing_is_left(&world);
        } else {
            world.vanish("c");
        }
        for _ in 0..2 {
            let why = "cannot start container c: claim a has no slice for device device; hint: delete the pod";
            world.refuses("c", why);
            // The slice went with its last container, and the bundle is as the engine wrote it.
            nothing_is_left(&world);
            assert_eq!(config(&world, "c"), original(&world, "c"));
        }
        // The next Prepare of the claim makes it work.
        prepare(&world, "a", &place(&world, "1g.6gb", 0, 1)).unwrap();
        world.create("c");
        assert_eq!(visible(&world, "c"), world.the_instance().uuids);
    }
}

/// The edit of a killed create has no hook of the claim, and the runtime's own request does not take its place.
/// Failure: the bundle of such a create is used again
#[test]
fn seals_container_again() {
    for config_file in ["config.toml", "named.toml"] {
        eprintln!("{config_file}");
        let world = prepared(&["a"]);
        world.bundle_with_claims("c", &["a"]);
        world.abandoned("c");
        let edited = config(&world, "c");
        assert_eq!(hooks(&edited, "createRuntime"), [""; 0]);
        let request = "[request]\nslice = \"2g.12gb\"\n";
        fs::write(world.path("named.toml"), request).unwrap();
        let mut create = world.make_command("create", "c");
        said(create.env("RUNMIG_CONFIG", world.path(config_file))).ok();
        assert_eq!(visible(&world, "c"), world.the_instance().uuids);
        assert_eq!(containers(&world), ["c"]);
    }
}

/// Failure: a container of the class `runmig` has a claim and an annotation, or a foreign pod's claim
#[test]
fn refuses_claim_beside_annotation() {
    let world = prepared(&["a"]);
    let dir = world.bundle_with_claims("c", &["a"]);
    let annotate = |value: &str| {
        let mut config = original(&world, "c");
        config["annotations"]["runmig.dev/slice"] = json!(value);
        fs::write(dir.join("config.json"), config.to_string()).unwrap();
    };
    annotate("1g.6gb");
    let why = "container c has two requests: an annotation or a device of runmig, and a ResourceClaim; hint: ";
    world.refuses("c", why);
    assert_eq!(containers(&world), [""; 0]);
    annotate("none");
    world.create("c");
    assert_eq!(containers(&world), ["c"]);
}

#[test]
fn refuses_claim_of_another_pod() {
    let world = prepared(&["a"]);
    let dir = world.bundle_with_claims("c", &["a"]);
    let mut config = original(&world, "c");
    config["annotations"]["io.kubernetes.cri.sandbox-namespace"] = json!("other");
    config["annotations"]["io.kubernetes.cri.sandbox-uid"] = json!("spy-uid");
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let why = "cannot start container c: claim team-a/a-gpu (pod team-a/train) is not reserved for pod other/train";
    world.refuses("c", why);
    config["hooks"]["createRuntime"][0]["args"] = json!(["runmig-claim", "attach", "--claim", "a"]);
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    world.refuses("c", "cannot accept hook ");
    assert_eq!(containers(&world), [""; 0]);
    assert_eq!(self::config(&world, "c"), config);
}
