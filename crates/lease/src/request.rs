//! Annotations to a request. Every key is named here and nowhere else.

use crate::error::{Error, Result, printable};
use std::time::Duration;

mod engine;
mod slice;

pub use engine::{Deadline, Engine, Identity, Image, ImageAnnotations, believed, identity};

pub(crate) use slice::MAX_COUNT;
pub use slice::{Alternative, Slice, alternatives, memory, written};

/// The annotation with the requested slices, such as `1g.10gb` or `10Gi`.
pub const SLICE: &str = "runmig.dev/slice";
/// The annotation with the least number of compute slices.
pub const COMPUTE: &str = "runmig.dev/compute";
/// The annotation with the time to wait for room, such as `30s`.
pub const WAIT: &str = "runmig.dev/wait";
pub(crate) const SCOPE: &str = "runmig.dev/scope";
/// The prefix of annotations for one container of a pod: `slice.runmig.dev/<container>`.
pub const SLICE_OF: &str = "slice.runmig.dev/";
const DOMAIN: &str = "runmig.dev/";
const KEYS: [&str; 4] = [SLICE, COMPUTE, WAIT, SCOPE];
/// The prefixes of our keys, as `features` writes them: a prefix ends with a dot there.
pub const PREFIXES: [&str; 2] = ["runmig.", "slice.runmig."];

/// Engines give up after minutes. More than this is a slip of the pen, or meant to overflow a clock.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A profile list or an amount is a few words; what is longer is no request.
const MAX_VALUE: usize = 256;

/// A container's request for slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The alternatives in order of preference, at least one. The first that fits is chosen.
    pub alternatives: Vec<Alternative>,
    /// The least number of compute slices of each slice, or 0.
    pub min_compute: u32,
    /// The time to wait for room. Without one the configuration's counts.
    pub wait: Option<Duration>,
    /// The deadline of the engine, if it is known.
    pub deadline: Option<Deadline>,
    /// The pod whose containers share the slice. Without one the container has it alone.
    pub shared_in: Option<String>,
}

/// Returns the request in a container's annotations, or none if the container requests nothing.
///
/// # Errors
/// An unknown key of runmig, a value that cannot be read, and keys that contradict each other.
pub fn parse(annotations: &[(String, String)]) -> Result<Option<Request>> {
    let ours: Vec<(&str, &str)> = annotations
        .iter()
        .filter(|(key, _)| is_ours(key))
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    if ours.is_empty() {
        return Ok(None);
    }
    let who = identity(annotations)?;
    if who.sandbox {
        return Ok(None);
    }
    for (key, value) in &ours {
        check(key, value)?;
    }
    let Some((key, value)) = applicable(&ours, who.container_name.as_deref())? else {
        return Ok(None);
    };
    let wait = match get(&ours, WAIT)? {
        None => None,
        Some(text) => Some(duration(text).map_err(|why| {
            Error::new(format!("annotation {WAIT}: {why}")).hint("write it as 30s or 2m")
        })?),
    };
    let Some(alternatives) = alternatives(value).map_err(|e| named(&key, e))? else {
        return Ok(None);
    };
    let min_compute = match get(&ours, COMPUTE)? {
        None => 0,
        Some(text) => compute(text, &key, &alternatives)?,
    };
    let shared_in = scope(get(&ours, SCOPE)?, &who)?;
    if let (Some(_), Some(several)) = (&shared_in, alternatives.iter().find(|a| a.count > 1)) {
        return Err(Error::new(format!(
            "annotation {SCOPE}: \"pod\" shares one slice, and {several} in {} asks for several",
            printable(&shorten(&key))
        ))
        .hint("ask for one larger slice, or take the scope away"));
    }
    Ok(Some(Request {
        alternatives,
        min_compute,
        wait,
        deadline: engine::deadline(annotations),
        shared_in,
    }))
}

/// Returns the pod that shares the slice, or none if it is the container's alone.
fn scope(value: Option<&str>, who: &Identity) -> Result<Option<String>> {
    match value.map(str::trim) {
        None | Some("container") => Ok(None),
        Some("pod") => match &who.pod_key {
            Some(pod) => Ok(Some(pod.clone())),
            None => Err(Error::new(format!(
                "annotation {SCOPE}: \"pod\", but the engine names no pod that this container is in"
            ))
            .hint("put the container into a pod, or take the annotation away")),
        },
        Some(other) => Err(Error::new(format!(
            "annotation {SCOPE}: \"{}\" is no scope",
            printable(other)
        ))
        .hint("write pod or container")),
    }
}

/// A least number of compute slices, beside requests that can have it.
fn compute(text: &str, key: &str, alternatives: &[Alternative]) -> Result<u32> {
    let least = text.trim().parse().ok().filter(|n| (1..=64).contains(n));
    let least: u32 = least.ok_or_else(|| {
        Error::new(format!(
            "annotation {COMPUTE}: \"{}\" is no number of compute slices",
            printable(text)
        ))
        .hint("write it as a whole number: 2")
    })?;
    let slices = alternatives.iter().map(|a| &a.slice);
    match { slices }.find_map(|s| s.has_fewer_than(least)) {
        None => Ok(least),
        Some(name) => Err(Error::new(format!(
            "annotation {COMPUTE} asks for at least {least} compute slices, and {name} in {} has {}",
            printable(&shorten(key)),
            name.gpu_slices
        ))
        .hint(format!("ask for a larger profile, or take {COMPUTE} away"))),
    }
}

/// A time to wait, here and in the configuration.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time > MAX_WAIT => Err(format!("\"{}\" is more than a day", printable(text))),
        Ok(time) => Ok(time),
        Err(e) => Err(format!("\"{}\" is no duration: {e}", printable(text))),
    }
}

/// Whether a key is one of ours at all: the cheap question that every create is asked.
pub fn is_ours(key: &str) -> bool {
    key.starts_with(DOMAIN) || key.starts_with(SLICE_OF)
}

fn named(key: &str, e: Error) -> Error {
    Error::new(format!("annotation {}", printable(&shorten(key)))).caused_by(e)
}

fn check(key: &str, value: &str) -> Result<()> {
    if key.starts_with(DOMAIN) && !KEYS.contains(&key) {
        return Err(Error::new(format!(
            "annotation {} is unknown",
            printable(&shorten(key))
        ))
        .hint(format!(
            "this version knows {}",
            [&KEYS[..], &["slice.runmig.dev/<container>"]]
                .concat()
                .join(", ")
        )));
    }
    if value.len() > MAX_VALUE {
        return Err(Error::new(format!(
            "annotation {} is {} bytes long, more than {MAX_VALUE}",
            printable(&shorten(key)),
            value.len()
        )));
    }
    Ok(())
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The value of a key; a key that stands there twice must say the same twice.
fn get<'a>(ours: &[(&'a str, &'a str)], key: &str) -> Result<Option<&'a str>> {
    let mut values = ours.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v);
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if let Some(other) = values.find(|v| *v != first) {
        return Err(Error::new(format!(
            "annotation {} contradicts itself: \"{}\" and \"{}\"",
            printable(&shorten(key)),
            printable(first),
            printable(other)
        )));
    }
    Ok(Some(first))
}

fn applicable<'a>(
    ours: &[(&'a str, &'a str)],
    name: Option<&str>,
) -> Result<Option<(String, &'a str)>> {
    let per_container = ours.iter().find(|(key, _)| key.starts_with(SLICE_OF));
    if let (Some((key, _)), None) = (per_container, name) {
        return Err(Error::new(format!(
            "annotation {} is for a container by name, but the engine gave this one no name",
            printable(&shorten(key))
        ))
        .hint(format!("use {SLICE}")));
    }
    if let Some(name) = name {
        let key = format!("{SLICE_OF}{name}");
        if let Some(value) = get(ours, &key)? {
            return Ok(Some((key, value)));
        }
    }
    let slice = get(ours, SLICE)?;
    if slice.is_none() && per_container.is_none() {
        let key = ours.first().map_or(WAIT, |(key, _)| *key);
        return Err(Error::new(format!("annotation {key} needs {SLICE}"))
            .hint(format!("add {SLICE}, or take {key} away")));
    }
    Ok(slice.map(|value| (SLICE.to_owned(), value)))
}

#[cfg(test)]
mod tests {
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
        let asked = parse_pairs(&both).unwrap().unwrap().alternatives;
        assert_eq!(written(&asked), "20Gi");
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
        assert!(
            refused(&[("runmig.dev/slcie", "1g.10gb")])
                .contains("annotation runmig.dev/slcie is unknown")
        );
        assert!(refused(&[("slice.runmig.dev/web", "1g.10gb")]).contains("gave this one no name"));
        assert!(refused(&[(WAIT, "30s")]).contains("needs runmig.dev/slice"));
        assert!(refused(&[(SLICE, "1g.10gb"), (WAIT, "soon")]).contains("\"soon\" is no duration"));
        // Added to the clock it would overflow.
        let endless = [(SLICE, "1g.10gb"), (WAIT, "500000000000years")];
        assert!(refused(&endless).contains("is more than a day"));
        assert!(refused(&[(SLICE, "1g.10gb"), (SLICE, "2g.20gb")]).contains("contradicts itself"));
        let names = [
            (SLICE, "1g.10gb"),
            ("io.kubernetes.cri.container-name", "a"),
            ("io.kubernetes.container.name", "b"),
        ];
        assert!(refused(&names).contains("contradict each other"));
        let huge = "x".repeat(10 << 20);
        assert!(refused(&[(SLICE, &huge)]).len() < 200);
        let long_key = format!("slice.runmig.dev/{huge}");
        assert!(refused(&[(&long_key, "1g.10gb")]).len() < 300);
        let years = refused(&[(SLICE, "1g.10gb"), (WAIT, "300000000000years")]);
        assert!(years.contains("is more than a day"), "{years}");
        let escape = refused(&[(SLICE, "\x1b[2J\0")]);
        assert!(!escape.contains('\x1b') && escape.contains("\\u{1b}[2J\\u{0}"));
    }

    #[test]
    fn parses_least_compute_slices() {
        let with = |slice, compute| parse_pairs(&[(SLICE, slice), (COMPUTE, compute)]);
        assert_eq!(with("20Gi", "2").unwrap().unwrap().min_compute, 2);
        assert_eq!(
            with("3g.40gb,2g.20gb", " 2 ").unwrap().unwrap().min_compute,
            2
        );
        assert_eq!(with("none", "2").unwrap(), None);
        let line = |slice, compute| with(slice, compute).unwrap_err().line();
        assert_eq!(
            line("20Gi,1g.10gb+me", "2"),
            "annotation runmig.dev/compute asks for at least 2 compute slices, and 1g.10gb+me in \
             runmig.dev/slice has 1; hint: ask for a larger profile, or take runmig.dev/compute away"
        );
        for bad in ["", "0", "two", "-1", "1.5", "99", "99999999999999999999"] {
            assert!(
                line("20Gi", bad).contains("is no number of compute slices"),
                "{bad}"
            );
        }
        assert!(refused(&[(COMPUTE, "2")]).contains("runmig.dev/compute needs runmig.dev/slice"));
    }

    #[test]
    fn parses_waits() {
        let engine = |more: &[(&str, &str)]| {
            let all = [&[(SLICE, "1g.10gb")], more].concat();
            let deadline = parse_pairs(&all).unwrap().unwrap().deadline;
            deadline.map(|d| (d.engine, d.longest_wait.as_secs()))
        };
        let kind = |key| engine(&[(key, "container")]);
        assert_eq!(
            kind("io.kubernetes.cri.container-type"),
            Some(("containerd", 90))
        );
        assert_eq!(
            kind("io.kubernetes.cri-o.ContainerType"),
            Some(("CRI-O", 90))
        );
        assert_eq!(
            engine(&[("io.container.manager", "cri-o")]),
            Some(("CRI-O", 90))
        );
        let podman = [
            ("io.container.manager", "libpod"),
            ("io.kubernetes.cri-o.SandboxID", "1"),
        ];
        assert_eq!(engine(&podman), None);
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
        assert!(refused(&[(SCOPE, "node")]).contains("\"node\" is no scope"));
        let two = parse_pairs(&[(SLICE, "7g.80gb,1g.10gb*2"), pod, sandbox]);
        assert_eq!(
            two.unwrap_err().line(),
            "annotation runmig.dev/scope: \"pod\" shares one slice, and 1g.10gb*2 in runmig.dev/slice \
             asks for several; hint: ask for one larger slice, or take the scope away"
        );
        let alone = parse_pairs(&[pod, sandbox]).unwrap_err().line();
        assert!(alone.contains("annotation runmig.dev/scope needs runmig.dev/slice"));
    }

    #[test]
    fn ignores_containers_without_our_keys() {
        assert_eq!(
            parse_pairs(&[("org.example/slice", "1g.10gb")]).unwrap(),
            None
        );
    }

    proptest::proptest! {
        #[test]
        fn never_panics_on_a_value(text in ".{0,300}") {
            let _ = parse_pairs(&[(SLICE, &text), ("io.kubernetes.container.name", "a")]);
        }
    }
}
