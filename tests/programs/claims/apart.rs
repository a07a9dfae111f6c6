//! GPUs that Kubernetes has alone: `kubernetes.local = "apart"`.

use super::*;

const APART: &str = "kubernetes.local = \"apart\"";
const RULE: &str = "published for claims of Kubernetes alone by kubernetes.local = \"apart\"";

/// Failure: a local create requests a GPU that Kubernetes has alone (`kubernetes.local = "apart"`)
#[test]
fn apart_keeps_gpus_for_claims() {
    let world = World::small();
    world.configure(APART);
    world.bundle_asking("a", "1g.6gb");
    said(&mut world.create_command("a")).exits(1).warns(RULE);
    world.ctl(&["explain", "1g.6gb"]).says(RULE);
    // A claim has the place.
    prepare(&world, "claim", &place(&world, "1g.6gb", 2, 1)).unwrap();
    assert_eq!(world.the_instance().start, 2);

    // Another GPU is published, and this one is not.
    world.configure(&format!("{APART}\nkubernetes.gpus = [1]"));
    world.create("a");
    assert_eq!(world.leases().len(), 2);
}

/// Neither an idle slice nor an administrator's is a way around the rule.
#[test]
fn apart_refuses_present_slices() {
    let world = World::small();
    let kept = "keep_idle = \"1h\"\nadopt = true";
    world.configure(kept);
    prepare(&world, "claim", &place(&world, "1g.6gb", 0, 1)).unwrap();
    unprepare(&world, "claim").unwrap();
    world.admin_creates(0, "1g.6gb", 1, true);
    assert_eq!(world.instances().len(), 2);
    world.configure(&format!("{kept}\n{APART}"));
    world.bundle_asking("a", "1g.6gb");
    said(&mut world.create_command("a")).exits(1).warns(RULE);
    world.configure(&format!("{kept}\nkubernetes.local = \"share\""));
    world.create("a");
    assert_eq!(world.instances().len(), 2);
}
