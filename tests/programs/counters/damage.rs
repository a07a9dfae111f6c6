//! Counting never fails a create.

use crate::counters::{creates, file};
use runmig_lease::counters::{LeaseKind, Outcome};
use testkit::faults::World;
use testkit::said;

/// Failure: the counters are damaged, or of a newer version
#[test]
fn create_moves_damaged_counters_aside() {
    let world = World::small();
    world.create("one");
    std::fs::write(file(&world), "no counters").unwrap();
    world.create("two");
    assert_eq!(creates(&world, LeaseKind::Slice), [(Outcome::Created, 1)]);
    let log = std::fs::read_to_string(world.state().join("runmig.log")).unwrap();
    assert!(log.contains("counting begins anew"), "{log}");
}

/// Failure: the counters cannot be opened
#[test]
fn create_without_counters_succeeds() {
    let world = World::small();
    // In the way: nothing can be made or moved there.
    std::fs::create_dir_all(world.state()).unwrap();
    std::fs::set_permissions(
        world.state(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    std::fs::create_dir(file(&world)).unwrap();
    world.create("one");
    let log = std::fs::read_to_string(world.state().join("runmig.log")).unwrap();
    assert_eq!(log.matches("nothing is counted").count(), 1, "{log}");
    said(&mut world.runmig(&["delete", "--force", "one"])).ok();
    std::fs::remove_dir(file(&world)).unwrap();
    world.as_if_nothing_had_been().unwrap();
}

/// Failure: the counters have a whole beginning and a damaged end
#[test]
fn metrics_survive_damaged_body() {
    let world = World::small();
    world.create("one");
    let whole = std::fs::read_to_string(file(&world)).unwrap();
    let most = u64::MAX;
    let counts = |body: &str| {
        let (head, _) = whole.split_once("\"counts\"").unwrap();
        format!("{head}{body}}}")
    };
    let damaged = [
        whole[..whole.len() / 2].to_owned(),
        whole.replace("\"counts\":{", "\"counts\":["),
        counts(&format!(
            "\"counts\":{{\"creates/slice/container/created\":{most},\"driver_errors/\\u0000\":{most}}},\"times\":{{}},\"lastCollection\":{most}"
        )),
        counts(&format!(
            "\"counts\":{{}},\"times\":{{\"create/slice/all\":{{\"classes\":[{most},{most}],\"sum\":{{\"secs\":{most},\"nanos\":4294967295}}}}}},\"lastCollection\":0"
        )),
        counts(&format!(
            "\"counts\":{{}},\"times\":{{\"release/slice\":{{\"classes\":[{}],\"sum\":{{\"secs\":{most},\"nanos\":0}}}}}},\"lastCollection\":0",
            vec![most.to_string(); 15].join(",")
        )),
    ];
    for text in damaged {
        std::fs::write(file(&world), &text).unwrap();
        let metrics = said(&mut world.migctl(&["metrics", "--no-driver"]));
        assert!(
            matches!(metrics.status.code(), Some(0 | 1)),
            "{text}: {metrics:?}"
        );
        assert!(!metrics.stderr.contains("panicked"), "{metrics:?}");
        assert!(metrics.stdout.contains("runmig_lease_info"), "{metrics:?}");
        world.create("two");
        said(&mut world.runmig(&["delete", "--force", "two"])).ok();
    }
    said(&mut world.runmig(&["delete", "--force", "one"])).ok();
}
