//! Words that others chose: annotations, container ids, names of pods. They end at terminals and in
//! logs, and none of them gets there as it is.

use testkit::prelude::*;

/// Clears a screen, in two spellings; ends a line; turns text around; and a title for the window.
const EVIL: &str = "\x1b[2J\u{9b}2J\r\nlevel=error\u{202e}txt\u{7}\x1b]0;mine\x07\0";

#[track_caller]
fn is_inert(what: &str, text: &str) {
    let bad = text.chars().find(|c| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
    });
    assert!(bad.is_none(), "{what}: {:?}", text);
}

/// A create of it with a log: what was said and what was logged are harmless and short.
#[track_caller]
fn create(setup: &Setup, bundle: &Bundle, id: &str) -> Said {
    let mut last = None;
    for format in ["json", "text"] {
        let log = setup.path(&format!("log-{}", unique()));
        let options = ["--log", log.to_str().unwrap(), "--log-format", format];
        let create = ["create", "-b", bundle.as_str(), id];
        let said = setup.runmig(&[options, create].concat());
        let logged = fs::read_to_string(&log).unwrap_or_default();
        is_inert("standard error", &said.stderr);
        is_inert("the log", &logged);
        assert!(said.stderr.len() < 8192, "{} bytes", said.stderr.len());
        if !said.status.success() {
            assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
            assert_eq!(logged.lines().count(), 1, "{logged}");
            if format == "json" {
                let line: Value = serde_json::from_str(&logged).unwrap();
                assert_eq!(line["level"], "error");
            }
        }
        if said.status.success() {
            return said;
        }
        last = Some(said);
    }
    last.unwrap()
}

#[test]
fn annotations_that_are_refused() {
    let setup = Setup::of(Low::Runc);
    let huge = "x".repeat(10 << 20);
    for (key, value) in testkit::rows! {
        "runmig.dev/slice" => EVIL.to_owned();
        "runmig.dev/slice" => format!("1g.10gb{EVIL}");
        "runmig.dev/slice" => huge.clone();
        "runmig.dev/wait" => EVIL.to_owned();
        "runmig.dev/wait" => "500000000000years".to_owned();
        &format!("runmig.dev/{EVIL}") => "1g.10gb".to_owned();
        &format!("slice.runmig.dev/{EVIL}") => "1g.10gb".to_owned();
        &format!("slice.runmig.dev/{huge}") => "1g.10gb".to_owned();
        &format!("runmig.dev/{huge}") => String::new();
        &format!("org.systemd.property.Device{EVIL}{huge}") => String::new();
        "cdi.k8s.io/x" => format!("nvidia.com/gpu={EVIL}{huge}");
    } {
        let bundle = setup.asking("1g.10gb", "true");
        bundle.annotate(key, &value);
        let before = bundle.bytes();
        let created = create(&setup, &bundle, &unique());
        assert!(!created.status.success(), "{}", &key[..20.min(key.len())]);
        assert!(bundle.bytes() == before);
        setup.nothing_is_left();
    }
}

/// The names that an engine gives are on record and shown, to people and to programs.
#[test]
fn names_that_are_shown() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb", "true");
    bundle.annotate("io.kubernetes.cri.container-type", "container");
    let long = format!("{EVIL}{}", "\u{9b}x".repeat(1 << 20));
    for key in "container-name sandbox-name sandbox-namespace sandbox-uid".split(' ') {
        bundle.annotate(&format!("io.kubernetes.cri.{key}"), &long);
    }
    let id = unique();
    create(&setup, &bundle, &id).ok();
    let table = setup.tells(&["list"]);
    is_inert("migctl list", &table);
    is_inert("migctl list -o json", &setup.tells(&["list", "-o", "json"]));
    assert_eq!(table.lines().count(), 2, "{table}");
    // Nothing is lost on a program.
    let pod = setup.the_lease()["pod"].as_str().unwrap().to_owned();
    let is_whole = pod.starts_with(EVIL) && pod.chars().count() == 256;
    assert!(is_whole, "{pod:?}");
    setup.ends(&[&id]);
    let log = fs::read_to_string(setup.state().join("runmig.log")).unwrap();
    is_inert("runmig.log", &log);
}

/// A create that the low-level runtime refuses is rolled back, and nothing is made outside.
#[test]
fn container_ids() {
    let setup = Setup::of(Low::Runc);
    let list = |dir: &str| names_in(&setup.path(dir));
    let long = "x".repeat(100_000);
    for id in [
        "..",
        ".",
        "",
        "../../etc",
        "/etc/x",
        "a/b",
        "a\nb",
        &EVIL[..EVIL.len() - 1],
        &long,
    ] {
        let bundle = setup.asking("1g.10gb", "true");
        let before = (bundle.bytes(), list("."));
        // runc's word on an id is its own, in its own line.
        let said = setup.try_create(&bundle, id);
        assert!(!said.status.success(), "{id:?}");
        assert_eq!(bundle.bytes(), before.0);
        let mut new = list(".");
        new.retain(|name| name != "state" && !before.1.contains(name));
        assert_eq!(new, [""; 0]);
        setup.nothing_is_left();
        setup.runmig(&["delete", id]);
        let log = fs::read_to_string(setup.state().join("runmig.log")).unwrap_or_default();
        is_inert("runmig.log", &log);
    }
}

/// A record that could not be read back would lose its slice.
#[test]
fn refuses_what_no_record_can_hold() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb", "true");
    bundle.edit(|config| {
        config["linux"]["cgroupsPath"] = serde_json::json!(format!("/{}", "x".repeat(300 << 10)));
    });
    create(&setup, &bundle, &unique()).refused_for("shorter id, root, bundle and cgroup path");
    setup.nothing_is_left();
}
