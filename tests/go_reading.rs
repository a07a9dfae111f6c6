//! What runmig believes of a config.json is what Go, so runc, reads in it: for mutated files whose keys
//! occur twice or in another case, whose numbers and texts are odd. The reference is `tests/go-reader`.

#[path = "../fuzz/targets.rs"]
#[allow(dead_code)] // the fuzz targets use the rest
mod targets;
#[path = "go_reading/tree.rs"]
mod tree;

#[path = "support/go.rs"]
mod go;

use go::{GoReader, believed};
use runmig::{request, spec};
use serde_json::{Value, json};
use std::path::Path;
use tree::{Dice, Tree};

fn reader() -> Option<GoReader> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/go-reader");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let reader = GoReader::start(Path::new(source), folder);
    if reader.is_none() {
        let required = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        assert!(
            !required("CI") && !required("RUNMIG_REQUIRE_ALL"),
            "cannot run here, and all is to run: Go is not there"
        );
        use std::io::Write;
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: Go is not there; run scripts/setup"
        );
    }
    reader
}

/// As an engine writes it, with everything that an edit is about.
fn config() -> Value {
    json!({
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 5, "additionalGids": [7]}, "args": ["sh"], "env": ["PATH=/bin", "A=é"]},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
            {"destination": "/x", "type": "bind", "source": "/n/195:4", "options": ["rbind"]},
            {"destination": "/y", "source": "/srv", "options": ["bind", "ro"]},
        ],
        "hooks": {"prestart": [{"path": "/p", "args": ["p"], "timeout": 3}], "poststop": [{"path": "/q"}]},
        "annotations": {"runmig.dev/slice": "1g.10gb", "a": "b"},
        "linux": {
            "devices": [{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 438}],
            "resources": {"devices": [
                {"allow": false, "access": "rwm"},
                {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm"},
            ]},
            "namespaces": [{"type": "pid"}, {"type": "mount", "path": "/proc/1/ns/mnt"}],
            "cgroupsPath": "/kubepods/pod1/c1",
            "sysctl": {"net.ipv4.ip_forward": "1"},
        },
        "unknown": {"number": 1.5e300, "list": [null, true]},
    })
}

fn shown(document: &[u8]) -> String {
    document.escape_ascii().to_string()
}

#[test]
fn go_reads_what_runmig_believes() {
    const CASES: u64 = 4000;
    let Some(mut go) = reader() else { return };
    let (mut edited, mut refused) = (0, 0);
    for seed in 1..=CASES {
        let mut dice = Dice::new(seed);
        let mut tree = Tree::of(&config());
        for _ in 0..dice.below(3) {
            tree.mutate(&mut dice);
        }
        let original = tree.to_bytes(&mut dice);
        let read = go.read(&original);

        // A request that Go reads is never missed.
        let asks = |annotations: &Value| {
            let annotations = annotations.as_object();
            annotations.is_some_and(|all| all.keys().any(|key| request::is_ours(key)))
        };
        if read.as_ref().is_ok_and(|read| asks(&read["annotations"])) {
            let seen = spec::peek(&original);
            assert!(
                seen.is_err()
                    || seen
                        .is_ok_and(|seen| seen.annotations.keys().any(|key| request::is_ours(key))),
                "{}",
                shown(&original)
            );
        }

        let Ok(after) = targets::edit(&original, &spec::DriverFiles::default()) else {
            refused += 1;
            continue;
        };
        edited += 1;
        if let Ok(read) = read {
            assert_eq!(read, believed(&original), "{}", shown(&original));
        }
        if let Ok(read) = go.read(&after) {
            assert_eq!(
                read,
                believed(&after),
                "{}\n{}",
                shown(&original),
                shown(&after)
            );
        }
    }
    assert!(
        edited > CASES / 4 && refused > CASES / 4,
        "{edited} edited, {refused} refused"
    );
}

/// The reference itself: Go reads so, and these are the cases that the seal depends on.
#[test]
fn go_merges_and_folds_keys() {
    let Some(mut go) = reader() else { return };
    let mut read = |text: &str| go.read(text.as_bytes()).unwrap();
    let devices = |spec: &Value| spec["linux"]["devices"].clone();
    let spec = read(r#"{"linux":{"devices":[{"major":1}]},"Linux":{"DEVICES":[{"Minor":2}]}}"#);
    assert_eq!(devices(&spec)[0]["minor"], 2);
    let spec = read(r#"{"linux":{"devices":[{"path":"/x"}]},"linux":{"cgroupsPath":"/c"}}"#);
    assert_eq!(devices(&spec)[0]["path"], "/x");
    let spec = read("{\"annotation\u{17f}\":{\"a\":\"b\"},\"Hoo\u{212a}s\":{}} trailing");
    assert_eq!(spec["annotations"], json!({"a": "b"}));
    assert!(spec["hooks"].is_object());
    assert_eq!(
        read(r#"{"annotations":{"a":"\ud800"}}"#)["annotations"]["a"],
        "\u{fffd}"
    );
}
