//! The containers on a claim's slice: each has a lease of its own, by the hook `runmig-claim`.

use super::*;
use runmig_lease::store::ClaimName;
use testkit::faults::strace::Call;

/// Returns a process that stands for the init of a container.
pub fn init() -> Killed {
    let mut sleep = Command::new("sleep");
    Killed(sleep.arg("1000").stdout(Stdio::null()).spawn().unwrap())
}

/// Calls the hook for the container `c` of the pod `train`.
pub fn hook(world: &World, verb: &str, uid: &str, init: Option<&Killed>) -> Said {
    settled(&hook_call(world, verb, uid, init, of_train()))
}

/// The annotations of a container of the pod `train`.
pub fn of_train() -> Value {
    json!({
        "io.kubernetes.cri.sandbox-name": "train",
        "io.kubernetes.cri.sandbox-uid": "pod-uid",
        "number": 1,
    })
}

/// The hook for the container `c` with these annotations, to be called.
pub fn hook_call(
    world: &World,
    verb: &str,
    uid: &str,
    init: Option<&Killed>,
    annotations: Value,
) -> Call {
    let state = json!({
        "ociVersion": "1.0.2", "id": "c", "status": "created", "bundle": "/bundles/c",
        "pid": init.map_or(0, |init| init.0.id()),
        "annotations": annotations,
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
pub fn attached() -> (World, Killed) {
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

/// CRI-O deletes a container after its pod, so the hook may come after the end of the claim too.
/// Failure: a container ends before its claim
#[test]
fn hook_leaves_slice_to_its_claim() {
    for hooks in [0, 2] {
        eprintln!("{hooks} hooks before the end of the claim");
        let (world, init) = attached();
        drop(init);
        for _ in 0..hooks {
            hook(&world, "detach", "a", None).ok();
            assert_eq!(the_lease(&world)["state"], "ready");
        }
        ends_last(&world, "a");
        hook(&world, "detach", "a", None).ok();
    }
}

/// A killed shim calls no hook.
/// Failure: a container ends without its hook, or CRI-O deletes it late
#[test]
fn collection_removes_dead_container_alone() {
    let (world, init) = attached();
    world.gc().ok();
    assert_eq!(containers(&world), ["c"]);
    drop(init);
    world.gc().ok();
    assert_eq!(containers(&world), [""; 0]);
    assert_eq!(the_lease(&world)["claim"]["uid"], "a");
    world.the_instance();
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

/// Failure: a container starts, and its claim has no slice
#[test]
fn container_without_slice_does_not_start() {
    let world = prepared(&["a"]);
    let init = init();
    let line = hook(&world, "attach", "other", Some(&init)).refused();
    let why = "runmig-claim: cannot start container c: claim other has no slice for device device";
    begins_with(&line, why);
    hook(&world, "attach", "a", None).refused_for("the container's state has no living process");
    assert_eq!(containers(&world), [""; 0]);
    unprepare(&world, "a").unwrap();
    fs::remove_dir_all(world.state()).unwrap();
    hook(&world, "attach", "a", Some(&init)).refused_for("there is no ledger in");
    hook(&world, "detach", "a", None).ok();
}

/// The pod was force-deleted: its claim has ended, and its container lives on.
/// Failure: a pod is force-deleted, and its container lives on the place of the next claim
#[test]
fn waits_for_container_of_ended_claim() {
    let world = World::small();
    let at = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "a", &at).unwrap();
    let init = init();
    hook(&world, "attach", "a", Some(&init)).ok();
    unprepare(&world, "a").unwrap();
    let line = prepare(&world, "new", &at).unwrap_err().line();
    has(&line, "container c has 4g.24gb");
    assert_eq!(containers(&world), ["c"]);
    waits::ends(&world, &at, || drop(init));
}

/// No restart of a container moves the slice of a claim. A move of either slice would make room.
/// Failure: `migctl explain` finds a claim in the way
#[test]
fn restarts_leave_claims_alone() {
    let world = World::small();
    for (uid, start) in [("a", 1), ("b", 2)] {
        prepare(&world, uid, &place(&world, "1g.6gb", start, 1)).unwrap();
    }
    let init = init();
    hook(&world, "attach", "a", Some(&init)).ok();
    let plan = world.ctl(&["explain", "2g.12gb", "-o", "json"]).json();
    let only = &plan["alternatives"][0];
    assert_eq!(only["restarts"], json!([]), "{plan}");
    let named = "on GPU 0 claim team-a/a-gpu (pod team-a/train) and 1 more (1g.6gb) is in the way";
    has(only["why"].as_str().unwrap(), named);
}
