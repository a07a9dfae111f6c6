//! The rules for devices: what of them stays, and which are refused.

use crate::spec_edit::{done, driver_mounts, edited, refused, with};
use testkit::prelude::*;

fn with_rules(rules: Value) -> Value {
    with(|c| c["linux"]["resources"]["devices"] = rules)
}

#[test]
fn removes_nvidia_rules_and_denies_first() {
    let after = done(&with_rules(json!([
        {"allow": true, "type": "c", "major": 195, "minor": -1, "access": "rw"},
        {"allow": true, "type": "c", "major": 226, "minor": 1, "access": "rw"},
        {"allow": true, "type": "c", "major": 226, "minor": 0, "access": "rw"},
        {"allow": true, "major": 511, "access": "m"},
        {"allow": true, "type": "c", "access": "m"},
        {"allow": true, "type": "b", "access": "rwm"},
        // a block device, whose major is not a character device's
        {"allow": true, "type": "b", "major": 511, "minor": 3, "access": "rwm"},
    ])));
    let rules = after["linux"]["resources"]["devices"].as_array().unwrap();
    let expected = [
        json!({"allow": false, "access": "rwm"}),
        json!({"allow": true, "type": "c", "major": 226, "minor": 0, "access": "rw"}),
        json!({"allow": true, "type": "c", "access": "m"}),
        json!({"allow": true, "type": "b", "access": "rwm"}),
        json!({"allow": true, "type": "b", "major": 511, "minor": 3, "access": "rwm"}),
        json!({"allow": true, "type": "c", "major": 195, "minor": 255, "access": "rwm"}),
    ];
    assert_eq!(&rules[..6], expected);
    assert_eq!(rules.len(), 5 + 5);
}

#[test]
fn judges_rules_by_their_effect() {
    assert_eq!(
        refused(&with_rules(json!([{"allow": true, "access": "rwm"}]))),
        "device rule linux.resources.devices[0] (allow a *:* rwm) lets the container open NVIDIA devices that it was not given, 195:1 for one; hint: run it unprivileged, with rules for the devices that it needs"
    );
    let deny_all = json!({"allow": false, "access": "rwm"});
    for (rule, named) in testkit::rows! {
        json!({"allow": true, "type": "c"}) => "(allow c *:* rwm)";
        json!({"allow": true, "type": "c", "access": "w"}) => "(allow c *:* w)";
        json!({"allow": true, "type": "c", "major": -1, "minor": 7, "access": "r"}) => "(allow c *:7 r)";
        json!({"allow": true, "type": "c", "major": 226, "access": "rw"}) => "(allow c 226:* rw)";
        json!({"allow": true, "type": "a", "major": 1, "minor": 3, "access": "r"}) => "(allow a 1:3 r)";
    } {
        let line = refused(&with_rules(json!([deny_all, rule])));
        has(&line, "linux.resources.devices[1]");
        has(&line, named);
        // Taken back by a deny-all, it allows nothing.
        done(&with_rules(json!([rule, deny_all])));
    }
    // taken away for one major by a later rule, it is still there for those who read the first match
    let later = json!({"allow": false, "type": "c", "major": 195, "access": "rw"});
    let all = json!({"allow": true, "type": "c", "access": "rw"});
    let denied_later = json!([deny_all, all, later]);
    has(&refused(&with_rules(denied_later)), "[1] (allow c *:* rw)");
    // to read and write at once is neither to read nor to write
    let halves = json!([
        deny_all,
        {"allow": true, "type": "c", "access": "rwm"},
        {"allow": false, "type": "c", "access": "r"},
        {"allow": false, "type": "c", "access": "w"},
    ]);
    assert!(refused(&with_rules(halves)).contains("[1] (allow c *:* rwm)"));
    // docker's privileged: the rule stands last, after the denies
    let docker = json!([deny_all, {"allow": false, "type": "c", "major": 10, "minor": 229, "access": "rwm"}, {"allow": true, "access": "rwm"}]);
    assert!(refused(&with_rules(docker)).contains("[2] (allow a *:* rwm)"));
    // looks privileged, is not: what it opens is no NVIDIA device
    done(&with(|c| {
        c["process"]["capabilities"] = json!({"bounding": ["CAP_SYS_ADMIN", "CAP_MKNOD"]});
    }));
}

#[test]
fn refuses_rules_that_deny_slice() {
    let line = refused(&with_rules(json!([
        {"allow": true, "access": "rwm"},
        {"allow": false, "type": "c", "major": 195, "access": "rwm"},
        {"allow": false, "type": "c", "major": 507, "access": "rwm"},
        {"allow": false, "type": "c", "major": 511, "access": "rwm"},
        {"allow": false, "type": "c", "major": 226, "access": "rwm"},
    ])));
    begins_with(
        &line,
        "the device rules of config.json keep the container from /dev/nvidiactl (195:255); hint: ",
    );
}

#[test]
fn refuses_masks_over_granted_nodes() {
    let masked = |path: &str| with(|c| c["linux"]["maskedPaths"] = json!(["/proc/kcore", path]));
    for path in "/dev/nvidia0 /dev/nvidia-caps/ /dev/./nvidiactl /dev".split(' ') {
        let line = refused(&masked(path));
        begins_with(&line, &format!("linux.maskedPaths hides {path}, where"));
    }
    for path in ["/dev/nvidia1", "/dev/nvidia", "/sys/firmware", ""] {
        done(&masked(path));
    }
}

#[test]
fn refuses_masks_over_driver_files() {
    let files = driver_mounts(&["/opt/nvidia/libcuda.so.1"]);
    for path in ["/opt/nvidia/libcuda.so.1", "/opt"] {
        let masked = with(|c| c["linux"]["maskedPaths"] = json!([path]));
        let line = edited(&masked, &files).map(drop).unwrap_err().line();
        begins_with(&line, &format!("linux.maskedPaths hides {path}, where"));
    }
}

#[test]
fn refuses_unreadable_rules() {
    for (rule, key, why) in testkit::rows! {
        json!({"allow": true, "type": "c", "major": 195.0}), ".major" => "is not a device number (or -1 for any)";
        json!({"allow": true, "type": "c", "minor": 4294967296u64}), ".minor" => "is not a device number (or -1 for any)";
        json!({"allow": "yes"}), ".allow" => "is not a boolean";
        json!({"allow": true, "type": "x"}), ".type" => "is \"x\", not a, b or c";
        json!({"allow": true, "access": "rx"}), ".access" => "holds 'x', not only r, w and m";
        json!(3), "" => "is not an object";
    } {
        let line = format!("linux.resources.devices[0]{key} in config.json {why}");
        assert_eq!(refused(&with_rules(json!([rule]))), line);
    }
}
