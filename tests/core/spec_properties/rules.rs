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
            let granted = |ma, mi| nodes().iter().any(|n| (n.major, n.minor) == (ma, mi));
            for major in 0..10 {
                for minor in (0..12).chain([254, 255, 256]) {
                    let nvidia = OURS.contains(&major) || (major, minor) == (3, 1);
                    for wanted in ["r", "w", "rw"] {
                        let bpf = specification_allows(&after, major, minor, wanted);
                        let runc = runc_allows(&after, major, minor, wanted);
                        if granted(major, minor) {
                            prop_assert!(bpf && runc != Some(false), "{major}:{minor} {wanted} {after:?}");
                        } else if nvidia {
                            prop_assert!(!bpf && runc != Some(true), "{major}:{minor} {wanted} {after:?}");
                        }
                    }
                }
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
            let reason = (0..10).any(|major| (0..12).chain([254, 255, 256]).any(|minor| {
                let granted = nodes().iter().any(|n| (n.major, n.minor) == (major, minor));
                let nvidia = OURS.contains(&major) || (major, minor) == (3, 1);
                ["r", "w", "rw"].iter().any(|wanted| {
                    let runc = runc_allows(&after, major, minor, wanted);
                    let bpf = specification_allows(&after, major, minor, wanted);
                    if granted { !bpf || runc != Some(true) } else { nvidia && (bpf || runc != Some(false)) }
                })
            }));
            prop_assert!(reason, "{} {after:?}", e.line());
        }
    }
}
