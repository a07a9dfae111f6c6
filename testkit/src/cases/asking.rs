//! Every form in which a container can ask.

use crate::bundle::{SHOW, visible};
use crate::{Bundle, Setup, unique};

/// The profile that a container gets for what its bundle says; none when it gets nothing.
#[track_caller]
fn given(setup: &Setup, bundle: &Bundle) -> Option<String> {
    let id = unique();
    let before = bundle.bytes();
    setup.create(bundle, &id);
    let instances = setup.machine.instances();
    let leases = setup.leases();
    assert_eq!(leases.len(), instances.len());
    let profile = instances.first().map(|i| i.profile.clone());
    match leases.first() {
        Some(lease) => {
            assert_eq!(lease["container"], id);
            assert_eq!(lease["state"], "ready");
            assert_eq!(lease["profile"], instances[0].profile);
        }
        None => assert_eq!(bundle.bytes(), before, "who does not ask is left alone"),
    }
    setup.ends(&[&id]);
    assert_eq!(bundle.bytes(), before);
    profile
}

#[track_caller]
fn of_slice(setup: &Setup, slice: &str) -> Option<String> {
    given(setup, &setup.asking(slice, "true"))
}

pub fn gets_a_profile(setup: &Setup) {
    assert_eq!(of_slice(setup, "1g.10gb").as_deref(), Some("1g.10gb"));
    assert_eq!(of_slice(setup, "3g.40gb").as_deref(), Some("3g.40gb"));
}

pub fn gets_profile_with_media_engines(setup: &Setup) {
    assert_eq!(of_slice(setup, "1g.10gb+me").as_deref(), Some("1g.10gb+me"));
}

/// The smallest that has so much: 2g.20gb has 19.5 GiB.
pub fn gets_an_amount_of_memory(setup: &Setup) {
    assert_eq!(of_slice(setup, "5000Mi").as_deref(), Some("1g.10gb"));
    assert_eq!(of_slice(setup, "20Gi").as_deref(), Some("3g.40gb"));
    assert_eq!(of_slice(setup, "40Gi").as_deref(), Some("7g.80gb"));
}

/// The first that can be had, of those that the machine has.
pub fn gets_first_of_a_list(setup: &Setup) {
    let list = "7g.999gb,3g.40gb,1g.10gb";
    assert_eq!(of_slice(setup, list).as_deref(), Some("3g.40gb"));
    for gpu in ["0", "1"] {
        let profile = ["--gpu", gpu, "--profile", "4g.40gb", "--start", "0"];
        setup.sim("create", &profile);
        let profile = ["--gpu", gpu, "--profile", "1g.10gb", "--start", "6"];
        setup.sim("create", &profile);
    }
    let (_, id) = setup.made(list, "true");
    let lease = setup.the_lease();
    assert_eq!(lease["profile"], "1g.10gb");
    assert_eq!(lease["request"], list);
    setup.runmig(&["delete", "--force", &id]).ok();
}

pub fn gets_least_compute_slices(setup: &Setup) {
    for (slice, compute, profile) in [
        ("10Gi", "1", "1g.20gb"),
        ("10Gi", "2", "2g.20gb"),
        ("5Gi", "4", "4g.40gb"),
    ] {
        let bundle = setup.asking(slice, "true");
        bundle.annotate("runmig.dev/compute", compute);
        assert_eq!(given(setup, &bundle).as_deref(), Some(profile));
    }
}

pub fn none_gets_no_slice(setup: &Setup) {
    assert_eq!(of_slice(setup, "none"), None);
}

/// As containerd marks the containers of a pod.
fn in_a_pod(setup: &Setup, name: &str, asks: &[(&str, &str)]) -> Bundle {
    let bundle = setup.bundle("true");
    bundle.annotate("io.kubernetes.cri.container-type", "container");
    bundle.annotate("io.kubernetes.cri.container-name", name);
    bundle.annotate("io.kubernetes.cri.sandbox-name", "pod");
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", "team");
    for (key, value) in asks {
        bundle.annotate(key, value);
    }
    bundle
}

pub fn gets_slice_by_container_name(setup: &Setup) {
    let asks = [("slice.runmig.dev/web", "2g.20gb")];
    let web = in_a_pod(setup, "web", &asks);
    assert_eq!(given(setup, &web).as_deref(), Some("2g.20gb"));
    let db = in_a_pod(setup, "db", &asks);
    assert_eq!(given(setup, &db), None);
}

pub fn own_key_of_container_wins(setup: &Setup) {
    let asks = [
        ("runmig.dev/slice", "1g.10gb"),
        ("slice.runmig.dev/web", "20Gi"),
        ("slice.runmig.dev/proxy", "none"),
    ];
    let profile = |name| given(setup, &in_a_pod(setup, name, &asks));
    assert_eq!(profile("web").as_deref(), Some("3g.40gb"));
    assert_eq!(profile("proxy"), None);
    assert_eq!(profile("db").as_deref(), Some("1g.10gb"));
}

/// It carries the annotations of its pod and gets nothing, whatever they say.
pub fn gives_sandbox_nothing(setup: &Setup) {
    for key in [
        "io.kubernetes.cri.container-type",
        "io.kubernetes.cri-o.ContainerType",
    ] {
        let bundle = setup.asking("1g.10gb", "true");
        bundle.annotate(key, "sandbox");
        assert_eq!(given(setup, &bundle), None);
    }
}

/// The ledger knows the pod as the engine called it.
pub fn records_the_pod(setup: &Setup) {
    let bundle = in_a_pod(setup, "web", &[("runmig.dev/slice", "1g.10gb")]);
    let id = unique();
    setup.create(&bundle, &id);
    let (lease, instance) = (setup.the_lease(), setup.machine.the_instance());
    assert_eq!(lease["pod"], "pod");
    assert_eq!(lease["namespace"], "team");
    assert_eq!(lease["containerName"], "web");
    assert_eq!(lease["gpuUUID"], instance.gpu_uuid);
    assert_eq!(lease["migUUID"], instance.uuid);
    assert_eq!(lease["gpuInstanceID"], instance.gi);
    assert_eq!(lease["computeInstanceID"], instance.ci);
    assert_eq!(lease["migPlacement"]["start"], instance.start);
    assert_eq!(lease["migPlacement"]["size"], instance.size);
    setup.ends(&[&id]);
}

/// Only annotations ask: what an image sets is overwritten, or stays nothing.
pub fn image_cannot_ask(setup: &Setup) {
    let all = serde_json::json!("NVIDIA_VISIBLE_DEVICES=all");
    let bundle = setup.asking("1g.10gb", SHOW);
    bundle.edit(|config| {
        let env = config["process"]["env"].as_array_mut().unwrap();
        env.push(all.clone());
    });
    let said = setup.run(&bundle);
    assert!(
        visible(&said.stdout).unwrap().starts_with("MIG-"),
        "{}",
        said.stdout
    );

    let bundle = setup.bundle("true");
    bundle.edit(|config| config["process"]["env"] = serde_json::json!([all]));
    assert_eq!(given(setup, &bundle), None);
}
