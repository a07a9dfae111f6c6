//! Every kind of request through every verb: what holds for one kind holds for all.

use testkit::cgroup2;
use testkit::prelude::*;
use testkit::sharing::daemon;

/// A kind of request.
struct Kind {
    kind: &'static str,
    level: &'static str,
    /// The request, which leaves no room for another of it on its GPU.
    asks: &'static [(&'static str, &'static str)],
    /// One that has room beside it.
    small: Option<&'static [(&'static str, &'static str)]>,
    machine: &'static [&'static str],
    config: &'static str,
    request: &'static str,
    /// In the refusal of a full machine.
    full: &'static str,
    /// Options of `explain` for the same request.
    explain: &'static [&'static str],
    /// Limits that one such request reaches, and words of the refusal.
    limits: &'static [(&'static str, &'static str)],
}

const MIG: &[&str] = &["--gpu", "A100-80GB", "--mig", "on", "--mps"];
const L4: &[&str] = &["--gpu", "L4", "--mps"];

const SLICE: Kind = Kind {
    kind: "slice",
    level: "mig",
    asks: &[("runmig.dev/slice", "7g.80gb")],
    small: None,
    machine: MIG,
    config: "",
    request: "7g.80gb",
    full: "too few memory slices are free (0 of ",
    explain: &["7g.80gb"],
    limits: &[
        ("slices = 1", "1 of 1 slices"),
        ("memory = \"100Gi\"", "of 100Gi of memory"),
    ],
};

const GPU: Kind = Kind {
    kind: "gpu",
    level: "-",
    asks: &[("runmig.dev/gpu", "1")],
    machine: L4,
    request: "1 GPU",
    full: "no GPU is free (GPU 0: container ",
    explain: &["--gpu", "1"],
    // A limit that knows slices alone counts GPUs as slices.
    limits: &[
        ("slices = 1", "1 of 1 slices"),
        ("slices = 5\ngpus = 1", "1 of 1 GPUs"),
        ("memory = \"30Gi\"", "of 30Gi of memory"),
    ],
    ..SLICE
};

const SHARE: Kind = Kind {
    kind: "share",
    level: "none",
    asks: &[("runmig.dev/share", "12Gi")],
    small: Some(&[("runmig.dev/share", "1Gi")]),
    config: "sharing.enforcement = [\"none\"]",
    request: "share of 12Gi",
    full: "is free beside container ",
    explain: &["--share", "12Gi"],
    limits: &testkit::rows! {
        "slices = 1" => "1 of 1 slices";
        "slices = 5\nshares = 1" => "1 of 1 shares";
        "memory = \"1536Mi\"" => "1024Mi of 1536Mi of memory, and 1024Mi are asked for";
    },
    ..GPU
};

const SHARE_AT_MPS: Kind = Kind {
    level: "mps",
    config: "sharing.enforcement = [\"mps\"]",
    limits: &[("slices = 1", "1 of 1 slices")],
    ..SHARE
};

const SHARE_AT_DRIVER: Kind = Kind {
    level: "driver",
    machine: &["--gpu", "L4", "--driver", "615"],
    config: "sharing.enforcement = [\"driver\"]",
    ..SHARE_AT_MPS
};

const SEAT: Kind = Kind {
    kind: "seat",
    asks: &[("runmig.dev/slice", "7g.80gb"), ("runmig.dev/share", "3/4")],
    small: Some(&[("runmig.dev/slice", "7g.80gb"), ("runmig.dev/share", "1/8")]),
    machine: MIG,
    request: "share of 3/4 of 7g.80gb",
    full: "no slice with seats has room for it (7g.80gb at ",
    explain: &["7g.80gb", "--share", "3/4"],
    limits: &[
        ("slices = 1", "1 of 1 slices"),
        ("slices = 0\nshares = 1", "1 of 1 shares"),
        // A limit that does not name shares counts the whole slice of a seat.
        ("memory = \"85Gi\"", "of 85Gi of memory"),
    ],
    ..SHARE
};

const SEAT_AT_MPS: Kind = Kind {
    level: "mps",
    config: "sharing.enforcement = [\"mps\"]",
    ..SEAT
};

impl Kind {
    /// A machine with so many GPUs of the kind.
    fn on(&self, gpus: &str) -> Setup {
        if self.level == "driver" {
            cgroup2::enter();
        }
        let machine = [self.machine, &["--count", gpus]].concat();
        let setup = Setup::on(Low::Runc, Machine::with(&machine));
        setup.configure(self.config);
        setup
    }

    fn explain(&self, setup: &Setup) -> Said {
        setup.migctl(&[&["explain"], self.explain].concat())
    }

    fn is_of_mig(&self) -> bool {
        self.machine == MIG
    }
}

fn pid(setup: &Setup, id: &str) -> Option<i32> {
    daemon(&setup.lease(id))
}

fn gives_and_takes_back(kind: &Kind) {
    let setup = kind.on("2");
    let (bundle, one) = (setup.bundle_with(kind.asks), unique());
    let before = bundle.bytes();
    has(&kind.explain(&setup).ok().stdout, "fits: ");
    setup.create(&bundle, &one);
    let lease = setup.the_lease();
    let text = |key: &str| lease[key].as_str().unwrap_or("-").to_owned();
    assert_eq!(
        [text("kind"), text("state"), text("enforcement")],
        [kind.kind, "ready", kind.level]
    );
    assert_eq!(lease["request"], kind.request);
    has(&setup.tells(&["list"]), &one);

    // The other GPU is the next one's, and then the machine is full.
    let two = setup.gives(kind.asks);
    assert_ne!(setup.lease(&one)["gpuIndex"], setup.lease(&two)["gpuIndex"]);
    let line = setup.refuses(kind.asks, kind.full);
    has(&line, "; hint: run migctl list to see who ");
    let words = line
        .trim_start_matches("runmig: ")
        .split("; hint")
        .next()
        .unwrap();
    let explained = kind.explain(&setup).exits(1);
    begins_with(&explained.stdout, &format!("full: {words}"));
    let daemons = [&one, &two].map(|id| pid(&setup, id));
    assert_eq!(daemons.map(|pid| pid.is_some()), [kind.level == "mps"; 2]);
    setup.ends(&[one, two]);
    assert!(!daemons.into_iter().flatten().any(lives));
    assert_eq!(bundle.bytes(), before);
}

/// A request that waits gets its room when a container ends, and no later one passes it.
fn waits_in_order(kind: &Kind) {
    let setup = kind.on("1");
    let first = setup.gives(kind.asks);
    let (id, waits) = setup.waits(kind.asks);
    if let Some(small) = kind.small {
        setup.refuses(small, "reserved for an earlier request");
    }
    setup.delete(&first);
    waits.end().ok();
    assert_eq!(setup.the_lease()["container"], id);
    setup.ends(&[id]);
}

/// Nobody calls `delete`; gc and release find that init is gone.
fn dead_container_is_released(kind: &Kind) {
    let setup = kind.on("1");
    for verb in [&["gc"][..], &["release"]] {
        let (bundle, id) = (setup.bundle_with(kind.asks), unique());
        setup.create(&bundle, &id);
        let daemon = pid(&setup, &id);
        in_cgroup(&bundle.cgroup()).into_iter().for_each(kill);
        match verb {
            ["release"] => setup.migctl(&["release", &id]).ok(),
            verb => setup.migctl(verb).ok(),
        };
        assert!(!daemon.is_some_and(lives));
        setup.nothing_is_left();
        let _ = setup.bare(&["delete", "--force", &id]).output();
    }
}

fn ledger(setup: &Setup) -> PathBuf {
    setup.state().join("ledger.json")
}

/// No room is given twice beside a damaged ledger, nor after its repair, and none is lost.
fn damaged_ledger_keeps_room(kind: &Kind) {
    // The container ends before the repair or after it, and the generation before is whole or damaged too.
    for (ends_first, is_known) in [(true, true), (false, true), (false, false)] {
        let setup = kind.on("1");
        let id = setup.gives(kind.asks);
        let (daemon, instances) = (pid(&setup, &id), setup.machine.instances());
        let whole = fs::read(ledger(&setup)).unwrap();
        fs::write(ledger(&setup), &whole[..whole.len() / 2]).unwrap();
        if !is_known {
            fs::write(ledger(&setup).with_extension("json.1"), "").unwrap();
        }
        setup.refuses(kind.asks, "is damaged: its hash is wrong");
        let gc = setup.migctl(&["gc"]).refused();
        has(&gc, "hint: run migctl gc --repair as root");
        assert!(daemon.is_none_or(lives));
        assert_eq!(setup.machine.instances(), instances);
        if ends_first {
            setup.runmig(&["delete", "--force", &id]);
            assert!(!daemon.is_some_and(lives));
        }
        setup
            .migctl(&["gc", "--repair"])
            .ok()
            .warns("the ledger was damaged: its hash is wrong");
        if !ends_first {
            assert!(daemon.is_none_or(lives));
            assert_eq!(setup.machine.instances(), instances);
            setup.refuses(kind.asks, "cannot allocate ");
            setup.runmig(&["delete", "--force", &id]);
        }
        setup.migctl(&["gc"]).ok();
        assert!(!daemon.is_some_and(lives));
        setup.nothing_is_left();
    }
}

fn earlier_boot_takes_all_along(kind: &Kind) {
    let setup = kind.on("1");
    // A container that its engine deletes comes before any collector.
    for deletes in [false, true] {
        let id = setup.gives(kind.asks);
        setup.sim("reboot", &[]);
        if deletes {
            setup.delete(&id);
        }
        setup.migctl(&["gc"]).ok();
        assert_eq!(setup.leases(), [Value::Null; 0]);
        setup.nothing_is_left();
        let _ = setup.bare(&["delete", "--force", &id]).output();
        if kind.is_of_mig() {
            setup.sim("mig", &["--gpu", "0", "on"]);
        }
    }
}

/// The hook has in the bundle what the ledger had. Others may have seats in a slice, so `seats` says what becomes of it.
fn hook_of_lost_ledger_releases(kind: &Kind) {
    let setup = kind.on("1");
    let id = setup.gives(kind.asks);
    let daemon = pid(&setup, &id);
    fs::remove_dir_all(setup.state()).unwrap();
    setup.runmig(&["delete", "--force", &id]);
    assert!(!daemon.is_some_and(lives));
    if kind.kind != "seat" {
        setup.nothing_is_left();
    }
}

fn policy_refuses(kind: &Kind) {
    let setup = kind.on("2");
    let configure = |more: &str| setup.configure(&format!("{}\n{more}", kind.config));
    let others = if kind.kind == "gpu" { "slice" } else { "gpu" };
    configure(&format!("policy.kinds = [\"{others}\"]"));
    setup.refuses(kind.asks, " are not allowed (policy.kinds)");
    if kind.kind != "slice" {
        configure("policy.profiles = [\"*\"]");
        setup.refuses(
            kind.asks,
            " are not allowed (policy.profiles without policy.kinds)",
        );
    }
    setup.nothing_is_left();
    for (limit, words) in kind.limits {
        configure(&format!("[[policy.limit]]\n{limit}"));
        // The second has room beside the first: only the limit is in its way.
        let asks = kind.small.unwrap_or(kind.asks);
        let id = setup.gives(asks);
        let patient = [asks, &[("runmig.dev/wait", "10m")]].concat();
        setup.refuses(&patient, words);
        setup.ends(&[id]);
    }
}

/// A daemon that does not end keeps its lease and what it books, and its neighbour ends without it.
fn stuck_daemon_keeps_lease(kind: &Kind) {
    let setup = kind.on("1");
    let (bundle, id) = (setup.bundle_with(kind.asks), unique());
    setup.create(&bundle, &id);
    let neighbour = setup.gives(kind.small.unwrap());
    let (daemon, instances) = (pid(&setup, &id).unwrap(), setup.machine.instances());
    // A cgroup cannot go before those below it.
    let cgroup = format!("runmig-mps-{}", setup.lease(&id)["id"].as_str().unwrap());
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root).unwrap().flatten().map(|e| e.path());
    let mut stuck: Vec<PathBuf> = { hierarchies.chain([root.to_owned()]) }
        .map(|hierarchy| hierarchy.join(&cgroup))
        .filter(|group| group.is_dir())
        .collect();
    assert!(!stuck.is_empty());
    stuck.iter_mut().for_each(|group| group.push("below"));
    stuck
        .iter()
        .for_each(|below| fs::create_dir(below).unwrap());
    in_cgroup(&bundle.cgroup()).into_iter().for_each(kill);
    for attempts in 1..=2 {
        let said = setup.migctl(&["release", &id]).exits(1).stderr;
        has(&said, &format!("cgroup {cgroup} of the MPS daemon on "));
        let lease = setup.lease(&id);
        assert_eq!(lease["state"], "quarantined");
        assert_eq!(lease["attempts"], attempts);
        has(lease["error"].as_str().unwrap(), "does not end");
        assert!(lease["nextAttempt"].is_string(), "{lease}");
    }
    assert!(!lives(daemon));
    setup.refuses(kind.asks, "cannot allocate ");
    assert_eq!(setup.lease(&neighbour)["state"], "ready");
    setup.delete(&neighbour);
    assert_eq!(setup.machine.instances(), instances);
    setup.refuses(kind.asks, "cannot allocate ");
    stuck
        .iter()
        .for_each(|below| fs::remove_dir(below).unwrap());
    has(&setup.tells(&["gc"]), "it was being released");
    setup.nothing_is_left();
    let events = setup.tells(&["events", "-o", "json"]);
    for (event, times) in [("quarantined", 1), ("recovered", 1), ("collected", 1)] {
        let word = format!("\"type\":\"{event}\"");
        assert_eq!(events.matches(&word).count(), times, "{events}");
    }
    let _ = setup.bare(&["delete", "--force", &id]).output();
}

testkit::tests! {
    /// Failure: an MPS daemon does not end
    stuck_daemon_of_share_keeps_lease: stuck_daemon_keeps_lease(&SHARE_AT_MPS);
    stuck_daemon_of_seat_keeps_lease: stuck_daemon_keeps_lease(&SEAT_AT_MPS);
}

macro_rules! kinds {
    ($($name:ident: $kind:ident;)+) => {$(
        mod $name {
            use super::$kind as KIND;

            testkit::tests! {
                gives_and_takes_back: super::gives_and_takes_back(&KIND);
                waits_in_order: super::waits_in_order(&KIND);
                dead_container_is_released: super::dead_container_is_released(&KIND);
                damaged_ledger_keeps_room: super::damaged_ledger_keeps_room(&KIND);
                earlier_boot_takes_all_along: super::earlier_boot_takes_all_along(&KIND);
                hook_of_lost_ledger_releases: super::hook_of_lost_ledger_releases(&KIND);
                policy_refuses: super::policy_refuses(&KIND);
            }
        }
    )+};
}

kinds! {
    slice: SLICE;
    whole_gpu: GPU;
    share_at_none: SHARE;
    share_at_mps: SHARE_AT_MPS;
    share_at_driver: SHARE_AT_DRIVER;
    seat_at_none: SEAT;
    seat_at_mps: SEAT_AT_MPS;
}
