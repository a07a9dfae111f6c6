//! Annotations to a request. Every key is named here and nowhere else.

use crate::error::{Error, Result, printable};
use std::fmt;
use std::time::Duration;

pub const SLICE: &str = "runmig.dev/slice";
pub const WAIT: &str = "runmig.dev/wait";
pub const SCOPE: &str = "runmig.dev/scope";
/// `slice.runmig.dev/<container>`: a Kubernetes key has one `/` at most.
pub const SLICE_OF: &str = "slice.runmig.dev/";
const DOMAIN: &str = "runmig.dev/";
const KEYS: [&str; 3] = [SLICE, WAIT, SCOPE];

/// Engines give up after minutes. More than this is a slip of the pen, or meant to overflow a clock.
pub const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A profile list or an amount is a few words; what is longer is no request.
const MAX_VALUE: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub slice: Slice,
    /// How long to wait for room; none: as configured.
    pub wait: Option<Duration>,
    /// The pod whose containers have the slice together; none: it is this container's alone.
    pub shared_in: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slice {
    /// `1g.10gb`
    Profile(String),
    /// The smallest profile that has so many bytes.
    Memory(u64),
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slice::Profile(name) => f.write_str(name),
            Slice::Memory(bytes) => {
                let units = [
                    (1u64 << 40, "Ti"),
                    (1 << 30, "Gi"),
                    (1 << 20, "Mi"),
                    (1 << 10, "Ki"),
                ];
                match units.iter().find(|(size, _)| bytes % size == 0) {
                    Some((size, unit)) => write!(f, "{}{unit}", bytes / size),
                    None => write!(f, "{bytes}"),
                }
            }
        }
    }
}

/// Who the container is, in the words of the engine that called. For people; nothing is decided by
/// it but which per-container key applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub pod_uid: Option<String>,
    pub container_name: Option<String>,
    pub sandbox: bool,
    /// What tells the pod from every other: its sandbox's id, else its namespace and uid.
    pub pod_key: Option<String>,
}

/// `None`: this container does not ask.
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
    let shared_in = scope(get(&ours, SCOPE)?, &who)?;
    Ok(slice(value)
        .map_err(|e| named(&key, e))?
        .map(|slice| Request {
            slice,
            wait,
            shared_in,
        }))
}

/// Whose the slice is: the container's, or every container's of the pod that says the same.
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
        return Err(
            Error::new(format!("unknown annotation {}", printable(&shorten(key)))).hint(format!(
                "this version knows {}",
                [&KEYS[..], &["slice.runmig.dev/<container>"]]
                    .concat()
                    .join(", ")
            )),
        );
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
        return Err(Error::new(format!("annotation {key} without {SLICE}"))
            .hint(format!("add {SLICE}, or take {key} away")));
    }
    Ok(slice.map(|value| (SLICE.to_owned(), value)))
}

/// `none` gives `None`.
pub fn slice(value: &str) -> Result<Option<Slice>> {
    let text = value.trim();
    let wrong = |why: &str| {
        Error::new(format!("\"{}\" {why}", printable(value)))
            .hint("ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none")
    };
    if text == "none" {
        return Ok(None);
    }
    if text.is_empty() {
        return Err(wrong("asks for nothing"));
    }
    if is_profile_name(text) {
        return Ok(Some(Slice::Profile(text.to_owned())));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let size: u64 = match unit {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "" if digits > 0 => {
            return Err(wrong("has no unit"));
        }
        _ => return Err(wrong("is neither a profile nor an amount of memory")),
    };
    if digits == 0 {
        return Err(wrong("is neither a profile nor an amount of memory"));
    }
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(size));
    match bytes {
        Some(0) => Err(wrong("is no memory at all")),
        Some(bytes) => Ok(Some(Slice::Memory(bytes))),
        None => Err(wrong("is more memory than can be counted")),
    }
}

/// `<n>g.<n>gb` with attributes such as `+me`, `-me`, `+gfx`, `+me.all`.
fn is_profile_name(text: &str) -> bool {
    fn number(text: &str) -> Option<&str> {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        (rest.len() < text.len()).then_some(rest)
    }
    let Some(rest) = number(text)
        .and_then(|t| t.strip_prefix("g."))
        .and_then(number)
    else {
        return false;
    };
    let Some(attributes) = rest.strip_prefix("gb") else {
        return false;
    };
    attributes.is_empty()
        || (attributes.len() > 1
            && attributes.starts_with(['+', '-'])
            && attributes
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b"+-.".contains(&b)))
}

/// The engines' own annotations (containerd, CRI-O, podman, nerdctl).
pub fn identity(annotations: &[(String, String)]) -> Result<Identity> {
    let one = |keys: &[&str]| -> Result<Option<String>> {
        let mut found: Option<(&str, &str)> = None;
        for (key, value) in annotations
            .iter()
            .filter(|(k, _)| keys.contains(&k.as_str()))
        {
            match found {
                Some((first, text)) if text != value => {
                    return Err(Error::new(format!(
                        "annotations {first} and {key} contradict each other: \"{}\" and \"{}\"",
                        printable(&shorten(text)),
                        printable(&shorten(value))
                    )));
                }
                _ => found = Some((key, value)),
            }
        }
        Ok(found.map(|(_, value)| value.chars().take(MAX_VALUE).collect()))
    };
    let kind = one(&[
        "io.kubernetes.cri.container-type",
        "io.kubernetes.cri-o.ContainerType",
    ])?;
    let namespace = one(&[
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.pod.namespace",
        "nerdctl/namespace",
    ])?;
    let pod_uid = one(&["io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"])?;
    let sandbox_id = one(&[
        "io.kubernetes.cri.sandbox-id",
        "io.kubernetes.cri-o.SandboxID",
    ])?;
    // An empty one would make one pod of many.
    let is_said = |text: &&String| !text.is_empty();
    let pod_key = match (sandbox_id.as_ref(), pod_uid.as_ref()) {
        (Some(id), _) if is_said(&id) => Some(format!("sandbox {id}")),
        (_, Some(uid)) if is_said(&uid) => {
            let namespace = namespace.as_deref().unwrap_or_default();
            Some(format!("pod {namespace}/{uid}"))
        }
        _ => None,
    };
    Ok(Identity {
        namespace,
        pod_key,
        pod: one(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"])?,
        pod_uid,
        container_name: one(&[
            "io.kubernetes.cri.container-name",
            "io.kubernetes.container.name",
            "nerdctl/name",
        ])?,
        sandbox: kind.as_deref() == Some("sandbox"),
    })
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
    fn profiles_and_amounts() {
        for name in [
            "1g.10gb",
            "1g.10gb+me",
            "1g.24gb-me",
            "1g.24gb+me.all",
            "4g.96gb+gfx",
        ] {
            assert_eq!(slice(name).unwrap(), Some(Slice::Profile(name.into())));
        }
        assert_eq!(slice("20Gi").unwrap(), Some(Slice::Memory(20 << 30)));
        assert_eq!(slice(" 5000Mi ").unwrap(), Some(Slice::Memory(5000 << 20)));
        assert_eq!(slice("none").unwrap(), None);
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for bad in [
            "",
            "0Gi",
            "-1",
            "20",
            "1.5Gi",
            "g.10gb",
            "1g.10",
            "1g.10gb+",
            "all",
            "Gi",
            "1g.10gb,2g.20gb",
            "99999999999999999999Gi",
            "18446744073709551615Gi",
            "1g.10gb\n",
        ] {
            if bad == "1g.10gb\n" {
                assert!(slice(bad).unwrap().is_some(), "a final newline is trimmed");
                continue;
            }
            assert!(slice(bad).is_err(), "{bad}");
        }
        assert_eq!(
            refused(&[(SLICE, "0Gi")]),
            "annotation runmig.dev/slice: \"0Gi\" is no memory at all; hint: ask for a profile \
             (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"
        );
    }

    #[test]
    fn the_key_of_the_container_wins() {
        let name = ("io.kubernetes.cri.container-name", "web");
        let both = [(SLICE, "1g.10gb"), ("slice.runmig.dev/web", "20Gi"), name];
        assert_eq!(
            parse_pairs(&both).unwrap().unwrap().slice,
            Slice::Memory(20 << 30)
        );
        let nothing = [(SLICE, "1g.10gb"), ("slice.runmig.dev/web", "none"), name];
        assert_eq!(parse_pairs(&nothing).unwrap(), None);
        let other = [("slice.runmig.dev/db", "1g.10gb"), name];
        assert_eq!(parse_pairs(&other).unwrap(), None);
    }

    #[test]
    fn a_sandbox_is_left_alone_whatever_it_carries() {
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
    fn who_seems_to_ask_is_never_passed_over() {
        assert!(
            refused(&[("runmig.dev/slcie", "1g.10gb")])
                .contains("unknown annotation runmig.dev/slcie")
        );
        assert!(refused(&[("slice.runmig.dev/web", "1g.10gb")]).contains("gave this one no name"));
        assert!(refused(&[(WAIT, "30s")]).contains("without runmig.dev/slice"));
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
    fn a_scope_needs_a_pod() {
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
        let alone = parse_pairs(&[pod, sandbox]).unwrap_err().line();
        assert!(alone.contains("annotation runmig.dev/scope without runmig.dev/slice"));
    }

    #[test]
    fn a_container_without_our_keys_does_not_ask() {
        assert_eq!(
            parse_pairs(&[("org.example/slice", "1g.10gb")]).unwrap(),
            None
        );
    }

    proptest::proptest! {
        #[test]
        fn no_value_ever_panics(text in ".{0,300}") {
            let _ = parse_pairs(&[(SLICE, &text), ("io.kubernetes.container.name", "a")]);
        }

        #[test]
        fn an_amount_is_printed_as_it_can_be_read(bytes in 1u64..u64::MAX) {
            let printed = Slice::Memory(bytes).to_string();
            if printed.ends_with('i') {
                proptest::prop_assert_eq!(slice(&printed).unwrap(), Some(Slice::Memory(bytes)));
            }
        }
    }
}
