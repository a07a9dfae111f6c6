//! The containers on a claim's slice: each has a lease of its own, by the hook `runmig-claim`.

use super::*;
use crate::layouts::leases::apply;
use runmig_lease::process;
use runmig_lease::store::{ClaimName, Container, Key};
use testkit::faults::strace::Call;

/// Returns a process that stands for the init of a container.
pub fn init() -> Killed {
    let mut sleep = Command::new("sleep");
    Killed(sleep.arg("1000").stdout(Stdio::null()).spawn().unwrap())
}

/// Calls the hook for the container `c` of the pod `train`.
pub fn hook(world: &World, verb: &str, uid: &str, init: Option<&Killed>) -> Said {
    settled(&hook_call(world, verb, uid, init))
}

/// The same hook, to be called.
pub fn hook_call(world: &World, verb: &str, uid: &str, init: Option<&Killed>) -> Call {
    let state = json!({
        "ociVersion": "1.0.2", "id": "c", "status": "created", "bundle": "/bundles/c",
        "pid": init.map_or(0, |init| init.0.id()),
        "annotations": {
            "io.kubernetes.cri.sandbox-name": "train",
            "io.kubernetes.cri.sandbox-uid": "pod-uid",
            "number": 1,
        },
    });
    let file = world.path("state.json");
    fs::write(&file, state.to_string()).unwrap();
    let mut command = world.program("runmig-claim");
    command.args([verb, "--claim", uid, "--device", "device"]);
    Call {
        command,
        stdin: Some(file),
    }
}

/// The leases of containers, by their ids.
pub fn containers(world: &World) -> Vec<String> {
    let leases = world.leases();
    let ids = leases.iter().filter_map(|l| l["container"].as_str());
    ids.filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// Returns a world with the slice of claim `a`, and the container on it.
fn attached() -> (World, Killed) {
    let (world, init) = (prepared(&["a"]), init());
    hook(&world, "attach", "a", Some(&init)).ok();
    (world, init)
}

/// Failure: the claim ends while a container of its pod lives
#[test]
fn early_unprepare_spares_container() {
    let (world, init) = attached();
    hook(&world, "attach", "a", Some(&init)).ok();
    assert_eq!(world.leases().len(), 2);
    unprepare(&world, "a").unwrap();
    let lease = the_lease(&world);
    assert_eq!(lease["container"], "c");
    assert_eq!(lease["pod"], "train");
    world.gc().ok();
    world.the_instance();
    // The hook at the end only writes the ledger.
    let calls = world.driver_calls(|| drop(hook(&world, "detach", "a", None).ok()));
    assert_eq!(calls, [""; 0]);
    assert_eq!(the_lease(&world)["state"], "releasing");
    with(&world, |leases| leases.release_ended()).unwrap();
    nothing_is_left(&world);
}

/// The driver of the claims has the bundles of none, so it ends no other leases.
#[test]
fn sweep_ends_containers_of_claims_alone() {
    let (world, init) = attached();
    unprepare(&world, "a").unwrap();
    world.abandoned("other");
    let sweep = || with(&world, |leases| leases.release_ended()).unwrap();
    sweep();
    assert_eq!(world.leases().len(), 2);
    drop(init);
    sweep();
    assert_eq!(containers(&world), ["other"]);
    world.gc().ok();
    nothing_is_left(&world);
}

/// Failure: Kubernetes forgets a claim, and no Unprepare comes
#[test]
fn names_user_of_claim() {
    let world = prepared(&["a"]);
    let device = ClaimName {
        uid: "a".to_owned(),
        device: "device".to_owned(),
    };
    let user = || with(&world, |leases| leases.user_of_device(&device)).unwrap();
    assert_eq!(user(), None);
    let hold = world.hold(0, world.the_instance().gi, Some(0));
    let pid = std::process::id();
    assert!(user().unwrap().starts_with(&format!("process {pid} ")));
    drop(hold);
    let init = init();
    hook(&world, "attach", "a", Some(&init)).ok();
    assert!(user().unwrap().starts_with("container c lives"));
    drop(init);
    assert_eq!(user(), None);
}

/// The claim goes first, and the hook at the end of the container only writes the ledger.
#[test]
fn layout_outlives_claim_and_container() {
    let world = prepared(&["a"]);
    let slice = world.the_instance().generation;
    let init = init();
    hook(&world, "attach", "a", Some(&init)).ok();
    said(&mut apply(&world, r#"{"1g.6gb": 1}"#)).ok();
    unprepare(&world, "a").unwrap();
    drop(init);
    hook(&world, "detach", "a", None).ok();
    with(&world, |leases| leases.release_ended()).unwrap();
    world.gc().ok();
    assert_eq!(world.states(), ["layout"]);
    assert_eq!(world.the_instance().generation, slice);
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
        let late = scope.spawn(|| attach(Duration::from_secs(60)).unwrap());
        promise_to_both(&world, "late", &place(&world, "1g.6gb", 0, 1));
        late.join().unwrap();
    });
    assert_eq!(containers(&world), ["c"]);
}
