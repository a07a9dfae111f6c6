//! The invariants of every input from others. libFuzzer calls these with its own inputs, and
//! `tests/core/fuzz_seeds.rs` with the seeds and mutations of them, so that stable checks them too.

use runmig::fuzzing;
use runmig::runtime::args::{self, Family};
use runmig::spec::{self, CgroupManager, Document, Grant, HookCommand, Source};
use runmig_lease::cdi::Edits;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use runmig_lease::process::OwnCgroup;
use runmig_lease::request;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

#[path = "reading.rs"]
pub mod reading;
#[path = "texts.rs"]
pub mod texts;

pub type Target = fn(&[u8]);

pub const ALL: [(&str, Target); 10] = [
    ("annotations", annotations),
    ("arguments", arguments),
    ("cdi", cdi),
    ("config", config),
    ("configuration", configuration),
    ("hook", hook),
    ("machine", texts::machine),
    ("reading", reading::reading),
    ("record", record),
    ("versions", texts::versions),
];

/// An error ends at a terminal and in a log, as one line of a length that can be read.
fn told(e: &Error) {
    let line = e.line();
    assert!(!line.chars().any(char::is_control), "{line:?}");
    assert!(line.len() <= 32 * 1024, "{} bytes", line.len());
}

/// The value, if there is one; else what is said of it is looked at.
fn or_told<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(told).ok()
}

/// Lines of `key=value`, as the annotations of a container.
pub fn annotations(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let all: Vec<(String, String)> = text
        .split('\n')
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.replace('\u{1}', "\n")))
        .collect();
    if let Some(who) = or_told(request::identity(&all)) {
        let words = [who.namespace, who.pod, who.pod_uid, who.container_name];
        assert!(words.iter().flatten().all(|w| w.chars().count() <= 256));
    }
    let asks = all.iter().any(|(key, _)| request::is_ours(key));
    let Some(Some(asked)) = or_told(request::parse(&all)) else {
        return;
    };
    assert!(asks);
    let is_odd =
        |slice: &request::Slice| matches!(slice, request::Slice::Memory(b) if b % 1024 != 0);
    let odd = |a: &request::Alternative| a.all().any(is_odd);
    match asked.wanted {
        request::Wanted::Slices(slices) if !slices.alternatives.iter().any(odd) => {
            let again = request::alternatives(&request::written(&slices.alternatives));
            assert_eq!(again.unwrap(), slices.alternatives);
        }
        request::Wanted::Slices(_) => {}
        request::Wanted::Seat(seat) => {
            assert!(!seat.sizes.is_empty());
            assert!(seat.slices.alternatives.iter().all(|a| a.count() == 1));
        }
        request::Wanted::Share(sizes) => {
            let written: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            let again = vec![(request::SHARE.to_owned(), written.join(","))];
            let again = request::parse(&again).unwrap().map(|r| r.wanted);
            assert_eq!(again, Some(request::Wanted::Share(sizes)));
        }
        request::Wanted::Gpus(count) => assert!((1..=64).contains(&count)),
    }
    // As a create counts the end of its wait.
    let _ = std::time::Instant::now() + asked.wait.unwrap_or_default();
}

/// A word a line.
pub fn arguments(bytes: &[u8]) {
    let words: Vec<OsString> = bytes
        .split(|b| *b == b'\n')
        .map(|word| OsString::from_vec(word.to_owned()))
        .collect();
    for family in [Family::Runc, Family::Crun] {
        let _ = args::parse(family, &words);
    }
}

/// The arguments on the first line, the state behind it.
pub fn hook(bytes: &[u8]) {
    let end = bytes.iter().position(|b| *b == b'\n');
    let (first, state) = bytes.split_at(end.unwrap_or(bytes.len()));
    let words: Vec<OsString> = first
        .split(|b| *b == b' ')
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_owned()))
        .collect();
    or_told(fuzzing::hook(&words, state));
}

/// A record as it lies on disk, and the same with the header that its hash asks for.
pub fn record(bytes: &[u8]) {
    or_told(fuzzing::record(bytes));
    for framed in fuzzing::records_of_body(bytes) {
        if let Some(record) = or_told(fuzzing::record(&framed)) {
            let written = fuzzing::record_bytes(&record);
            let again = fuzzing::record(&written).unwrap_or_else(|e| panic!("{e:?}"));
            assert_eq!(again, record);
            assert_eq!(fuzzing::record_bytes(&again), written);
        }
    }
}

pub fn cdi(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for json in [false, true] {
        let Some(Some(files)) = or_told(fuzzing::cdi_specification(text, json)) else {
            continue;
        };
        assert!(
            files
                .env
                .iter()
                .all(|e| e.find('=').is_some_and(|at| at > 0))
        );
        assert!(files.mounts.iter().all(|m| m.container_path.is_absolute()));
        assert!(files.hooks.iter().all(|hook| hook.path.is_absolute()));
        // The container gets only the slice, whatever the input says.
        let plain = br#"{"process":{},"linux":{}}"#;
        edited(plain, &files);
        // Without one of its own, a hook could get the image's (CVE-2025-23266).
        if let Ok(bytes) = edit(plain, &files) {
            let config: Value = serde_json::from_slice(&bytes).unwrap();
            let lists = config["hooks"].as_object().into_iter().flatten();
            let mut hooks = lists.flat_map(|(_, hooks)| list(hooks));
            assert!(hooks.all(|hook| !list(&hook["env"]).is_empty()), "{config}");
        }
    }
}

pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Some(config) = or_told(Config::parse(text)) else {
        return;
    };
    assert!(config.state_dir.is_absolute() && config.driver.root.is_absolute());
    assert!(config.runtime.is_none_or(|runtime| runtime.is_absolute()));
    let _ = std::time::Instant::now() + config.wait + config.lock_timeout;
}

pub fn config(bytes: &[u8]) {
    or_told(spec::peek(bytes));
    if let Some(document) = or_told(Document::parse(bytes)) {
        spec::uses_user_namespace(&document);
        cgroup(&document);
    }
    or_told(spec::strip(bytes, &numbers()));
    let _ = fuzzing::sidecar(bytes.to_vec());
    edited(bytes, &Edits::default());
}

/// A cgroup path that is told beforehand leads from the hierarchy's root and nowhere up.
fn cgroup(document: &Document) {
    for (is_crun, is_systemd) in [(false, false), (false, true), (true, false), (true, true)] {
        let manager = CgroupManager {
            is_crun,
            is_systemd,
            own: Some(OwnCgroup::V1("/own".into())),
        };
        if let Some(path) = spec::cgroup(document, "id", &manager).path {
            assert!(path.starts_with('/'), "{path}");
            assert!(path.split('/').all(|part| part != ".."), "{path}");
        }
    }
}

fn edited(original: &[u8], driver: &Edits) {
    let Some(once) = or_told(edit(original, driver)) else {
        return;
    };
    assert!(spec::peek(&once).unwrap().marked, "it carries our hook");
    only_the_slice(&once);
    let twice = edit(&once, driver).unwrap_or_else(|e| panic!("an edit of an edit: {e:?}"));
    assert!(twice == once, "an edit of an edit is another");
    let stripped = spec::strip(&once, &numbers()).unwrap_or_else(|e| panic!("strip: {e:?}"));
    assert!(!spec::peek(&stripped).unwrap().marked, "the hook is out");
    // It grants the same; the order of env may differ.
    only_the_slice(&edit(&stripped, driver).unwrap_or_else(|e| panic!("after strip: {e:?}")));
}

const MAJORS: [u32; 3] = [195, 507, 511];
const DRM: (u32, u32) = (226, 1);
const UUID: &str = "MIG-3a2f1c9e-0000-5000-8000-000000000001";

fn numbers() -> NvidiaNumbers {
    NvidiaNumbers {
        majors: MAJORS.to_vec(),
        drm: vec![DRM],
    }
}

fn nodes() -> Vec<DeviceNode> {
    let node = |path: &str, major, minor| DeviceNode {
        path: path.into(),
        major,
        minor,
        mode: 0o666,
    };
    vec![
        node("/dev/nvidiactl", 195, 255),
        node("/dev/nvidia0", 195, 0),
        node("/dev/nvidia-uvm", 507, 0),
        node("/dev/nvidia-caps/nvidia-cap12", 511, 12),
    ]
}

/// A host where `/n/195:4` is that device, whatever else is called what.
fn host(path: &Path) -> Result<Source> {
    let number = |path: &Path| {
        let (major, minor) = path.to_str()?.strip_prefix("/n/")?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    Ok(match number(path) {
        Some((major, minor)) => Source::CharDevice { major, minor },
        None if path == Path::new("/dev") => Source::Dev,
        None if path.starts_with("/proc/driver") => Source::Driver,
        None if path.starts_with("/gone") => Source::Absent,
        None => Source::Other,
    })
}

/// The edit that gives it the slice of these targets.
pub fn edit(original: &[u8], driver: &Edits) -> Result<Vec<u8>> {
    let (nodes, numbers) = (nodes(), numbers());
    let grant = Grant {
        door: Some(std::path::Path::new("/run/runmig/mps/1/door")),
        uuids: &[UUID],
        nodes: &nodes,
        hook: HookCommand {
            path: "/usr/local/bin/runmig-hook".into(),
            leases: vec!["4f2a".into()],
            args: vec![],
            limits: false,
        },
        driver,
        numbers: &numbers,
        share: None,
    };
    spec::edit(Document::parse(original)?, &grant, &host).map(|edited| edited.bytes)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> Option<u32> {
    value.as_i64().and_then(|n| u32::try_from(n).ok())
}

fn foreign(major: u32, minor: u32) -> bool {
    let ours = |n: &DeviceNode| (n.major, n.minor) == (major, minor);
    (MAJORS.contains(&major) || (major, minor) == DRM) && !nodes().iter().any(ours)
}

/// Judged by the specification's own reading of the rules, written down here again: whatever the
/// file said, the container opens the slice and no other device of NVIDIA's, and none is in it.
fn only_the_slice(config: &[u8]) {
    let config: Value = serde_json::from_slice(config).unwrap();
    let rules = list(&config["linux"]["resources"]["devices"]);
    let mut minors: Vec<u32> = rules.iter().filter_map(|r| number(&r["minor"])).collect();
    minors.extend([0, 1, 2, 12, 13, 254, 255, 4_000_000]);
    for major in MAJORS.into_iter().chain([DRM.0]) {
        for minor in &minors {
            let opens = ["r", "w", "rw"]
                .iter()
                .any(|w| allows(rules, major, *minor, w));
            assert!(!(opens && foreign(major, *minor)), "{major}:{minor}");
        }
    }
    for node in nodes() {
        assert!(allows(rules, node.major, node.minor, "rw"), "{node:?}");
        let devices = list(&config["linux"]["devices"]);
        let here = devices
            .iter()
            .filter(|d| d["path"] == *node.path.to_str().unwrap());
        assert_eq!(here.count(), 1, "{node:?}");
    }
    for device in list(&config["linux"]["devices"]) {
        let char_device = !matches!(device["type"].as_str(), Some("b" | "p"));
        let (major, minor) = (number(&device["major"]), number(&device["minor"]));
        let is_foreign = foreign(major.unwrap_or(0), minor.unwrap_or(0));
        assert!(!(char_device && is_foreign), "{device}");
    }
    for mount in list(&config["mounts"]) {
        let source = mount["source"].as_str().unwrap_or_default();
        let bind = mount["type"] == "bind"
            || list(&mount["options"])
                .iter()
                .any(|o| o == "bind" || o == "rbind");
        if let (true, Ok(Source::CharDevice { major, minor })) = (bind, host(source.as_ref())) {
            assert!(!foreign(major, minor), "{mount}");
        }
    }
    let env = list(&config["process"]["env"]);
    let visible = |e: &&Value| {
        e.as_str()
            .is_some_and(|e| e.starts_with("NVIDIA_VISIBLE_DEVICES="))
    };
    let visible: Vec<&Value> = env.iter().filter(visible).collect();
    assert_eq!(
        visible,
        [&Value::from(format!("NVIDIA_VISIBLE_DEVICES={UUID}"))]
    );
}

/// In order, the last rule that matches.
fn allows(rules: &[Value], major: u32, minor: u32, wanted: &str) -> bool {
    let mut allowed = false;
    for rule in rules {
        let kind = matches!(rule["type"].as_str(), None | Some("" | "a" | "c" | "u"));
        let said = rule["access"].as_str().unwrap_or_default();
        // Some take a rule without an access for all, where it allows.
        let access = if said.is_empty() && rule["allow"] == true {
            "rwm"
        } else {
            said
        };
        let matches = number(&rule["major"]).is_none_or(|m| m == major)
            && number(&rule["minor"]).is_none_or(|m| m == minor)
            && wanted.chars().all(|c| access.contains(c));
        if kind && matches {
            allowed = rule["allow"] == true;
        }
    }
    allowed
}
