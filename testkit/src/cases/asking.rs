//! Every form in which a container can ask.

use crate::bundle::{SHOW, visible};
use crate::{Bundle, Setup, begins_with, unique};

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

/// An amount gets the smallest that has so much: 2g.20gb has 19.5 GiB. A sandbox carries the annotations of its pod and gets
/// nothing, whatever they say.
pub fn gets_what_it_asks_for(setup: &Setup) {
    const SLICE: &str = "runmig.dev/slice";
    const COMPUTE: &str = "runmig.dev/compute";
    const OF_POD: [(&str, &str); 3] = [
        (SLICE, "1g.10gb"),
        ("slice.runmig.dev/web", "20Gi"),
        ("slice.runmig.dev/proxy", "none"),
    ];
    let small = (SLICE, "1g.10gb");
    let in_pod = |name| [&OF_POD[..], &[("io.kubernetes.cri.container-name", name)]].concat();
    for (asks, profile) in crate::rows! {
        vec![small] => Some("1g.10gb");
        vec![(SLICE, "3g.40gb")] => Some("3g.40gb");
        vec![(SLICE, "1g.10gb+me")] => Some("1g.10gb+me");
        vec![(SLICE, "5000Mi")] => Some("1g.10gb");
        vec![(SLICE, "20Gi")] => Some("3g.40gb");
        vec![(SLICE, "40Gi")] => Some("7g.80gb");
        vec![(SLICE, "10Gi"), (COMPUTE, "1")] => Some("1g.20gb");
        vec![(SLICE, "10Gi"), (COMPUTE, "2")] => Some("2g.20gb");
        vec![(SLICE, "5Gi"), (COMPUTE, "4")] => Some("4g.40gb");
        vec![(SLICE, "none")] => None;
        in_pod("web") => Some("3g.40gb");
        in_pod("proxy") => None;
        in_pod("db") => Some("1g.10gb");
        vec![OF_POD[1], ("io.kubernetes.cri.container-name", "db")] => None;
        vec![small, ("io.kubernetes.cri.container-type", "sandbox")] => None;
        vec![small, ("io.kubernetes.cri-o.ContainerType", "sandbox")] => None;
    } {
        let given = given(setup, &setup.bundle_with(&asks));
        assert_eq!(given.as_deref(), profile, "{asks:?}");
    }
}

/// The first that can be had, of those that the machine has.
pub fn gets_first_of_a_list(setup: &Setup) {
    let list = "7g.999gb,3g.40gb,1g.10gb";
    let given = given(setup, &setup.asking(list, "true"));
    assert_eq!(given.as_deref(), Some("3g.40gb"));
    for gpu in ["0", "1"] {
        for (profile, start) in [("4g.40gb", "0"), ("1g.10gb", "6")] {
            let arguments = ["--gpu", gpu, "--profile", profile, "--start", start];
            setup.sim("create", &arguments);
        }
    }
    let (_, id) = setup.made(list, "true");
    let lease = setup.the_lease();
    assert_eq!(lease["profile"], "1g.10gb");
    assert_eq!(lease["request"], list);
    setup.delete(&id);
}

/// The ledger knows the pod as the engine called it.
pub fn records_the_pod(setup: &Setup) {
    let id = setup.in_pod("team", "pod", "web", &[("runmig.dev/slice", "1g.10gb")]);
    let (lease, instance) = (setup.the_lease(), setup.machine.the_instance());
    let place = serde_json::json!({"start": instance.start, "size": instance.size});
    for (key, value) in crate::rows! {
        "pod" => "pod".into();
        "namespace" => "team".into();
        "containerName" => "web".into();
        "gpuUUID" => instance.gpu_uuid.into();
        "migUUID" => instance.uuid.into();
        "gpuInstanceID" => instance.gi.into();
        "computeInstanceID" => instance.ci.into();
        "migPlacement" => place;
    } {
        let value: serde_json::Value = value;
        assert_eq!(lease[key], value, "{key}");
    }
    setup.ends(&[&id]);
}

/// Only annotations ask: what an image sets is overwritten, or stays nothing.
pub fn image_cannot_ask(setup: &Setup) {
    let all = "NVIDIA_VISIBLE_DEVICES=all";
    let bundle = setup.asking("1g.10gb", SHOW);
    bundle.set_env(&[all]);
    let said = setup.run(&bundle);
    begins_with(visible(&said.stdout).unwrap(), "MIG-");

    let bundle = setup.bundle("true");
    bundle.edit(|config| config["process"]["env"] = serde_json::json!([all]));
    assert_eq!(given(setup, &bundle), None);
}
