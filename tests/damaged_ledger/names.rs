//! The name of a damaged record tells of others: an earlier boot, no container, a holder that only
//! a newer program understands.

use super::*;

fn record_of(world: &World, lease: &str) -> PathBuf {
    let dir = world.state().join("leases");
    let mut names = names(&dir);
    names.retain(|n| n.contains(lease));
    assert_eq!(names.len(), 1, "{names:?}");
    dir.join(&names[0])
}

/// A state directory may survive a boot: who had a place then has no part in what lies there now.
#[test]
fn a_lease_of_an_earlier_boot_has_no_part_in_it() {
    let world = World::small();
    let old = world.abandoned(ID);
    world.reboot();
    world.create("now");
    let lease = world.lease_of("now")["id"].as_str().unwrap().to_owned();
    let (before, now) = (record_of(&world, &old), record_of(&world, &lease));
    let place = |file: &Path| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name.split('.')
            .skip(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(place(&before), place(&now));
    fs::write(&now, "").unwrap();
    // A collector takes neither the instance nor its record.
    let config = config(&world);
    let leases = bundles::existing_or_new(&config).unwrap().0;
    let found = leases.gc(true).unwrap();
    let outcomes: Vec<&Outcome> = found.damaged.iter().map(|(_, o)| o).collect();
    assert!(
        matches!(outcomes.as_slice(), [Outcome::Kept(_)]),
        "{outcomes:?}"
    );
    // Its own delete does. One of that boot that cannot be read either changes nothing.
    let name = before.file_name().unwrap().to_str().unwrap();
    let other = name.replace(&old, &"0".repeat(32)) + ".shared";
    fs::write(before.with_file_name(other), "").unwrap();
    world.delete("now");
    assert_eq!(world.instances(), []);
    world.gc().ok();
    assert_eq!(names(&world.state().join("leases")), [""; 0]);
}

/// A collector gives back an instance without a container, whatever its record says: nothing that
/// lives could be found in it.
#[test]
fn a_damaged_record_of_an_idle_slice_is_nobody_s() {
    let world = World::small();
    world.configure("keep_idle = \"1h\"");
    let idle = || {
        world.create(ID);
        world.delete(ID);
        let file = record(&world);
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

/// Handing over makes two records of one slice for a moment, and a kill may leave both.
#[test]
fn a_damaged_idle_slice_is_left_to_who_has_it() {
    let world = World::small();
    world.configure("keep_idle = \"1h\"");
    world.create(ID);
    world.delete(ID);
    let idle = record(&world);
    let (lease, file) = running(&world);
    let ours = world.the_instance();
    for damages in [[&idle].as_slice(), &[&idle, &file]] {
        damages.iter().for_each(|f| fs::write(f, "").unwrap());
        world.gc().ok();
        assert_eq!(world.the_instance(), ours, "{damages:?}");
        assert!(file.exists() && !idle.exists(), "{damages:?}");
    }
    said(&mut world.migctl(&["release", &lease])).ok();
    assert_eq!(world.instances(), []);
}

/// A record may be of any version: its name says whose end its own end is. A newer program marks a
/// different meaning in the name, and we leave such a record alone.
#[test]
fn what_only_a_newer_program_understands_is_left_alone() {
    let world = World::small();
    let (lease, file) = running(&world);
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let newer = file.with_file_name(format!("{name}.borrowed"));
    fs::rename(&file, &newer).unwrap();
    let ours = world.the_instance();
    let is_left_alone = |said: &str| {
        assert!(said.contains("is a lease of a newer runmig"), "{said}");
        assert!(newer.exists());
        assert_eq!(world.the_instance(), ours);
    };
    is_left_alone(&said(&mut world.migctl(&["release", &lease])).refused());
    is_left_alone(&world.gc().exits(1).stdout);
    assert!(settled(&world.hook(ID, &lease)).status.success());
    let log = || fs::read_to_string(world.state().join("runmig.log")).unwrap();
    is_left_alone(&log());
    // Nor does it keep the other that the container has from being given back, whichever comes first.
    let before = format!("{}.borrowed", name.replace(&lease, &"0".repeat(32)));
    let after = format!("{}.borrowed", name.replace(&lease, &"f".repeat(32)));
    fs::remove_file(&newer).unwrap();
    for name in [&before, &name, &after] {
        fs::write(file.with_file_name(name), "").unwrap();
    }
    world.behave("no-hooks");
    world.delete(ID);
    assert_eq!(world.instances(), []);
    let left = names(&world.state().join("leases"));
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&before) && left.contains(&after), "{left:?}");
}
