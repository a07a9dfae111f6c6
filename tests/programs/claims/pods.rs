//! The pods of a claim: the hook gives no other pod its slice.

use super::*;
use containers::{containers, hook, hook_call, init};
use runmig_lease::process;
use runmig_lease::store::{ClaimName, Container, Key};

const LONG: Duration = Duration::from_secs(60);

/// It names the claim's CDI device in an annotation.
/// Failure: a container of a foreign pod names the claim's CDI device, or forges the pod's uid
#[test]
fn refuses_pod_of_another_namespace() {
    let world = prepared(&["a"]);
    let init = init();
    let annotations = json!({
        "io.kubernetes.cri.sandbox-name": "spy",
        "io.kubernetes.cri.sandbox-namespace": "other",
        "io.kubernetes.cri.sandbox-uid": "spy-uid",
    });
    let attach = hook_call(&world, "attach", "a", Some(&init), annotations);
    let line = settled(&attach).refused();
    let why = "runmig-claim: cannot start container c: claim team-a/a-gpu (pod team-a/train) is not reserved for pod \
               other/spy (uid spy-uid); hint: let the pod request a slice of its own";
    begins_with(&line, why);
    assert_eq!(containers(&world), [""; 0]);
}

/// CRI-O passes a pod's annotations on, and containerd's keys with them.
#[test]
fn refuses_forged_pod() {
    let world = prepared(&["a"]);
    let init = init();
    let attach = |annotations| {
        let call = hook_call(&world, "attach", "a", Some(&init), annotations);
        settled(&call).refused()
    };
    let line = attach(json!({
        "io.kubernetes.cri.sandbox-uid": "pod-uid",
        "io.kubernetes.pod.uid": "spy-uid",
    }));
    has(&line, "contradict each other");
    let line = attach(json!({"io.kubernetes.cri.sandbox-name": "train"}));
    has(&line, "annotations of the container name no pod");
    assert_eq!(containers(&world), [""; 0]);
    hook(&world, "attach", "a", Some(&init)).ok();
    assert_eq!(containers(&world), ["c"]);
}

/// The kubelet prepares a shared claim once. A later pod gets on record while its container starts.
/// Failure: a pod comes to a prepared claim, and its container starts before the driver has it on record
#[test]
fn waits_until_claim_names_pod() {
    let world = prepared(&["a"]);
    let init = process::current();
    let container = Container {
        key: Key::new("/bundles/c".into(), "c".to_owned()),
        namespace: Some("team-a".to_owned()),
        pod: Some("late".to_owned()),
        pod_uid: Some("late-uid".to_owned()),
        ..Container::default()
    };
    let device = ClaimName {
        uid: "a".to_owned(),
        device: "device".to_owned(),
    };
    let attach = |patience| {
        let container = container.clone();
        with(&world, |leases| {
            leases.attach(&device, container, init, patience)
        })
    };
    let line = attach(Duration::ZERO).unwrap_err().line();
    has(&line, "is not reserved for pod team-a/late (uid late-uid)");
    has(&line, "see that runmig-dra runs on the node");
    std::thread::scope(|scope| {
        let late = scope.spawn(|| attach(LONG).unwrap());
        promise_to_both(&world, "late", &place(&world, "1g.6gb", 0, 1));
        late.join().unwrap();
    });
    assert_eq!(containers(&world), ["c"]);
}
