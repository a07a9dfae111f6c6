//! A runtime whose configuration has a request: `runmig-NAME` with `[request]`. The container's own request comes first.

use testkit::prelude::*;

const SMALL: &str = "[request]\nslice = \"1g.6gb\"\n";
const FIXED: &str = "[request]\nslice = \"1g.6gb\"\nfixed = true\n";

/// A machine with `config.toml` for all, and this file beside it for a link.
fn with(request: &str) -> World {
    let world = World::small();
    asks(&world, request);
    world
}

fn asks(world: &World, request: &str) {
    fs::write(world.path("named.toml"), request).unwrap();
}

fn call(world: &World, arguments: &[&str]) -> Said {
    let mut command = world.runmig(arguments);
    said(command.env("RUNMIG_CONFIG", world.path("named.toml")))
}

fn create(world: &World, id: &str, annotations: &[(&str, &str)]) -> Said {
    let bundle = world.bundle_saying(id, annotations);
    call(world, &["create", "--bundle", bundle.to_str().unwrap(), id])
}

/// The container runs, and nothing of runmig's was at it.
#[track_caller]
fn passes(world: &World, id: &str, annotations: &[(&str, &str)]) {
    create(world, id, annotations).ok();
    assert!(!world.bundle_is_edited(id));
    assert!(world.leases().iter().all(|l| l["container"] != id));
    assert!(world.living_init(id).is_some());
}

#[track_caller]
fn refused(world: &World, id: &str, annotations: &[(&str, &str)], words: &[&str]) {
    let line = create(world, id, annotations).refused();
    words.iter().for_each(|word| has(&line, word));
    assert!(world.leases().is_empty());
}

#[test]
fn gives_slice_to_containers_without_request() {
    let world = with(SMALL);
    for (id, annotations, profile) in testkit::rows! {
        "plain", &[][..] => "1g.6gb";
        "labelled", &[("com.example/team", "a")] => "1g.6gb";
        "own", &[("runmig.dev/slice", "2g.12gb")] => "2g.12gb";
    } {
        create(&world, id, annotations).ok();
        assert_eq!(world.lease_of(id)["profile"], profile, "{id}");
    }
    passes(&world, "none", &[("runmig.dev/slice", "none")]);
    passes(&world, "nothing", &[("runmig.dev/gpu", "none")]);
    world.all_go(&["plain", "labelled", "own", "none", "nothing"]);
}

#[test]
fn other_kinds_of_request() {
    let world = World::with_whole_gpus();
    for (id, asked, request) in [
        ("gpu", "gpu = 1", "1 GPU"),
        ("share", "share = \"4Gi\"", "share of 4Gi"),
    ] {
        let level = "sharing.enforcement = [\"none\"]";
        asks(&world, &format!("{level}\n[request]\n{asked}\n"));
        create(&world, id, &[]).ok();
        assert_eq!(world.lease_of(id)["request"], request);
        world.all_go(&[id]);
    }
}

/// Failure: a pod's sandbox takes the slice that the runtime gives each container
#[test]
fn sandboxes_get_nothing() {
    for file in [SMALL, FIXED] {
        let world = with(file);
        let pods = ("runmig.dev/slice", "2g.12gb");
        let containerd = ("io.kubernetes.cri.container-type", "sandbox");
        let crio = ("io.kubernetes.cri-o.ContainerType", "sandbox");
        passes(&world, "one", &[containerd]);
        passes(&world, "two", &[crio, pods]);
        world.all_go(&["one", "two"]);
    }
}

/// Failure: a container has another request than the fixed one of its runtime
#[test]
fn fixed_request_is_the_only_one() {
    let world = with(FIXED);
    let file = world.path("named.toml").display().to_string();
    let own = [
        ("runmig.dev/slice", "2g.12gb"),
        ("runmig.dev/slice", "none"),
        ("runmig.dev/gpu", "1"),
        ("runmig.dev/compute", "2"),
    ];
    for (n, own) in own.into_iter().enumerate() {
        let why = format!("the container has its own request, {}", own.0);
        let why = format!("cannot give the container the request of {file}: {why}");
        let hint = "hint: remove that request, or use a runtime without a fixed one";
        refused(&world, &format!("c{n}"), &[own], &[&why, hint]);
    }
    create(&world, "plain", &[("runmig.dev/wait", "1s")]).ok();
    world.all_go(&["plain"]);
}

#[test]
fn refuses_claim_beside_fixed_request() {
    let world = with(FIXED);
    world.bundle_with_claims("one", &["claim"]);
    let why = "the container has its own request, a ResourceClaim";
    refused(&world, "one", &[], &[why]);
    // Without it the claim is the container's request.
    asks(&world, SMALL);
    let line = create(&world, "one", &[]).refused();
    has(&line, "claim");
    lacks(&line, "asks itself");
}

/// Failure: the rules in config.toml do not count for a runtime with a request
#[test]
fn rules_of_all_count() {
    let world = with(SMALL);
    world.configure("policy.profiles = [\"2g.*\"]");
    refused(&world, "one", &[], &["1g.6gb", "polic"]);
    world.configure("[[policy.limit]]\nslices = 1");
    create(&world, "first", &[]).ok();
    create(&world, "second", &[]).refused_for("limit");
    world.configure("");
    create(&world, "second", &[]).ok();
    world.all_go(&["first", "second"]);
}

#[test]
fn refuses_what_cannot_have_it() {
    let world = with(SMALL);
    let bundle = world.bundle_saying("one", &[]);
    let bundle = bundle.to_str().unwrap();
    let refused = |arguments: &[&str], words| call(&world, arguments).refused_for(words);
    let restore = ["restore", "--bundle", bundle, "one"];
    refused(&restore, "cannot be restored");
    // runmig cannot read these words, so the bundle could be any of them.
    let unknown = ["create", "one", "--bundle", bundle];
    refused(&unknown, "may be the bundle, and asks for a GPU");
    let config = world.path("bundles/one/config.json");
    let original = fs::read(&config).unwrap();
    fs::write(&config, "{").unwrap();
    let create = ["create", "--bundle", bundle, "one"];
    refused(&create, "config.json is cut off");
    fs::write(&config, original).unwrap();
    world.as_if_nothing_had_been().unwrap();
}

#[test]
fn file_says_what_is_wrong() {
    for (text, words) in testkit::rows! {
        "[request]\nslise = \"1g.6gb\"\n" => "line 2: unknown key slise; hint: write slice";
        "[request]\nslice = \"large\"\n" => "request.slice: \"large\"";
        "[request]\nslice = \"1g.6gb\"\ngpu = 1\n" => "request.slice cannot stand beside request.gpu";
        "[request]\nfixed = true\n" => "[request] asks for nothing";
    } {
        let world = with(text);
        let file = world.path("named.toml").display().to_string();
        let wanted = format!("cannot read configuration {file}: {words}");
        // Also for a container that asks for nothing, and by every verb.
        refused(&world, "one", &[], &[&wanted]);
        refused(&world, "two", &[("runmig.dev/slice", "none")], &[&wanted]);
        let mut list = world.migctl(&["list"]);
        said(list.env("RUNMIG_CONFIG", world.path("named.toml"))).refused_for(&wanted);
    }
}
