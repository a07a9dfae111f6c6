use super::*;

fn parse_pairs(pairs: &[(&str, &str)]) -> Result<Option<Request>> {
    let all: Vec<_> = pairs
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    parse(&all)
}

fn refused(pairs: &[(&str, &str)]) -> String {
    parse_pairs(pairs).unwrap_err().line()
}

#[test]
fn container_key_wins() {
    let name = ("io.kubernetes.cri.container-name", "web");
    let both = [(SLICE, "1g.10gb"), ("slice.runmig.dev/web", "20Gi"), name];
    let asked = parse_pairs(&both).unwrap().unwrap().wanted;
    assert_eq!(asked.written(), "20Gi");
    let nothing = [(SLICE, "1g.10gb"), ("slice.runmig.dev/web", "none"), name];
    assert_eq!(parse_pairs(&nothing).unwrap(), None);
    let other = [("slice.runmig.dev/db", "1g.10gb"), name];
    assert_eq!(parse_pairs(&other).unwrap(), None);
}

#[test]
fn ignores_every_sandbox() {
    for key in [
        "io.kubernetes.cri.container-type",
        "io.kubernetes.cri-o.ContainerType",
    ] {
        assert_eq!(
            parse_pairs(&[(SLICE, "rubbish"), (key, "sandbox")]).unwrap(),
            None
        );
    }
}

#[test]
fn never_ignores_a_likely_request() {
    for (key, hint) in rows! {
        "runmig.dev/slcie" => "write runmig.dev/slice";
        "slices.runmig.dev/web" => "write slice.runmig.dev/web";
        "x.runmig.dev/web" => "write slice.runmig.dev/web or share.runmig.dev/web or gpu.runmig.dev/web";
        "runmg.dev/gpu" => "write runmig.dev/gpu";
        "runmig.io/share" => "write runmig.dev/share";
    } {
        let line = refused(&[(key, "1g.10gb"), ("io.kubernetes.container.name", "web")]);
        assert_eq!(line, format!("annotation {key} is unknown; hint: {hint}"));
    }
    let foreign = parse_pairs(&[("rundig.dev/owner", "1g.10gb")]);
    assert_eq!(foreign.unwrap(), None);
    const SMALL: (&str, &str) = (SLICE, "1g.10gb");
    let huge = "x".repeat(10 << 20);
    let long_key = format!("slice.runmig.dev/{huge}");
    for (pairs, words) in rows! {
        &[("runmig.dev/memory", "1Gi")][..] => "hint: this version knows runmig.dev/slice,";
        &[(SLICE, "20GiB")] => "hint: write 20Gi";
        &[(SLICE, "3g.40gb,MIG 1g.10gb")] => "hint: write 1g.10gb";
        &[(SLICE, "1/4")] => "hint: write runmig.dev/share: 1/4";
        &[(SHARE, "8GB")] => "hint: ask for 7629Mi";
        &[(SHARE, "500MB")] => "hint: ask for 1Gi or more";
        &[(SHARE, "0.3")] => "hint: write a fraction as 3/10";
        &[(GPU, "mig-2g.20gb")] => "hint: write runmig.dev/slice: 2g.20gb";
        &[SMALL, (WAIT, "30")] => "\"30\" has no unit; hint: write 30s";
        &[SMALL, (WAIT, "soon")] => "\"soon\" is not a duration; hint: write it as 30s or 2m";
        // Added to the clock it would overflow.
        &[SMALL, (WAIT, "500000000000years")] => "is more than a day";
        &[SMALL, (WAIT, "24h 1s")] => "is more than a day";
        &[(WAIT, "30s")] => "needs runmig.dev/slice";
        &[("slice.runmig.dev/web", "1g.10gb")] => "gave this one no name";
        &[SMALL, (SLICE, "2g.20gb")] => "contradicts itself";
        &[SMALL, ("io.kubernetes.cri.container-name", "a"), ("io.kubernetes.container.name", "b")] =>
            "annotations io.kubernetes.cri.container-name and io.kubernetes.container.name contradict each other: \
             \"a\" and \"b\"";
        &[SMALL, ("io.kubernetes.cri.container-type", "sandbox"), ("io.kubernetes.cri-o.ContainerType", "container")] =>
            "contradict each other: \"sandbox\" and \"container\"";
        &[(SLICE, &*huge)] => "bytes long, more than 256";
        &[(&*long_key, "1g.10gb")] => "is for a container by name";
        &[(SLICE, "\x1b[2J\0")] => "\\u{1b}[2J\\u{0}";
    } {
        let line = refused(pairs);
        assert!(line.contains(words) && line.len() < 300, "{line}");
        assert!(!line.contains('\x1b'), "{line}");
    }
}

#[test]
fn parses_least_compute_slices() {
    let with = |slice, compute| parse_pairs(&[(SLICE, slice), (COMPUTE, compute)]);
    let least = |slice, compute| match with(slice, compute).unwrap().unwrap().wanted {
        Wanted::Slices(slices) => slices.min_compute,
        Wanted::Seat(seat) => seat.slices.min_compute,
        Wanted::Share(_) | Wanted::Gpus(_) => 0,
    };
    assert_eq!(least("20Gi", "2"), 2);
    assert_eq!(least("3g.40gb,2g.20gb", " 2 "), 2);
    assert_eq!(with("none", "2").unwrap(), None);
    let line = |slice, compute| with(slice, compute).unwrap_err().line();
    assert_eq!(
        line("20Gi,1g.10gb+me", "2"),
        "annotation runmig.dev/compute asks for at least 2 compute slices, and 1g.10gb+me in \
         runmig.dev/slice has 1; hint: ask for a larger profile, or take runmig.dev/compute away"
    );
    for bad in ["", "0", "two", "-1", "1.5", "99", "99999999999999999999"] {
        assert!(
            line("20Gi", bad).contains("is not a number of compute slices"),
            "{bad}"
        );
    }
    assert_eq!(
        refused(&[(COMPUTE, "2")]),
        "annotation runmig.dev/compute needs runmig.dev/slice; hint: add runmig.dev/slice, or remove runmig.dev/compute"
    );
}

#[test]
fn parses_waits() {
    let engine = |more: &[(&str, &str)]| {
        let all = [&[(SLICE, "1g.10gb")], more].concat();
        let deadline = parse_pairs(&all).unwrap().unwrap().deadline;
        deadline.map(|d| (d.engine, d.longest_wait.as_secs()))
    };
    for (key, value, engine_of) in rows! {
        "io.kubernetes.cri.container-type", "container" => "containerd";
        "io.kubernetes.cri-o.ContainerType", "container" => "CRI-O";
        "io.container.manager", "cri-o" => "CRI-O";
    } {
        assert_eq!(engine(&[(key, value)]), Some((engine_of, 90)));
    }
    let podman = [
        ("io.container.manager", "libpod"),
        ("io.kubernetes.cri-o.SandboxID", "1"),
    ];
    assert_eq!(engine(&podman), Some(("podman", 220)));
    assert_eq!(engine(&[]), None);
}

#[test]
fn refuses_scope_without_pod() {
    let asked = |more: &[(&str, &str)]| {
        let pairs = [&[(SLICE, "1g.10gb")], more].concat();
        parse_pairs(&pairs).map(|r| r.unwrap().shared_in)
    };
    let (sandbox, crio) = (
        ("io.kubernetes.cri.sandbox-id", "s1"),
        ("io.kubernetes.cri-o.SandboxID", "s1"),
    );
    let by_uid = [
        ("io.kubernetes.pod.namespace", "n"),
        ("io.kubernetes.pod.uid", "u"),
    ];
    let pod = (SCOPE, "pod");
    for id in [sandbox, crio] {
        assert_eq!(asked(&[pod, id]).unwrap().as_deref(), Some("sandbox s1"));
        let both = [&[pod, id], &by_uid[..]].concat();
        assert_eq!(asked(&both).unwrap().as_deref(), Some("sandbox s1"));
    }
    let uid = [&[pod], &by_uid[..]].concat();
    assert_eq!(asked(&uid).unwrap().as_deref(), Some("pod n/u"));
    assert_eq!(asked(&[sandbox]).unwrap(), None);
    assert_eq!(asked(&[(SCOPE, "container"), sandbox]).unwrap(), None);
    let refused = |more: &[(&str, &str)]| asked(more).unwrap_err().line();
    assert!(refused(&[pod]).contains("the engine names no pod"));
    let empty = ("io.kubernetes.cri-o.SandboxID", "");
    assert!(refused(&[pod, empty]).contains("the engine names no pod"));
    assert!(refused(&[(SCOPE, "node")]).contains("unknown scope \"node\""));
    let two = parse_pairs(&[(SLICE, "7g.80gb,1g.10gb*2"), pod, sandbox]);
    assert_eq!(
        two.unwrap_err().line(),
        "annotation runmig.dev/scope: \"pod\" shares one slice, and 1g.10gb*2 in runmig.dev/slice \
         asks for several; hint: ask for one larger slice, or take the scope away"
    );
    let alone = parse_pairs(&[pod, sandbox]).unwrap_err().line();
    assert!(
        alone.contains("annotation runmig.dev/scope needs runmig.dev/slice or runmig.dev/gpu; ")
    );
}

proptest::proptest! {
    #[test]
    fn never_panics_on_a_value(text in ".{0,300}") {
        let _ = parse_pairs(&[(SLICE, &text), ("io.kubernetes.container.name", "a")]);
    }
}

#[test]
fn parses_whole_gpus() {
    let asked = |pairs: &[(&str, &str)]| parse_pairs(pairs).unwrap().map(|r| r.wanted);
    assert_eq!(asked(&[(GPU, "1")]), Some(Wanted::Gpus(1)));
    assert_eq!(asked(&[(GPU, " 64\n")]), Some(Wanted::Gpus(64)));
    assert_eq!(asked(&[(GPU, "none")]), None);
    // `none` is no second kind.
    assert_eq!(asked(&[(GPU, "2"), (SLICE, "none")]), Some(Wanted::Gpus(2)));
    let name = ("io.kubernetes.container.name", "web");
    let own = [(GPU, "1"), ("slice.runmig.dev/web", "none"), name];
    assert_eq!(asked(&own), None);
    let own = [(SLICE, "1g.10gb"), ("gpu.runmig.dev/web", "1"), name];
    assert_eq!(asked(&own), Some(Wanted::Gpus(1)));

    let two = refused(&[
        ("slice.runmig.dev/web", "20Gi"),
        ("gpu.runmig.dev/web", "1"),
        name,
    ]);
    assert_eq!(
        two,
        "annotation slice.runmig.dev/web cannot stand beside gpu.runmig.dev/web: one container gets one kind of GPU; \
         hint: take one of them away"
    );
    let unnamed = refused(&[("gpu.runmig.dev/web", "1")]);
    assert!(unnamed.ends_with("hint: use runmig.dev/gpu"), "{unnamed}");
    let several = refused(&[
        (GPU, "2"),
        (SCOPE, "pod"),
        ("io.kubernetes.cri.sandbox-id", "p"),
    ]);
    assert!(
        several.contains("\"pod\" shares one GPU, and 2 in runmig.dev/gpu"),
        "{several}"
    );
}

#[test]
fn parses_shares() {
    let asked = |pairs: &[(&str, &str)]| parse_pairs(pairs).unwrap().map(|r| r.wanted);
    let eight = Wanted::Share(vec![ShareSize::Memory(8192)]);
    assert_eq!(asked(&[(SHARE, "8Gi")]), Some(eight.clone()));
    assert_eq!(asked(&[(SHARE, "none")]), None);
    let name = ("io.kubernetes.container.name", "web");
    let own = [(GPU, "1"), ("share.runmig.dev/web", "8Gi"), name];
    assert_eq!(asked(&own), Some(eight));
    let two = refused(&[(SHARE, "8Gi"), (GPU, "1")]);
    assert!(
        two.starts_with("annotation runmig.dev/share cannot stand beside runmig.dev/gpu"),
        "{two}"
    );
    let compute = refused(&[(SHARE, "8Gi"), (COMPUTE, "2")]);
    assert!(
        compute.ends_with(
            "asks for a share of a GPU: shares take turns, each with the whole GPU; hint: take \
             runmig.dev/compute away"
        ),
        "{compute}"
    );
    let scope = refused(&[
        (SHARE, "8Gi"),
        (SCOPE, "pod"),
        ("io.kubernetes.cri.sandbox-id", "p"),
    ]);
    assert!(
        scope.ends_with("hint: take the scope away: each container has a share of its own"),
        "{scope}"
    );
}

#[test]
fn parses_seats() {
    let asked = |pairs: &[(&str, &str)]| parse_pairs(pairs).unwrap().map(|r| r.wanted);
    let written = |pairs: &[(&str, &str)]| asked(pairs).map(|wanted| wanted.written());
    let seat = Some("share of 1/4,10Gi of 3g.40gb,20Gi".to_owned());
    assert_eq!(
        written(&[(SHARE, "1/4,10Gi"), (SLICE, "3g.40gb,20Gi")]),
        seat
    );
    let name = ("io.kubernetes.container.name", "web");
    let (slice, share) = ("slice.runmig.dev/web", "share.runmig.dev/web");
    let own = [(slice, "3g.40gb"), (share, "1/4"), (GPU, "1"), name];
    assert_eq!(written(&own), Some("share of 1/4 of 3g.40gb".to_owned()));
    // A key that names the container wins over the pod's of every kind.
    assert_eq!(
        written(&[(slice, "3g.40gb"), (SHARE, "1/4"), name]),
        Some("3g.40gb".to_owned())
    );
    for (pairs, one) in [
        ([(SLICE, "none"), (SHARE, "1/4")], Some("share of 1/4")),
        ([(SLICE, "3g.40gb"), (SHARE, "none")], Some("3g.40gb")),
        ([(SLICE, "none"), (SHARE, "none")], None),
    ] {
        assert_eq!(written(&pairs).as_deref(), one);
    }
    let compute = asked(&[(SLICE, "20Gi"), (SHARE, "1/4"), (COMPUTE, "2")]);
    let Some(Wanted::Seat(seat)) = compute else {
        panic!("{compute:?}");
    };
    assert_eq!(seat.slices.min_compute, 2);
    let all = refused(&[(SLICE, "3g.40gb"), (SHARE, "1/4"), (GPU, "1")]);
    assert!(
        all.starts_with("annotation runmig.dev/slice cannot stand beside runmig.dev/gpu"),
        "{all}"
    );
    let several = refused(&[(SLICE, "20Gi,1g.10gb*2"), (SHARE, "1/4")]);
    assert!(
        several.starts_with("runmig.dev/slice asks for several slices (1g.10gb*2)"),
        "{several}"
    );
}

#[test]
fn reads_kind_of_written_request() {
    let wanted = |annotations: &[(&str, &str)]| {
        let own = |(key, value): &(&str, &str)| (format!("runmig.dev/{key}"), (*value).into());
        let annotations: Vec<(String, String)> = annotations.iter().map(own).collect();
        kind_of_written(&parse(&annotations).unwrap().unwrap().wanted.written())
    };
    let profile = |name: &str| Some(name.to_owned());
    assert_eq!(
        wanted(&[("slice", "1g.10gb+me*2,20Gi")]),
        ("slice", profile("1g.10gb+me"))
    );
    assert_eq!(
        wanted(&[("slice", "1g.10gb&2g.20gb")]),
        ("slice", profile("2g.20gb"))
    );
    assert_eq!(wanted(&[("slice", "20Gi,1g.10gb")]), ("slice", None));
    assert_eq!(wanted(&[("share", "8Gi,1/4")]), ("share", None));
    let seat = [("slice", "3g.40gb,7g.80gb"), ("share", "1/4")];
    assert_eq!(wanted(&seat), ("seat", profile("3g.40gb")));
    assert_eq!(wanted(&[("gpu", "1")]), ("gpu", None));
    assert_eq!(wanted(&[("gpu", "2")]), ("gpu", None));
    assert_eq!(kind_of_written(""), ("slice", None));
}
