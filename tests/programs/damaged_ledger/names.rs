//! The names of damaged records tell of an earlier boot, and of instances without a container.

use super::*;

fn name_of(file: &Path) -> String {
    file.file_name().unwrap().to_str().unwrap().to_owned()
}

/// A state directory may survive a boot: who had a place then has no part in what lies there now.
/// Failure: a record is damaged, and a record of an earlier boot names the same place
#[test]
fn ignores_lease_of_earlier_boot() {
    let world = World::small();
    world.abandoned(ID);
    let before = records(&world);
    world.reboot();
    world.create("now");
    let mut now = world.records();
    now.retain(|file| !before.contains(file));
    let place = |file: &Path| {
        let name = name_of(file);
        name.split('.')
            .skip(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(place(&before[1]), place(&now[1]));
    now.iter().for_each(|file| fs::write(file, "").unwrap());
    // A collector takes neither the instance nor its records.
    let config = config(&world);
    let leases = bundles::existing_or_new(&config, runmig_lease::counters::Actor::Hook)
        .unwrap()
        .0;
    let found = leases.gc(true).unwrap();
    let outcomes: Vec<&Outcome> = found.damaged.iter().map(|(_, o)| o).collect();
    assert!(
        matches!(outcomes.as_slice(), [Outcome::Kept(_)]),
        "{outcomes:?}"
    );
    // Its own delete does. Records of that boot that cannot be read either change nothing.
    before.iter().for_each(|file| fs::write(file, "").unwrap());
    world.delete("now");
    assert_eq!(world.instances(), []);
    world.gc().ok();
    assert!(world.records().is_empty());
}

/// A collector releases an instance without a container, whatever its record says: nothing that
/// lives could be found in it.
/// Failure: the record of an idle slice is damaged
#[test]
fn damaged_idle_record_has_no_holder() {
    let world = World::small();
    world.configure("keep_idle = \"1h\"");
    let idle = || {
        world.create(ID);
        world.delete(ID);
        let file = world.records().pop().unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!(world.instances().len(), 1);
        file
    };
    let file = idle();
    said(&mut world.migctl(&["gc", "--dry-run"])).ok();
    assert!(file.exists() && world.instances().len() == 1);
    world.gc().ok();
    world.as_if_nothing_had_been().unwrap();
    // Nor does anybody who needs the room go without it.
    idle();
    for n in 0..world.slots {
        world.create(&format!("c{n}"));
    }
    world.nothing_lost_nothing_given_twice().unwrap();
}

/// A copy of a record of an instance is no record, and nothing at its place is its own.
/// Failure: a copy of the record of an instance
#[test]
fn spares_instance_of_another_record() {
    let world = World::small();
    let (_, [_, file]) = running(&world);
    let ours = world.the_instance();
    let name = name_of(&file);
    let (id, rest) = name.split_once('.').unwrap();
    let copy = file.with_file_name(format!("{}.{rest}", "0".repeat(id.len())));
    fs::copy(&file, &copy).unwrap();
    world.gc().ok();
    assert!(!copy.exists() && file.exists());
    assert_eq!(world.the_instance(), ours);
    world.delete(ID);
    world.as_if_nothing_had_been().unwrap();
}
