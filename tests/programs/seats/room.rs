//! The choice of a slice for a seat, and the words of a refusal.

use super::*;
use std::process::Stdio;
use testkit::process::until;
use testkit::{Going, going};

const KINDS: &str = "requests for a ";

/// The slice with the least free memory that fits comes first, then a new one.
#[test]
fn chooses_fullest_slice() {
    for level in ["none", "mps"] {
        let Some(setup) = on(Low::Runc, level) else {
            return;
        };
        let first = create(&setup, "3g.40gb", "1/2");
        let second = create(&setup, "3g.40gb", "3/4");
        assert_ne!(device(&setup, &first), device(&setup, &second));
        let third = create(&setup, "3g.40gb", "1/4");
        assert_eq!(device(&setup, &second), device(&setup, &third));
        let fourth = create(&setup, "3g.40gb", "1/4");
        assert_eq!(device(&setup, &first), device(&setup, &fourth));
        // Another profile is another slice, for which nothing is left here.
        let line = refused(&setup, &[(SLICE, "2g.20gb"), (SHARE, "1/4")]);
        assert!(
            line.starts_with(
                "runmig: cannot allocate a share of 1/4 of 2g.20gb: it needs a new slice, and runmig cannot allocate \
                 2g.20gb: "
            ),
            "{line}"
        );
        let line = refused(&setup, &[(SLICE, "3g.40gb"), (SHARE, "1/2")]);
        let start = "runmig: cannot allocate a share of 1/2 of 3g.40gb: no slice with seats has room for it (3g.40gb \
                     at ";
        let end = "; hint: run migctl list to see who has seats in the slices, or set runmig.dev/wait to wait";
        assert!(line.starts_with(start) && line.ends_with(end), "{line}");
        assert!(
            line.contains("10048Mi of 40192Mi is free beside containers "),
            "{line}"
        );
        // explain says what a create would do.
        let explain = ["explain", "3g.40gb", "--share", "1/2"];
        let told = setup.migctl(&explain).exits(1).stdout;
        let words = line
            .trim_start_matches("runmig: ")
            .split("; hint")
            .next()
            .unwrap();
        assert!(told.starts_with(&format!("full: {words}")), "{told}");
        delete(&setup, &first);
        let told = setup.migctl(&explain).ok().stdout;
        let memory = lease(&setup, &fourth)["gpuIndex"].as_u64().unwrap();
        assert!(
            told.starts_with("fits: ") && told.contains(" of 3g.40gb at "),
            "{told}"
        );
        assert!(
            told.contains(&format!("on GPU {memory}, level {level}")),
            "{told}"
        );
        for id in [&second, &third, &fourth] {
            delete(&setup, id);
        }
        setup.nothing_is_left();
        let new = setup.migctl(&explain).ok().stdout;
        assert!(new.contains("of a new 3g.40gb at "), "{new}");
        setup.nothing_is_left();
    }
}

/// All parts of a slice fit in it, and each level's need is in them.
#[test]
fn parts_fill_slice() {
    for level in ["none", "mps"] {
        let Some(setup) = on(Low::Runc, level) else {
            return;
        };
        let ids: Vec<String> = (0..3).map(|_| create(&setup, "1g.20gb", "1/3")).collect();
        assert_eq!(setup.machine.instances().len(), 1);
        let fourth = create(&setup, "1g.20gb", "1Gi");
        assert_eq!(setup.machine.instances().len(), 2);
        for id in ids.iter().chain([&fourth]) {
            delete(&setup, id);
        }
        setup.nothing_is_left();
    }
}

#[test]
fn takes_first_alternative_with_room() {
    let Some(setup) = on(Low::Runc, "none") else {
        return;
    };
    let whole = setup.asking("4g.40gb", "exec sleep 1000");
    let plain = unique();
    setup.runmig(&["create", "-b", whole.as_str(), &plain]).ok();
    // Half of the GPU is left: neither 7g.80gb nor 30Gi of a smaller slice has a place.
    let first = create(&setup, "7g.80gb,2g.20gb,20Gi", "30Gi,10Gi");
    let seat = lease(&setup, &first);
    assert_eq!(
        (&seat["profile"], &seat["memoryBytes"]),
        (&"2g.20gb".into(), &(10u64 << 30).into())
    );
    assert_eq!(
        seat["request"],
        "share of 30Gi,10Gi of 7g.80gb,2g.20gb,20Gi"
    );
    // An amount stands for the profile that it stands for without a share.
    let second = create(&setup, "18Gi", "1Gi");
    assert_ne!(lease(&setup, &second)["migUUID"], seat["migUUID"]);
    assert_eq!(lease(&setup, &second)["profile"], "1g.20gb");
    for id in [&first, &second, &plain] {
        delete(&setup, id);
    }
    setup.nothing_is_left();
}

#[test]
fn bad_requests_change_nothing() {
    let Some(setup) = on(Low::Runc, "none") else {
        return;
    };
    let cases: [(&[(&str, &str)], &str); 9] = [
        (
            &[(SLICE, "1g.10gb*2"), (SHARE, "1/2")],
            "runmig.dev/slice asks for several slices (1g.10gb*2), and runmig.dev/share for a share of one; hint: ask \
             for a share of one slice, or for several slices without a share",
        ),
        (
            &[(SLICE, "1g.10gb"), (SHARE, "1/2"), ("runmig.dev/gpu", "1")],
            "annotation runmig.dev/slice cannot stand beside runmig.dev/gpu",
        ),
        (
            &[
                (SLICE, "3g.40gb"),
                (SHARE, "1/2"),
                ("runmig.dev/scope", "pod"),
                ("io.kubernetes.cri.sandbox-id", "p"),
            ],
            "annotation runmig.dev/scope: \"pod\" shares one slice or GPU, and runmig.dev/share asks for a share of a \
             slice; hint: take the scope away: each container has a share of its own",
        ),
        (
            &[
                (SLICE, "2g.20gb"),
                (SHARE, "1/2"),
                ("runmig.dev/compute", "3"),
            ],
            "annotation runmig.dev/compute asks for at least 3 compute slices, and 2g.20gb in runmig.dev/slice has 2",
        ),
        (
            &[(SLICE, "1g.10gb"), (SHARE, "1/1")],
            "annotation runmig.dev/share: \"1/1\" is a whole GPU",
        ),
        (
            &[(SLICE, "9g.90gb"), (SHARE, "1/2")],
            "cannot allocate a share of 1/2 of 9g.90gb: it needs a new slice, and runmig cannot allocate 9g.90gb: no \
             GPU offers the profile",
        ),
        (
            &[
                (SLICE, "3g.40gb"),
                (SHARE, "50Gi"),
                ("runmig.dev/wait", "10m"),
            ],
            "every GPU in MIG mode is excluded (GPU 0: it gives out 40192Mi)",
        ),
        (
            &[
                (SLICE, "1g.10gb"),
                (SHARE, "1/64"),
                ("runmig.dev/wait", "10m"),
            ],
            "(GPU 0: the fraction is 152Mi there, less than 1Gi)",
        ),
        (
            &[(SLICE, "3g.40gb"), (SHARE, "0.25")],
            "annotation runmig.dev/share: \"0.25\" is no share of a GPU",
        ),
    ];
    for (annotations, words) in cases {
        let line = refused(&setup, annotations);
        assert!(line.contains(words) && line.contains("; hint: "), "{line}");
        setup.nothing_is_left();
    }
    let asks = [(SLICE, "3g.40gb"), (SHARE, "1/4")];
    for (policy, words) in [
        (
            "policy.kinds = [\"slice\"]",
            "share are not allowed (policy.kinds)",
        ),
        (
            "policy.kinds = [\"share\"]",
            "slice are not allowed (policy.kinds)",
        ),
        // An upgrade loosens nothing: whoever listed profiles allowed slices alone.
        (
            "policy.profiles = [\"*\"]",
            "share are not allowed (policy.profiles without policy.kinds)",
        ),
    ] {
        setup.configure(&format!("{NONE}\n{policy}"));
        let line = refused(&setup, &asks);
        assert!(line.contains(&format!("{KINDS}{words}")), "{line}");
    }
    setup.configure(&format!(
        "{NONE}\npolicy.kinds = [\"slice\", \"share\"]\npolicy.profiles = [\"1g.*\"]"
    ));
    let line = refused(&setup, &asks);
    assert!(
        line.contains("3g.40gb is not allowed (policy.profiles)"),
        "{line}"
    );
    setup.configure("sharing.enforcement = [\"driver\"]");
    let line = refused(&setup, &asks);
    assert!(
        line.contains("(driver: NVML refuses memory limits on MIG devices)"),
        "{line}"
    );
    setup.nothing_is_left();
}

#[test]
fn limits_count_seats_as_shares() {
    let Some(setup) = on(Low::Runc, "none") else {
        return;
    };
    let asks = [
        (SLICE, "3g.40gb"),
        (SHARE, "1/4"),
        ("runmig.dev/wait", "10m"),
    ];
    for (limit, words) in [
        ("slices = 1", "1 of 1 slices"),
        ("slices = 0\nshares = 1", "1 of 1 shares"),
        // The booked part counts, and not the slice.
        (
            "shares = 9\nmemory = \"15Gi\"",
            "10048Mi of 15Gi of memory, and 10048Mi are asked for",
        ),
    ] {
        setup.configure(&format!("{NONE}\n[[policy.limit]]\n{limit}"));
        let id = create(&setup, "3g.40gb", "1/4");
        let line = refused(&setup, &asks);
        assert!(line.contains(words), "{limit}: {line}");
        delete(&setup, &id);
    }
    // A limit that was written before there were shares stays as strict: it counts the slice.
    setup.configure(&format!("{NONE}\n[[policy.limit]]\nmemory = \"15Gi\""));
    let line = refused(&setup, &asks);
    assert!(line.contains("0Mi of 15Gi of memory"), "{line}");
    setup.configure(&format!("{NONE}\n[[policy.limit]]\nmemory = \"50Gi\""));
    let id = create(&setup, "3g.40gb", "1/4");
    let line = refused(&setup, &[(SLICE, "3g.40gb"), (SHARE, "39Gi")]);
    assert!(line.contains("of 50Gi of memory"), "{line}");
    delete(&setup, &id);
    // One slice takes no more than so many.
    setup.configure(&format!("{NONE}\nsharing.shares_per_gpu = 1"));
    let ids = ["1Gi", "1Gi"].map(|size| create(&setup, "3g.40gb", size));
    assert_ne!(device(&setup, &ids[0]), device(&setup, &ids[1]));
    let line = refused(&setup, &asks[..2]);
    assert!(
        line.contains("it has 1 share, as many as it takes (sharing.shares_per_gpu)"),
        "{line}"
    );
    for id in &ids {
        delete(&setup, id);
    }
    setup.nothing_is_left();
}

/// A slice keeps its level, whatever the configuration permits by now.
#[test]
fn seats_of_slice_have_one_level() {
    let Some(setup) = on(Low::Runc, "none") else {
        return;
    };
    let first = create(&setup, "7g.80gb", "1/4");
    setup.configure("sharing.enforcement = [\"mps\"]");
    let line = refused(&setup, &[(SLICE, "7g.80gb"), (SHARE, "1/4")]);
    assert!(line.contains("its shares have the level none"), "{line}");
    delete(&setup, &first);
    let second = create(&setup, "7g.80gb", "1/4");
    setup.configure(NONE);
    let line = refused(&setup, &[(SLICE, "7g.80gb"), (SHARE, "1/4")]);
    assert!(line.contains("its shares have the level mps"), "{line}");
    delete(&setup, &second);
    setup.nothing_is_left();
}

/// A request that waits reserves the slices that it could use, also those with seats.
#[test]
fn waits_for_seat() {
    let Some(setup) = on(Low::Runc, "none") else {
        return;
    };
    let first = create(&setup, "7g.80gb", "3/4");
    let (bundle, id) = (asking(&setup, "7g.80gb", "1/2"), unique());
    bundle.annotate("runmig.dev/wait", "10m");
    let mut create_it = setup.command(&["create", "-b", bundle.as_str(), &id]);
    let waits: Going = going(create_it.stdin(Stdio::null()));
    until("it waits", || {
        let list = setup.migctl(&["list", "-o", "json"]).ok().json();
        list["waiting"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    // A later one that would fit keeps the slice for longer.
    let line = refused(&setup, &[(SLICE, "7g.80gb"), (SHARE, "1/4")]);
    assert!(
        line.contains("at 0:8 on GPU 0: reserved for an earlier request"),
        "{line}"
    );
    let line = refused(&setup, &[(SLICE, "1g.10gb")]);
    assert!(line.contains("1 earlier request"), "{line}");
    delete(&setup, &first);
    waits.end().ok();
    assert_eq!(lease(&setup, &id)["kind"], "seat");
    delete(&setup, &id);
    setup.nothing_is_left();
}

/// Creates at once share one slice: those that find it in the making wait for it.
#[test]
fn seats_come_at_once() {
    for level in ["none", "mps"] {
        let Some(setup) = on(Low::Runc, level) else {
            return;
        };
        let ids: Vec<String> = (0..8).map(|_| unique()).collect();
        let create = |id: &String| {
            let bundle = asking(&setup, "7g.80gb", "1/8");
            let mut create = setup.command(&["create", "-b", bundle.as_str(), id]);
            going(create.stdin(Stdio::null()))
        };
        // The others come while the driver makes the slice.
        let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
        setup
            .machine
            .sim("fault", &["--call", call, "--takes", "2s"]);
        let first = create(&ids[0]);
        until("the slice is on record", || !setup.leases().is_empty());
        let creates: Vec<Going> = ids[1..].iter().map(create).collect();
        first.end().ok();
        creates.into_iter().for_each(|one| drop(one.end().ok()));
        assert_eq!(setup.machine.instances().len(), 1);
        assert_eq!(setup.leases().len(), 8);
        let deletes: Vec<Going> = { ids.iter() }
            .map(|id| {
                going(
                    setup
                        .command(&["delete", "--force", id])
                        .stdin(Stdio::null()),
                )
            })
            .collect();
        deletes.into_iter().for_each(|one| drop(one.end().ok()));
        setup.nothing_is_left();
    }
}

/// A later pair has room in a slice with seats, so the idle slice stays. Without that room it makes way.
#[test]
fn evicts_idle_slice_last() {
    let Some(setup) = on(Low::Runc, "none") else {
        return;
    };
    setup.configure(&format!("{NONE}\nkeep_idle = \"10m\""));
    let first = create(&setup, "3g.40gb", "1/2");
    let plain = setup.asking("4g.40gb", "exec sleep 1000");
    let id = unique();
    setup.runmig(&["create", "-b", plain.as_str(), &id]).ok();
    delete(&setup, &id);
    let idle = || {
        let leases = setup.leases();
        leases.iter().filter(|l| l["state"] == "idle").count()
    };
    assert_eq!(idle(), 1);
    let later = create(&setup, "2g.20gb,3g.40gb", "1/4");
    assert_eq!(device(&setup, &later), device(&setup, &first));
    let smaller = create(&setup, "3g.40gb", "30Gi,5Gi");
    assert_eq!(device(&setup, &smaller), device(&setup, &first));
    assert_eq!(idle(), 1);
    let evicting = create(&setup, "2g.20gb,3g.40gb", "3/4");
    assert_eq!(lease(&setup, &evicting)["profile"], "2g.20gb");
    assert_eq!(idle(), 0);
    for id in [&first, &later, &smaller, &evicting] {
        delete(&setup, id);
    }
    setup.nothing_is_left();
}
