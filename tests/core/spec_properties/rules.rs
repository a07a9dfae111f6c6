//! The device rules, held against two readings of them that are written down again from their sources.

use crate::spec_properties::{OURS, edited, list, nodes, number};
use proptest::prelude::*;
use std::collections::HashMap;
use testkit::prelude::*;

fn letters(rule: &Value) -> String {
    rule["access"].as_str().unwrap_or_default().to_owned()
}

/// The runtime specification and crun's BPF program: the last rule that matches decides.
fn specification_allows(rules: &[Value], major: u32, minor: u32, wanted: &str) -> bool {
    let mut allowed = false;
    for rule in rules {
        let kind = matches!(rule["type"].as_str(), None | Some("a" | "c"));
        let access = letters(rule);
        let numbers = number(&rule["major"]).is_none_or(|m| m == major)
            && number(&rule["minor"]).is_none_or(|m| m == minor);
        if kind && numbers && wanted.chars().all(|c| access.contains(c)) {
            allowed = rule["allow"] == true;
        }
    }
    allowed
}

/// runc's emulator of cgroup v1; None where it refuses the rules.
fn runc_allows(rules: &[Value], major: u32, minor: u32, wanted: &str) -> Option<bool> {
    type Meta = (char, Option<u32>, Option<u32>);
    let mut default = false;
    let mut table: HashMap<Meta, String> = HashMap::new();
    for rule in rules {
        let kind = rule["type"].as_str().unwrap_or("a").chars().next()?;
        let allow = rule["allow"] == true;
        if kind == 'a' {
            default = allow;
            table.clear();
            continue;
        }
        let (major, minor) = (number(&rule["major"]), number(&rule["minor"]));
        let meta = (kind, major, minor);
        let access = letters(rule);
        if allow != default {
            table.entry(meta).or_default().push_str(&access);
            continue;
        }
        for partial in [(kind, None, minor), (kind, major, None), (kind, None, None)] {
            let there = table
                .get(&partial)
                .is_some_and(|p| p.chars().any(|c| access.contains(c)));
            if partial != meta && there {
                return None;
            }
        }
        if let Some(there) = table.get_mut(&meta) {
            there.retain(|c| !access.contains(c));
        }
    }
    let excepted = table.iter().any(|((kind, ma, mi), access)| {
        *kind == 'c'
            && ma.is_none_or(|m| m == major)
            && mi.is_none_or(|m| m == minor)
            && wanted.chars().all(|c| access.contains(c))
    });
    Some(default != excepted)
}

/// What both say of a use of an NVIDIA device.
#[derive(Debug)]
#[allow(dead_code)] // shown by a failure
struct Reading {
    device: (u32, u32),
    wanted: &'static str,
    is_granted: bool,
    bpf: bool,
    runc: Option<bool>,
}

fn readings(rules: &[Value]) -> Vec<Reading> {
    let minors = || (0..12).chain([254, 255, 256]);
    let all = (0..10).flat_map(|major| minors().map(move |minor| (major, minor)));
    let granted: Vec<_> = nodes().iter().map(|n| (n.major, n.minor)).collect();
    let nvidia = all.filter(|d| OURS.contains(&d.0) || *d == (3, 1));
    let uses = nvidia.flat_map(|device| ["r", "w", "rw"].map(|wanted| (device, wanted)));
    uses.map(|(device, wanted)| Reading {
        device,
        wanted,
        is_granted: granted.contains(&device),
        bpf: specification_allows(rules, device.0, device.1, wanted),
        runc: runc_allows(rules, device.0, device.1, wanted),
    })
    .collect()
}

pub fn rule() -> impl Strategy<Value = Value> {
    let number =
        || prop::option::weighted(0.6, prop::sample::select(vec![-1i64, 0, 1, 2, 3, 7, 8]));
    (
        any::<bool>(),
        prop::option::of(prop::sample::select(vec!["a", "b", "c", "c", "c"])),
        number(),
        number(),
        prop::sample::select(vec!["rwm", "rwm", "rw", "r", "w", "m", "wm"]),
    )
        .prop_map(|(allow, kind, major, minor, access)| {
            let mut rule = json!({"allow": allow, "access": access});
            for (key, value) in [("major", major), ("minor", minor)] {
                if let Some(value) = value {
                    rule[key] = value.into();
                }
            }
            if let Some(kind) = kind {
                rule["type"] = kind.into();
            }
            rule
        })
}

fn rules() -> impl Strategy<Value = Vec<Value>> {
    (any::<bool>(), prop::collection::vec(rule(), 0..6)).prop_map(|(sealed, mut rules)| {
        if sealed {
            rules.insert(0, json!({"allow": false, "access": "rwm"}));
        }
        rules
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// After an edit no reading of any rules opens another device, and every reading opens ours.
    #[test]
    fn rules_admit_no_other_device(rules in rules()) {
        let original = json!({"process": {}, "linux": {"resources": {"devices": rules}}});
        if let Ok(bytes) = edited(original.to_string().as_bytes()) {
            let after: Value = serde_json::from_slice(&bytes).unwrap();
            let after = list(&after["linux"]["resources"]["devices"]);
            for read in readings(&after) {
                let is_right = read.bpf == read.is_granted && read.runc != Some(!read.is_granted);
                prop_assert!(is_right, "{read:?} {after:?}");
            }
        }
    }

    /// And what is refused is refused for a reason: by the one reading or the other.
    #[test]
    fn refuses_rules_only_with_reason(rules in rules()) {
        let original = json!({"process": {}, "linux": {"resources": {"devices": rules}}});
        if let Err(e) = edited(original.to_string().as_bytes()) {
            // As the edit would leave them: NVIDIA's allows out, deny-all first, ours last.
            let mut after: Vec<Value> = rules.into_iter().filter(|r| {
                let (major, minor) = (number(&r["major"]), number(&r["minor"]));
                let ours = major.is_some_and(|m| OURS.contains(&m)) || (major, minor) == (Some(3), Some(1));
                r["allow"] != true || !ours
            }).collect();
            after.insert(0, json!({"allow": false, "access": "rwm"}));
            after.extend(nodes().iter().map(|n| json!({"allow": true, "type": "c", "major": n.major, "minor": n.minor, "access": "rwm"})));
            let mut read = readings(&after).into_iter();
            let reason = read.any(|read| match read.is_granted {
                true => !read.bpf || read.runc != Some(true),
                false => read.bpf || read.runc != Some(false),
            });
            prop_assert!(reason, "{} {after:?}", e.line());
        }
    }
}
