//! The names of records, also of damaged ones and of other versions.

use super::*;

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
    assert!(
        LeaseName::parse(&(lease.name() + ".borrowed"))
            .unwrap()
            .is_newer
    );
    // The name of a share tells what it books, and an ending that is not one counts as newer.
    let mut share = self::lease("one");
    share.portion = Portion::Share(Share {
        memory_mib: 8192,
        booked_mib: 8320,
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
    ] {
        let name = LeaseName::parse(&(lease.name() + odd)).unwrap();
        assert_eq!((name.is_newer, name.booked_mib), (true, None), "{odd}");
    }
    let mut adopted = instance("i");
    adopted.origin = Origin::Administrator;
    for (instance, ownership) in [
        (&instance("i"), Ownership::Own),
        (&adopted, Ownership::Adopted),
    ] {
        let name = InstanceName::of(instance);
        assert_eq!(name.ownership, ownership);
        assert_eq!(InstanceName::parse(&name.name()), Some(name.clone()));
    }
    let mut whole = instance("i");
    whole.resource = Resource::Gpu(WholeGpu {
        gpu_uuid: "GPU-1".into(),
        gpu_index: 0,
        gpu_minor: 0,
        model: "NVIDIA L4".into(),
        memory_mib: 23034,
        level: None,
    });
    let name = InstanceName::of(&whole);
    assert_eq!(name.name(), "i.b.GPU-1.gpu");
    assert_eq!((name.kind, name.ownership), (Kind::Gpu, Ownership::Own));
    assert!(name.place.overlaps(&InstanceName::of(&instance("i")).place));
    assert_eq!(InstanceName::parse(&name.name()), Some(name.clone()));
    // This version leaves a newer version's instance alone, and does not give out its place.
    let newer = InstanceName::parse("i.b.GPU-1.mig.19.3.1.borrowed").unwrap();
    assert_eq!(
        (newer.ownership, newer.place.placement.start),
        (Ownership::Unknown, 3)
    );
    let daemon = InstanceName::parse("i.b.GPU-1.mps.8320").unwrap();
    assert_eq!(
        (daemon.kind, daemon.booked_mib, daemon.ownership),
        (Kind::Mps, Some(8320), Ownership::Own)
    );
    assert_eq!(daemon.name(), "i.b.GPU-1.mps.8320");
    // Daemons share a GPU, and nothing else is beside them.
    let second = InstanceName::parse("j.b.GPU-1.mps.4224").unwrap();
    assert!(!daemon.excludes(&second));
    assert!(daemon.excludes(&name) && name.excludes(&daemon));
    for newer in [
        "i.b.GPU-1.mps",
        "i.b.GPU-1.mps.08",
        "i.b.GPU-1.mps.8320.seat",
    ] {
        let newer = InstanceName::parse(newer).unwrap();
        assert_eq!(
            (newer.kind, newer.ownership),
            (Kind::Unknown, Ownership::Unknown)
        );
    }
    // A daemon of a seat lies in the place of its slice. Older versions take both names for newer ones.
    let slice = InstanceName::parse("s.b.GPU-1.mig.9.0.4.seats").unwrap();
    assert_eq!((slice.has_seats, slice.ownership), (true, Ownership::Own));
    let seat = InstanceName::parse("i.b.GPU-1.mps.8320.in.s").unwrap();
    assert_eq!((seat.kind, seat.booked_mib), (Kind::Mps, Some(8320)));
    assert_eq!(seat.parent.as_ref(), Some(&slice.instance));
    for name in [&slice, &seat] {
        assert_eq!(InstanceName::parse(&name.name()).as_ref(), Some(name));
    }
    assert!(!seat.excludes(&slice) && !slice.excludes(&seat) && name.excludes(&slice));
    let newer = InstanceName::parse("i.b.GPU-1.mps.8320.in.s.x").unwrap();
    assert_eq!((newer.kind, newer.parent), (Kind::Unknown, None));
    let other = InstanceName::parse("i.b.GPU-1.fpga.4711").unwrap();
    assert_eq!(other.ownership, Ownership::Unknown);
    assert!(
        other
            .place
            .overlaps(&InstanceName::of(&instance("i")).place)
    );
}

/// Format 1 had one record for a lease and its instance.
#[test]
fn leaves_record_of_format_1_alone() {
    let (_dir, store) = store();
    let body = br#"{"id":"old","state":"ready"}"#;
    let form = crate::framed::Form {
        version: "runmig.dev/v1",
        kind: "Lease",
    };
    for (tail, ownership) in [
        ("", Ownership::Own),
        (".adopted", Ownership::Adopted),
        (".shared", Ownership::Shared),
        (".borrowed", Ownership::Unknown),
    ] {
        let name = format!(
            "{}old.b.GPU-1.19.3.1{tail}",
            lease("x").container().unwrap().key.prefix()
        );
        let file = store.leases().join(&name);
        std::fs::write(&file, form.frame(body)).unwrap();
        let listing = store.list().unwrap();
        let [damaged] = listing.damaged.as_slice() else {
            panic!("{listing:?}");
        };
        assert_eq!(damaged.ownership(), ownership);
        assert_eq!(
            damaged.place(),
            Some(&InstanceName::of(&instance("i")).place)
        );
        assert!(damaged.is_of(&lease("x").container().unwrap().key));
        let line = damaged.why.line();
        let says = match ownership {
            Ownership::Unknown => "it is a lease of a newer runmig",
            _ => {
                "it is of format 1, and this program reads format 2; hint: once its container is \
                  gone, migctl release old"
            }
        };
        assert!(line.starts_with(says), "{line}");
        assert!(store.get(&"old".into()).is_err());
        std::fs::remove_file(file).unwrap();
    }
}

/// Its name keeps an older program away from it.
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
    let newer = format!("{}.more", name.name());
    let newer = LeaseName::parse(&newer).unwrap();
    assert!(newer.is_newer && !newer.is_claim);
}
