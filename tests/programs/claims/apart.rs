//! GPUs that Kubernetes has alone: `kubernetes.local = "apart"`.

use super::*;
use testkit::has;

const RULE: &str = "published for claims of Kubernetes alone by kubernetes.local = \"apart\"";

fn set(world: &World, kubernetes: &str) {
    let file = world.path("config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let (others, _) = text.split_once("[kubernetes]").unwrap_or((&text, ""));
    fs::write(&file, format!("{others}\n[kubernetes]\n{kubernetes}\n")).unwrap();
}

/// Failure: a local create requests a GPU that Kubernetes has alone (`kubernetes.local = "apart"`)
#[test]
fn apart_keeps_gpus_for_claims() {
    let world = World::small();
    set(&world, "local = \"apart\"");
    world.bundle_asking("a", "1g.6gb");
    said(&mut world.create_command("a")).exits(1).warns(RULE);
    let told = said(&mut world.migctl(&["explain", "1g.6gb"])).stdout;
    has(&told, RULE);
    // A claim has the place.
    prepare(&world, "claim", &place(&world, "1g.6gb", 2, 1)).unwrap();
    assert_eq!(world.the_instance().start, 2);

    // Another GPU is published, and this one is not.
    set(&world, "gpus = [1]\nlocal = \"apart\"");
    world.create("a");
    assert_eq!(world.leases().len(), 2);
}

/// Neither an idle slice nor an administrator's is a way around the rule.
#[test]
fn apart_refuses_present_slices() {
    let world = World::small();
    let file = world.path("config.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("keep_idle = \"1h\"\nadopt = true\n{text}")).unwrap();
    prepare(&world, "claim", &place(&world, "1g.6gb", 0, 1)).unwrap();
    unprepare(&world, "claim").unwrap();
    world.admin_creates(0, "1g.6gb", 1, true);
    assert_eq!(world.instances().len(), 2);
    set(&world, "local = \"apart\"");
    world.bundle_asking("a", "1g.6gb");
    said(&mut world.create_command("a")).exits(1).warns(RULE);
    set(&world, "local = \"share\"");
    world.create("a");
    assert_eq!(world.instances().len(), 2);
}
