//! The names of records, also of damaged ones.

use super::*;
use crate::model::Level;

#[test]
fn names_tell_places_of_unreadable_records() {
    let (_dir, store) = store();
    let ledger = store.lock("t").unwrap();
    let (one, two) = (held("one"), held("two"));
    ledger.put_new(&one).unwrap();
    ledger.put_new(&two).unwrap();
    ledger.put_instance(&instance("alone")).unwrap();
    let damage = |file: PathBuf| std::fs::write(file, "").unwrap();
    damage(store.lease_file(&one.lease));
    damage(store.instance_file(&two.instance));
    damage(store.instance_file(&instance("alone")));
    let listing = store.listing().unwrap();
    assert_eq!(listing.entries, []);
    let place = InstanceName::of(&one.instance).place;
    let mut told: Vec<_> = listing
        .damaged
        .iter()
        .map(|d| (d.id(), d.place()))
        .collect();
    told.sort_by_key(|(id, _)| *id);
    let expected = ["alone", "one", "two"].map(|id| (Some(id), Some(&place)));
    assert_eq!(told, expected);
    for damaged in &listing.damaged {
        let is_leased = damaged.id() != Some("alone");
        assert_eq!(
            damaged.is_of(&one.lease.container().unwrap().key),
            is_leased
        );
        assert_eq!(damaged.is_nobodys(), !is_leased);
        // Only the instance of the second lease is unreadable.
        assert_eq!(damaged.lease.is_some(), damaged.id() == Some("two"));
    }
}

/// The same holds if the state directory outlives a boot.
#[test]
fn place_is_of_one_boot() {
    let place = |change: &dyn Fn(&mut Instance)| {
        let mut instance = instance("i");
        change(&mut instance);
        InstanceName::of(&instance).place
    };
    let one = place(&|_| ());
    assert!(one.overlaps(&place(&|i| i.id = "other".into())));
    for change in [
        (|i| i.boot_id = "later".into()) as fn(&mut Instance),
        |i| i.change_slice(|s| s.gpu_uuid = "GPU-2".into()),
        |i| i.change_slice(|s| s.placement.start = 4),
    ] {
        assert!(!one.overlaps(&place(&change)));
    }
}

#[test]
fn names_are_read_as_written() {
    let lease = LeaseName::of(&lease("one"));
    assert_eq!(LeaseName::parse(&lease.name()), Some(lease.clone()));
    // The name of a share tells what it books.
    let mut share = self::lease("one");
    share.portion = Portion::Share(Share {
        memory_mib: 8192,
        booked_mib: 8320,
        enforcement: Enforcement::new(Level::Mps),
    });
    let share = LeaseName::of(&share);
    assert!(share.name().ends_with(".share.8320"), "{}", share.name());
    assert_eq!(LeaseName::parse(&share.name()), Some(share.clone()));
    for odd in [
        ".share",
        ".share.",
        ".share.08",
        ".share.+8",
        ".share.8.9",
        ".share.x",
        ".claim.more",
        ".borrowed",
    ] {
        assert_eq!(LeaseName::parse(&(lease.name() + odd)), None, "{odd}");
    }
    let mut adopted = instance("i");
    adopted.origin = Origin::Administrator;
    for (instance, origin) in [
        (&instance("i"), Origin::Ours),
        (&adopted, Origin::Administrator),
    ] {
        let name = InstanceName::of(instance);
        assert_eq!(name.origin, origin);
        assert_eq!(InstanceName::parse(&name.name()), Some(name.clone()));
    }
    let mut whole = instance("i");
    whole.resource = Resource::Gpu(WholeGpu {
        gpu_uuid: "GPU-1".into(),
        gpu_index: 0,
        gpu_minor: 0,
        model: "NVIDIA L4".into(),
        memory_mib: 23034,
    });
    let name = InstanceName::of(&whole);
    assert_eq!(name.name(), "i.b.GPU-1.gpu");
    assert_eq!((name.kind, name.origin), (Kind::Gpu, Origin::Ours));
    assert!(name.place.overlaps(&InstanceName::of(&instance("i")).place));
    assert_eq!(InstanceName::parse(&name.name()), Some(name.clone()));
    for foreign in [
        "mig.19.3.1.borrowed",
        "gpu.1",
        "mps.8320",
        "mig.9.0.4.seats",
        "fpga.4711",
    ] {
        let name = format!("i.b.GPU-1.{foreign}");
        assert_eq!(InstanceName::parse(&name), None, "{foreign}");
    }
}

#[test]
fn name_tells_lease_of_claim() {
    let claimed = |mut lease: crate::store::Lease| {
        lease.holder = crate::store::Holder::Claim(crate::store::Claim {
            uid: "uid".to_owned(),
            ..Default::default()
        });
        lease
    };
    let name = LeaseName::of(&claimed(lease("x")));
    assert!(name.is_claim && name.name().ends_with(".claim"));
    assert_eq!(LeaseName::parse(&name.name()), Some(name.clone()));
}
