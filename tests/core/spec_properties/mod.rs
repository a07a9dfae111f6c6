//! Properties of every config.json, not only of those in other tests.

mod rules;

use crate::{device, grant};
use proptest::prelude::*;
use runmig::spec::bundle::Bundle;
use runmig::spec::{Document, Source, edit, peek, strip, uses_user_namespace};
use runmig_lease::Author;
use runmig_lease::cdi::Edits;
use runmig_lease::error::Result;
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use serde_json::Map;
use testkit::prelude::*;

const OURS: [u32; 2] = [7, 8];

fn numbers() -> NvidiaNumbers {
    NvidiaNumbers {
        majors: OURS.to_vec(),
        drm: vec![(3, 1)],
    }
}

fn nodes() -> Vec<DeviceNode> {
    let ctl = device("/dev/nvidiactl", 7, 255);
    let gpu = device("/dev/nvidia0", 7, 0);
    vec![ctl, gpu, device("/dev/cap", 8, 2)]
}

/// The digits at the end of a source are its number.
fn host(path: &Path) -> Result<Source> {
    let path = path.to_str().unwrap();
    let number = path.strip_prefix("/n/").and_then(|p| p.split_once(':'));
    Ok(match number {
        Some((major, minor)) => Source::CharDevice {
            major: major.parse().unwrap(),
            minor: minor.parse().unwrap(),
        },
        None => Source::Other,
    })
}

fn edited(original: &[u8]) -> Result<Vec<u8>> {
    let (nodes, numbers) = (nodes(), numbers());
    let driver = Edits::default();
    let mut grant = grant(&["MIG-1"], &nodes, &driver, &numbers);
    grant.hook.leases = vec!["ab".into()];
    grant.hook.limits = original.len().is_multiple_of(2);
    edit(Document::parse(original)?, &grant, &host).map(|edited| edited.bytes)
}

fn number(value: &Value) -> Option<u32> {
    value.as_i64().and_then(|n| u32::try_from(n).ok())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(serde_json::from_str("184467440737095516160").unwrap()),
        // a NUL is refused where low-level runtimes read it
        "[^\\x00\n]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".{0,4}", inner), 0..4)
                .prop_map(|entries| entries.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// As an engine writes it, with a surprise here and there.
fn config() -> impl Strategy<Value = Value> {
    let env = "A=1 B= NVIDIA_VISIBLE_DEVICES=all NVIDIA_MIG_CONFIG_DEVICES=all =x  NVIDIA_DRIVER_CAPABILITIES=all";
    let env = prop::sample::select(env.split(' ').collect::<Vec<_>>());
    let device = (prop::sample::select(vec!["c", "b", "p"]), 5u32..9, 0u32..3, 0u8..4)
        .prop_map(|(t, ma, mi, p)| json!({"type": t, "major": ma, "minor": mi, "path": format!("/dev/{p}")}));
    let mount = (prop::sample::select(vec!["/n/7:0", "/n/7:1", "/n/1:3", "/n/3:1", "/srv"]), 0u8..4, any::<bool>())
        .prop_map(|(s, d, bind)| json!({"source": s, "destination": format!("/m{d}"), "options": if bind { json!(["bind"]) } else { json!([]) }}));
    // most lists that are random allow too much: here none does
    let narrow = prop::collection::vec(rules::rule(), 0..6).prop_map(|rules| {
        let named =
            |r: &Value| matches!(r["major"].as_i64(), Some(0 | 1 | 2 | 7 | 8)) && r["type"] == "c";
        let mut rules: Vec<Value> = rules
            .into_iter()
            .filter(|r| named(r) && r["allow"] == true)
            .collect();
        rules.insert(0, json!({"allow": false, "access": "rwm"}));
        rules
    });
    (
        any_json(),
        prop::option::of(prop::collection::vec(env, 0..6)),
        prop::option::of(prop::collection::vec(device, 0..5)),
        prop::option::of(prop::collection::vec(mount, 0..5)),
        narrow,
        prop::option::of(any_json()),
    )
        .prop_map(|(extra, env, devices, mounts, rules, hook)| {
            json!({
                "unknown": extra,
                "process": {"env": env, "x": extra},
                "mounts": mounts,
                "linux": {"devices": devices, "resources": {"devices": rules, "y": extra}, "z": 1},
                "hooks": {"poststop": hook.map(|h| vec![h]), "prestart": []},
            })
        })
}

/// Removes the places that an edit may change; the rest has to be the same.
fn without_the_places(mut config: Value) -> Value {
    for (object, key) in testkit::rows! {
        "/process" => "env";
        "/linux" => "devices";
        "/linux/resources" => "devices";
        "/hooks" => "poststop";
        "/hooks" => "createRuntime";
        "" => "mounts";
    } {
        let object = config.pointer_mut(object).unwrap();
        object.as_object_mut().unwrap().shift_remove(key);
    }
    config
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn foreign(major: &Value, minor: &Value) -> bool {
    let number = (number(major).unwrap(), number(minor).unwrap());
    (OURS.contains(&number.0) || number == (3, 1))
        && !nodes().iter().any(|n| (n.major, n.minor) == number)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edit_changes_listed_places_alone(config in config()) {
        let bytes = edited(config.to_string().as_bytes()).unwrap();
        let after: Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(
            without_the_places(after.clone()).to_string(),
            without_the_places(config.clone()).to_string()
        );

        let env = |c: &Value| list(&c["process"]["env"]);
        let others = |env: Vec<Value>| -> Vec<Value> {
            let gone = |e: &Value| {
                let e = e.as_str().unwrap();
                e.starts_with("NVIDIA_VISIBLE") || e.starts_with("NVIDIA_MIG")
            };
            env.into_iter().filter(|e| !gone(e)).collect()
        };
        prop_assert_eq!(others(env(&after)), others(env(&config)));
        prop_assert_eq!(env(&after).len(), others(env(&config)).len() + 1);
        prop_assert!(env(&after).contains(&json!("NVIDIA_VISIBLE_DEVICES=MIG-1")));

        let devices = list(&after["linux"]["devices"]);
        let (kept, added) = devices.split_at(devices.len() - 3);
        let expected: Vec<Value> = list(&config["linux"]["devices"])
            .into_iter()
            .filter(|d| d["type"] != "c" || !foreign(&d["major"], &d["minor"]))
            .collect();
        prop_assert_eq!(kept, &expected);
        prop_assert_eq!(&added[1], &json!({"path": "/dev/nvidia0", "type": "c", "major": 7, "minor": 0, "fileMode": 438}));

        let expected: Vec<Value> = list(&config["mounts"])
            .into_iter()
            .filter(|m| m["options"] == json!([]) || !["/n/7:1", "/n/3:1"].contains(&m["source"].as_str().unwrap()))
            .collect();
        prop_assert_eq!(list(&after["mounts"]), expected);
        prop_assert_eq!(&list(&after["hooks"]["poststop"])[1..], &list(&config["hooks"]["poststop"]));
    }

    #[test]
    fn repeated_edit_and_release_are_exact(config in config(), pretty in any::<bool>()) {
        let original = if pretty { serde_json::to_vec_pretty(&config) } else { serde_json::to_vec(&config) }.unwrap();
        // Its hook would be ours only by the wildest chance; peek refuses what is no hook.
        prop_assume!(peek(&original).is_ok_and(|seen| !seen.marked));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        std::fs::write(&file, &original).unwrap();
        let bundle = Bundle::open(dir.path()).unwrap();
        let first = edited(&original).unwrap();
        for _ in 0..2 {
            let found = bundle.original(&numbers(), None).unwrap();
            let again = edited(&found).unwrap();
            prop_assert_eq!(&again, &first);
            let author = Author { lease: "ab".into(), ..Author::default() };
            bundle.install(author, &found, &again).unwrap();
            prop_assert_eq!(&std::fs::read(&file).unwrap(), &first);
        }
        bundle.restore(&"ab".into()).unwrap();
        prop_assert_eq!(std::fs::read(&file).unwrap(), original);
    }

    #[test]
    fn nothing_panics_whatever_stands_where(
        parts in prop::collection::vec((prop::sample::select(vec!["process", "linux", "hooks", "mounts", "annotations", "x"]), prop::collection::vec((prop::sample::select(vec!["env", "devices", "resources", "poststop", "namespaces", "user", "args"]), any_json()), 0..4), any_json(), any::<bool>()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut config = Map::new();
        for (key, inner, value, as_object) in parts {
            let inner: Map<String, Value> = inner.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            config.insert(key.to_owned(), if as_object { inner.into() } else { value });
        }
        let text = Value::from(config).to_string();
        for bytes in [text.as_bytes(), &noise, &text.as_bytes()[..text.len() / 2]] {
            let _ = edited(bytes);
            let _ = strip(bytes, &numbers());
            let _ = peek(bytes);
            let _ = Document::parse(bytes).map(|document| uses_user_namespace(&document));
        }
    }
}
