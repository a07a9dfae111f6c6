//! The choice of a slice for a seat, and the words of a refusal.

use super::*;

/// The slice with the least free memory that fits comes first, then a new one.
#[test]
fn chooses_fullest_slice() {
    for level in ["none", "mps"] {
        let setup = on(Low::Runc, level);
        let first = create(&setup, "3g.40gb", "1/2");
        let second = create(&setup, "3g.40gb", "3/4");
        assert_ne!(device(&setup, &first), device(&setup, &second));
        let third = create(&setup, "3g.40gb", "1/4");
        assert_eq!(device(&setup, &second), device(&setup, &third));
        let fourth = create(&setup, "3g.40gb", "1/4");
        assert_eq!(device(&setup, &first), device(&setup, &fourth));
        // Another profile is another slice, for which nothing is left here.
        let line = setup.refused(&setup.bundle_with(&[(SLICE, "2g.20gb"), (SHARE, "1/4")]));
        let start = "runmig: cannot allocate a share of 1/4 of 2g.20gb: it needs a new slice, and runmig cannot allocate \
                     2g.20gb: ";
        begins_with(&line, start);
        let line = setup.refused(&setup.bundle_with(&[(SLICE, "3g.40gb"), (SHARE, "1/2")]));
        let start = "runmig: cannot allocate a share of 1/2 of 3g.40gb: no slice with seats has room for it (3g.40gb \
                     at ";
        begins_with(&line, start);
        let end = "; hint: run migctl list to see who has seats in the slices, or set runmig.dev/wait to wait";
        ends_with(&line, end);
        has(&line, "10048Mi of 40192Mi is free beside containers ");
        let explain = ["explain", "3g.40gb", "--share", "1/2"];
        setup.delete(&first);
        let told = setup.tells(&explain);
        begins_with(&told, "fits: ");
        has(&told, " of 3g.40gb at ");
        let gpu = &setup.lease(&fourth)["gpuIndex"];
        has(&told, &format!("on GPU {gpu}, level {level}"));
        setup.ends(&[&second, &third, &fourth]);
        setup.migctl(&explain).ok().says("of a new 3g.40gb at ");
        setup.nothing_is_left();
    }
}

/// All parts of a slice fit in it, and each level's need is in them.
#[test]
fn parts_fill_slice() {
    for level in ["none", "mps"] {
        let setup = on(Low::Runc, level);
        let ids: Vec<String> = (0..3).map(|_| create(&setup, "1g.20gb", "1/3")).collect();
        assert_eq!(setup.machine.instances().len(), 1);
        let fourth = create(&setup, "1g.20gb", "1Gi");
        assert_eq!(setup.machine.instances().len(), 2);
        ids.iter().for_each(|id| setup.delete(id));
        setup.ends(&[fourth]);
    }
}

#[test]
fn takes_first_alternative_with_room() {
    let setup = on(Low::Runc, "none");
    let (_, plain) = setup.made("4g.40gb", "exec sleep 1000");
    // Half of the GPU is left: neither 7g.80gb nor 30Gi of a smaller slice has a place.
    let first = create(&setup, "7g.80gb,2g.20gb,20Gi", "30Gi,10Gi");
    let seat = setup.lease(&first);
    assert_eq!(seat["profile"], "2g.20gb");
    assert_eq!(seat["memoryBytes"], 10u64 << 30);
    let request = "share of 30Gi,10Gi of 7g.80gb,2g.20gb,20Gi";
    assert_eq!(seat["request"], request);
    // An amount stands for the profile that it stands for without a share.
    let second = create(&setup, "18Gi", "1Gi");
    assert_ne!(setup.lease(&second)["migUUID"], seat["migUUID"]);
    assert_eq!(setup.lease(&second)["profile"], "1g.20gb");
    setup.delete(&second);
    // A new slice for the first alternative comes before a seat in a slice of a later one.
    let third = create(&setup, "1g.20gb,2g.20gb", "5Gi");
    assert_eq!(setup.lease(&third)["profile"], "1g.20gb");
    setup.ends(&[&first, &third, &plain]);
}

#[test]
fn bad_requests_change_nothing() {
    let setup = on(Low::Runc, "none");
    let wait = ("runmig.dev/wait", "10m");
    let pod = ("io.kubernetes.cri.sandbox-id", "p");
    for (annotations, words) in testkit::rows! {
        &[(SLICE, "1g.10gb*2"), (SHARE, "1/2")][..] =>
            "runmig.dev/slice asks for several slices (1g.10gb*2), and runmig.dev/share for a share of one; hint: ask for a share of \
             one slice, or for several slices without a share";
        &[(SLICE, "1g.10gb"), (SHARE, "1/2"), ("runmig.dev/gpu", "1")] =>
            "annotation runmig.dev/slice cannot stand beside runmig.dev/gpu";
        &[(SLICE, "3g.40gb"), (SHARE, "1/2"), ("runmig.dev/scope", "pod"), pod] =>
            "annotation runmig.dev/scope: \"pod\" shares one slice or GPU, and runmig.dev/share asks for a share of a slice; hint: take \
             the scope away: each container has a share of its own";
        &[(SLICE, "2g.20gb"), (SHARE, "1/2"), ("runmig.dev/compute", "3")] =>
            "annotation runmig.dev/compute asks for at least 3 compute slices, and 2g.20gb in runmig.dev/slice has 2";
        &[(SLICE, "1g.10gb"), (SHARE, "1/1")] => "annotation runmig.dev/share: \"1/1\" is a whole GPU";
        &[(SLICE, "9g.90gb"), (SHARE, "1/2")] =>
            "cannot allocate a share of 1/2 of 9g.90gb: it needs a new slice, and runmig cannot allocate 9g.90gb: no GPU offers the \
             profile";
        &[(SLICE, "3g.40gb"), (SHARE, "50Gi"), wait] =>
            "no GPU in MIG mode can take it (GPU 0: it gives out 40192Mi); hint: ask for another share, or for a larger slice";
        &[(SLICE, "1g.10gb"), (SHARE, "1/64"), wait] => "(GPU 0: the fraction is 152Mi there, less than 1Gi)";
        &[(SLICE, "3g.40gb"), (SHARE, "0.25")] => "annotation runmig.dev/share: \"0.25\" is not a share of a GPU";
    } {
        has(&setup.refuses(annotations, words), "; hint: ");
        setup.nothing_is_left();
    }
    setup.configure("sharing.enforcement = [\"driver\"]");
    let why = "(driver: NVML refuses memory limits on MIG devices)";
    setup.refuses(&[(SLICE, "3g.40gb"), (SHARE, "1/4")], why);
    setup.nothing_is_left();
}

/// A slice keeps its level, whatever the configuration permits by now.
#[test]
fn seats_of_slice_have_one_level() {
    let setup = on(Low::Runc, "none");
    for (level, other) in [("none", "mps"), ("mps", "none")] {
        let id = create(&setup, "7g.80gb", "1/4");
        setup.configure(&format!("sharing.enforcement = [\"{other}\"]"));
        let words = format!("its shares have the level {level}");
        setup.refuses(&[(SLICE, "7g.80gb"), (SHARE, "1/4")], &words);
        setup.ends(&[id]);
    }
}

/// Creates at once share one slice: those that find it in the making wait for it.
/// Failure: creates of seats at once
#[test]
fn seats_come_at_once() {
    for level in ["none", "mps"] {
        let setup = on(Low::Runc, level);
        let ids: Vec<String> = (0..8).map(|_| unique()).collect();
        let create = |id: &String| {
            let bundle = asking(&setup, "7g.80gb", "1/8");
            let mut create = setup.command(&["create", "-b", bundle.as_str(), id]);
            going(create.stdin(Stdio::null()))
        };
        // The others come while the driver makes the slice.
        let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
        setup.slow(call, "2s");
        let first = create(&ids[0]);
        until("the slice is on record", || !setup.leases().is_empty());
        let creates: Vec<Going> = ids[1..].iter().map(create).collect();
        first.end().ok();
        creates.into_iter().for_each(|one| drop(one.end().ok()));
        assert_eq!(setup.machine.instances().len(), 1);
        assert_eq!(setup.leases().len(), 8);
        let delete = |id: &String| {
            let mut delete = setup.command(&["delete", "--force", id]);
            going(delete.stdin(Stdio::null()))
        };
        let deletes: Vec<Going> = ids.iter().map(delete).collect();
        deletes.into_iter().for_each(|one| drop(one.end().ok()));
        setup.nothing_is_left();
    }
}

/// A later pair has room in a slice with seats, so the idle slice stays. Without that room it makes way.
#[test]
fn evicts_idle_slice_last() {
    let setup = with("none", "keep_idle = \"10m\"");
    let first = create(&setup, "3g.40gb", "1/2");
    let (_, id) = setup.made("4g.40gb", "exec sleep 1000");
    setup.delete(&id);
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
    let told = setup.tells(&["explain", "2g.20gb", "--share", "3/4"]);
    has(&told, ", level none; that destroys an idle slice");
    let evicting = create(&setup, "2g.20gb,3g.40gb", "3/4");
    assert_eq!(setup.lease(&evicting)["profile"], "2g.20gb");
    assert_eq!(idle(), 0);
    setup.ends(&[&first, &later, &smaller, &evicting]);
}

/// A limit counts the whole slice where it names no shares.
#[test]
fn limit_of_one_alternative_leaves_the_next() {
    let setup = with("none", "[[policy.limit]]\nmemory = \"20Gi\"");
    let ids = ["3g.40gb,1g.10gb", "2g.20gb,1g.10gb"].map(|slices| {
        let seat = create(&setup, slices, "1/4");
        assert_eq!(setup.lease(&seat)["profile"], "1g.10gb");
        seat
    });
    let asks = [(SLICE, "3g.40gb"), (SHARE, "1/4")];
    setup.refuses(&asks, "[[policy.limit]] 1");
    setup.ends(&ids);
}
