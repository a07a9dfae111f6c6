//! runmig and Go, so runc, read the same in a config.json: in mutated files whose keys occur twice or in
//! another case, and whose numbers and texts are odd. The reference is `fuzz/go-reader`.

mod tree;

use crate::below;
use crate::targets::reading::{self, go::GoReader};
use testkit::prelude::*;
use tree::Tree;

fn reader() -> Option<GoReader> {
    let reader = reading::start();
    if reader.is_none() {
        skip("Go is not there; run scripts/setup");
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

#[test]
fn go_reads_what_runmig_believes() {
    const CASES: u64 = 4000;
    let Some(mut go) = reader() else { return };
    let (mut edited, mut refused) = (0, 0);
    for seed in 1..=CASES {
        let mut dice = Random::new(seed);
        let mut tree = Tree::of(&config());
        for _ in 0..below(&mut dice, 3) {
            tree.mutate(&mut dice);
        }
        let original = tree.to_bytes(&mut dice);
        match reading::agrees(&mut go, &original) {
            true => edited += 1,
            false => refused += 1,
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
