//! The names of damaged records tell of others: an earlier boot, no container, format 1, and a meaning that
//! only a newer program understands.

use super::*;

fn name_of(file: &Path) -> String {
    file.file_name().unwrap().to_str().unwrap().to_owned()
}

/// A state directory may survive a boot: who had a place then has no part in what lies there now.
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

/// A record may be of any version: its name says whose end its own end is. A newer program marks a
/// different meaning in the name, and we leave such a record and its instance alone.
#[test]
fn leaves_records_of_newer_versions() {
    let world = World::small();
    let (lease, files) = running(&world);
    let newer = files
        .clone()
        .map(|file| file.with_file_name(name_of(&file) + ".borrowed"));
    let ours = world.the_instance();
    let is_left_alone = |said: &str| {
        assert!(said.contains("is a lease of a newer runmig"), "{said}");
        assert_eq!(world.the_instance(), ours);
    };
    for which in [&[0][..], &[1], &[0, 1]] {
        which
            .iter()
            .for_each(|n| fs::rename(&files[*n], &newer[*n]).unwrap());
        let release = said(&mut world.migctl(&["release", &lease])).refused();
        match which {
            // The lease tells that the container lives.
            [1] => assert!(release.contains(" lives: "), "{release}"),
            _ => is_left_alone(&release),
        }
        is_left_alone(&world.gc().exits(1).stdout);
        // It keeps its place.
        for n in 1..world.slots {
            world.create(&format!("other-{n}"));
        }
        said(&mut world.create_command("one-too-many")).refused();
        for n in 1..world.slots {
            world.delete(&format!("other-{n}"));
        }
        assert!(settled(&world.hook(ID, &lease)).status.success());
        assert_eq!(world.the_instance(), ours);
        which
            .iter()
            .for_each(|n| fs::rename(&newer[*n], &files[*n]).unwrap());
    }
    world.delete(ID);
    assert_eq!(world.instances(), []);
}

/// In format 1, one record was the lease and the instance.
#[test]
fn names_command_for_format_1_record() {
    let world = World::small();
    let (lease, [of_lease, of_instance]) = running(&world);
    let (name, instance) = (name_of(&of_lease), name_of(&of_instance));
    let key = name.split('.').next().unwrap();
    let place: Vec<&str> = instance
        .split('.')
        .filter(|part| *part != "mig")
        .skip(1)
        .collect();
    let former = of_lease.with_file_name(format!("{key}.{lease}.{}", place.join(".")));
    let content = r#"{"apiVersion":"runmig.dev/v1","kind":"Lease"}"#;
    fs::write(&former, format!("{content}\n{{}}\n")).unwrap();
    fs::remove_file(&of_lease).unwrap();
    fs::remove_file(&of_instance).unwrap();
    // The folder came with format 2.
    fs::remove_dir(of_instance.parent().unwrap()).unwrap();
    let ours = world.the_instance();
    let command = format!("migctl release {lease}");
    for said in [
        said(&mut world.migctl(&["list"])).exits(1).stderr,
        world.gc().ok().stdout,
    ] {
        assert!(
            said.contains("format 1") && said.contains(&command),
            "{said}"
        );
    }
    // Its place is taken.
    for n in 1..world.slots {
        world.create(&format!("other-{n}"));
    }
    said(&mut world.create_command("one-too-many")).refused();
    for n in 1..world.slots {
        world.delete(&format!("other-{n}"));
    }
    assert_eq!(world.the_instance(), ours);
    world.behave("no-hooks");
    said(&mut world.bare(&["delete", "--force", ID])).ok();
    said(&mut world.migctl(&["release", &lease])).ok();
    assert_eq!(world.instances(), []);
    assert!(world.records().is_empty());
}
