//! Annotations to a request. Every key is named here and nowhere else.

mod device;
mod engine;
mod near;
mod share;
mod slice;
#[cfg(test)]
mod tests;

pub use device::{DEVICE_KINDS, DeviceRequest, device_name, device_request, with_devices};
pub use engine::{
    Besides, Deadline, Engine, Identity, Image, ImageAnnotations, believed, deadline, identity,
};
pub use near::is_one_off;
pub(crate) use near::nearest;
pub(crate) use share::LEAST_MIB;
pub use share::ShareSize;
pub(crate) use slice::MAX_COUNT;
pub use slice::{Alternative, Slice, alternatives, memory, written};

use crate::error::{Error, Result, printable};
use crate::model::ProfileName;
use serde::Deserialize;
use std::time::Duration;

/// The annotation with the requested slices, such as `1g.10gb` or `10Gi`.
pub const SLICE: &str = "runmig.dev/slice";
/// The annotation with the least number of compute slices.
pub const COMPUTE: &str = "runmig.dev/compute";
/// The annotation with the time to wait for room, such as `30s`.
pub const WAIT: &str = "runmig.dev/wait";
pub(crate) const SCOPE: &str = "runmig.dev/scope";
/// The prefix of annotations for one container of a pod: `slice.runmig.dev/<container>`.
pub const SLICE_OF: &str = "slice.runmig.dev/";
/// The annotation with the requested number of whole GPUs.
pub const GPU: &str = "runmig.dev/gpu";
/// The prefix of annotations for one container of a pod: `gpu.runmig.dev/<container>`.
pub const GPU_OF: &str = "gpu.runmig.dev/";
/// The annotation with the requested share of a GPU's memory, such as `8Gi` or `1/4`.
pub const SHARE: &str = "runmig.dev/share";
/// The prefix of annotations for one container of a pod: `share.runmig.dev/<container>`.
pub const SHARE_OF: &str = "share.runmig.dev/";
const DOMAIN: &str = "runmig.dev/";
const KEYS: [&str; 6] = [SLICE, SHARE, GPU, COMPUTE, WAIT, SCOPE];
/// The prefixes of our keys, as `features` writes them: a prefix ends with a dot there.
pub const PREFIXES: [&str; 4] = ["runmig.", "slice.runmig.", "share.runmig.", "gpu.runmig."];

/// What separates alternatives. podman before 4.4 splits its `--annotation` at commas.
const SEPARATORS: [char; 2] = [',', '|'];

/// Engines give up after minutes. More than this is a slip of the pen, or meant to overflow a clock.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A profile list or an amount is a few words; what is longer is no request.
const MAX_VALUE: usize = 256;

/// A container's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The wanted slices, share or GPUs.
    pub wanted: Wanted,
    /// The time to wait for room. Without one the configuration's counts.
    pub wait: Option<Duration>,
    /// The deadline of the engine, if it is known.
    pub deadline: Option<Deadline>,
    /// The pod whose containers share the slice or GPU. Without one the container has it alone.
    pub shared_in: Option<String>,
    /// Why the container cannot reach an MPS daemon, if it cannot.
    pub no_mps: Option<String>,
}

/// Returns the request in a container's annotations, or none if the container requests nothing.
///
/// # Errors
/// An unknown key of runmig, a value that cannot be read, and keys that contradict each other.
pub fn parse(annotations: &[(String, String)]) -> Result<Option<Request>> {
    let ours = ours(annotations);
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
    let asked = applicable(&ours, who.container_name.as_deref())?;
    let [one, more @ ..] = asked.as_slice() else {
        return Ok(None);
    };
    let wait = get(&ours, WAIT)?.map(wait).transpose()?;
    let compute_slices = get(&ours, COMPUTE)?;
    let wanted = match (one.kind, more.first()) {
        (_, Some(of_it)) => seat(one, of_it, compute_slices)?,
        (Kind::Slice, None) => Wanted::Slices(slices(one, compute_slices)?),
        (Kind::Share, None) => share(one, compute_slices)?,
        (Kind::Gpu, None) => gpus(one, compute_slices)?,
    };
    let shared_in = scope(get(&ours, SCOPE)?, &who)?;
    if shared_in.is_some() {
        wanted.check_scope(&more.first().unwrap_or(one).key)?;
    }
    Ok(Some(Request {
        no_mps: None,
        wanted,
        wait,
        deadline: engine::deadline(annotations),
        shared_in,
    }))
}

fn ours(annotations: &[(String, String)]) -> Vec<(&str, &str)> {
    let ours = annotations.iter().filter(|(key, _)| may_ask(key));
    ours.map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

fn wait(text: &str) -> Result<Duration> {
    duration(text).map_err(|why| {
        Error::new(format!("annotation {WAIT}: {why}")).hint(match share::number(text) {
            Some(_) => format!("write {}s", text.trim()),
            None => "write it as 30s or 2m".to_owned(),
        })
    })
}

fn slices(asked: &Asked<'_>, compute_slices: Option<&str>) -> Result<Slices> {
    let alternatives = alternatives(asked.value).map_err(|e| asked.failed(e))?;
    let min_compute = match compute_slices {
        None => 0,
        Some(text) => compute(text, &asked.key, &alternatives)?,
    };
    Ok(Slices {
        alternatives,
        min_compute,
    })
}

/// A share of one slice. The number of compute slices is the slice's.
fn seat(slice: &Asked<'_>, share: &Asked<'_>, compute_slices: Option<&str>) -> Result<Wanted> {
    let slices = slices(slice, compute_slices)?;
    let sizes = share::sizes(share.value).map_err(|e| share.failed(e))?;
    if let Some(several) = slices.several() {
        let (slice, share) = (shown(&slice.key), shown(&share.key));
        return Err(Error::new(format!(
            "{slice} asks for several slices ({several}), and {share} for a share of one"
        ))
        .hint("ask for a share of one slice, or for several slices without a share"));
    }
    Ok(Wanted::Seat(Seat { slices, sizes }))
}

fn share(asked: &Asked<'_>, compute_slices: Option<&str>) -> Result<Wanted> {
    let sizes = share::sizes(asked.value).map_err(|e| asked.failed(e))?;
    let what = "a share of a GPU: shares take turns, each with the whole GPU";
    without(compute_slices, &asked.key, what)?;
    Ok(Wanted::Share(sizes))
}

fn gpus(asked: &Asked<'_>, compute_slices: Option<&str>) -> Result<Wanted> {
    let count = slice::count(asked.value).map_err(|e| asked.failed(e))?;
    without(compute_slices, &asked.key, "a whole GPU")?;
    Ok(Wanted::Gpus(count))
}

/// Refuses a number of compute slices beside a request that has none.
fn without(compute_slices: Option<&str>, key: &str, what: &str) -> Result<()> {
    if compute_slices.is_none() {
        return Ok(());
    }
    let key = shown(key);
    let why = format!("annotation {COMPUTE} counts compute slices, and {key} asks for {what}");
    Err(Error::new(why).hint(format!("take {COMPUTE} away")))
}

/// Returns the pod that shares the slice, or none if it is the container's alone.
fn scope(value: Option<&str>, who: &Identity) -> Result<Option<String>> {
    let (why, hint) = match (value.map(str::trim), &who.pod_key) {
        (None | Some("container"), _) => return Ok(None),
        (Some("pod"), Some(pod)) => return Ok(Some(pod.clone())),
        (Some("pod"), None) => (
            "\"pod\", but the engine names no pod that this container is in".to_owned(),
            "put the container into a pod, or take the annotation away",
        ),
        (Some(other), _) => (
            format!("unknown scope \"{}\"", printable(other)),
            "write pod or container",
        ),
    };
    Err(Error::new(format!("annotation {SCOPE}: {why}")).hint(hint))
}

/// A least number of compute slices, beside requests that can have it.
fn compute(text: &str, key: &str, alternatives: &[Alternative]) -> Result<u32> {
    let least = text.trim().parse().ok().filter(|n| (1..=64).contains(n));
    let least: u32 = least.ok_or_else(|| {
        let text = printable(text);
        let why = format!("annotation {COMPUTE}: \"{text}\" is not a number of compute slices");
        Error::new(why).hint("write it as a whole number: 2")
    })?;
    let mut slices = alternatives.iter().flat_map(Alternative::all);
    let Some(name) = slices.find_map(|s| s.has_fewer_than(least)) else {
        return Ok(least);
    };
    let (key, has) = (shown(key), name.gpu_slices);
    Err(Error::new(format!(
        "annotation {COMPUTE} asks for at least {least} compute slices, and {name} in {key} has {has}"
    ))
    .hint(format!("ask for a larger profile, or take {COMPUTE} away")))
}

/// A time to wait, here and in the configuration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let why = match humantime::parse_duration(text) {
        Ok(time) if time <= MAX_WAIT => return Ok(time),
        Ok(_) => "is more than a day",
        Err(_) if share::number(text).is_some() => "has no unit",
        Err(_) => "is not a duration",
    };
    Err(format!("\"{}\" {why}", printable(text)))
}

/// Says whether a key is below our domain.
pub fn is_ours(key: &str) -> bool {
    let host = key.split_once('/').map_or(key, |(host, _)| host);
    let before = host.strip_suffix(DOMAIN.trim_end_matches('/'));
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Says whether a key asks, or was meant to: the cheap question that every create is asked. A create refuses a near
/// miss, so that no container starts without the slice that its user meant.
pub fn may_ask(key: &str) -> bool {
    is_ours(key) || near::is_near(key)
}

/// Returns the key by which a container asks for itself, or says `none`.
///
/// # Errors
/// Annotations of the engine, or of one key, that contradict each other.
pub fn own_key(annotations: &[(String, String)]) -> Result<Option<String>> {
    let name = identity(annotations)?.container_name;
    let (_, asked) = for_container(&ours(annotations), name.as_deref())?;
    Ok(asked.into_iter().next().map(|asked| asked.key))
}

fn check(key: &str, value: &str) -> Result<()> {
    if !KEYS.contains(&key) && Kind::of_one(key).is_none() {
        let meant = near::meant(key);
        let hint = match meant.is_empty() {
            false => format!("write {}", shown(&meant.join(" or "))),
            true => format!(
                "this version knows {}, and slice., share. or gpu.{DOMAIN}<container>",
                KEYS.join(", ")
            ),
        };
        let unknown = format!("annotation {} is unknown", shown(key));
        return Err(Error::new(unknown).hint(hint));
    }
    if value.len() > MAX_VALUE {
        let (key, length) = (shown(key), value.len());
        let why = format!("annotation {key} is {length} bytes long, more than {MAX_VALUE}");
        return Err(Error::new(why).hint("make it shorter"));
    }
    Ok(())
}

/// Returns the start of somebody else's text, for an error.
fn shown(text: &str) -> String {
    printable(&text.chars().take(80).collect::<String>())
}

/// The value of a key; a key that stands there twice must say the same twice.
fn get<'a>(ours: &[(&'a str, &'a str)], key: &str) -> Result<Option<&'a str>> {
    let mut values = ours.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v);
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if let Some(other) = values.find(|v| *v != first) {
        let (key, first, other) = (shown(key), printable(first), printable(other));
        let why = format!("annotation {key} contradicts itself: \"{first}\" and \"{other}\"");
        return Err(Error::new(why));
    }
    Ok(Some(first))
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// MIG slices.
    Slice,
    /// Shares of the memory of a GPU.
    Share,
    /// Whole GPUs.
    Gpu,
}

const KINDS: [Kind; 3] = [Kind::Slice, Kind::Share, Kind::Gpu];

impl Kind {
    /// Returns the key for a container, or for all containers of a pod.
    fn key(self) -> &'static str {
        match self {
            Kind::Slice => SLICE,
            Kind::Share => SHARE,
            Kind::Gpu => GPU,
        }
    }

    /// Returns the kind of a key for one container of a pod.
    fn of_one(key: &str) -> Option<Kind> {
        let is_it = |kind: &Kind| key.starts_with(kind.prefix());
        KINDS.into_iter().find(is_it)
    }

    /// Returns the prefix of the keys for one container of a pod.
    fn prefix(self) -> &'static str {
        match self {
            Kind::Slice => SLICE_OF,
            Kind::Share => SHARE_OF,
            Kind::Gpu => GPU_OF,
        }
    }
}

/// The annotation that counts for a container.
#[derive(Debug)]
struct Asked<'a> {
    kind: Kind,
    key: String,
    value: &'a str,
}

impl Asked<'_> {
    fn failed(&self, e: Error) -> Error {
        Error::new(format!("annotation {}", shown(&self.key))).caused_by(e)
    }
}

/// Returns the annotations that count for a container. A key that names the container wins over the pod's
/// keys of any kind. They are one of a kind, a slice and a share of it, or none if each kind is absent or `none`.
///
/// # Errors
/// Two kinds for one container, and keys that no container can have.
fn applicable<'a>(ours: &[(&'a str, &'a str)], name: Option<&str>) -> Result<Vec<Asked<'a>>> {
    let mut keys = ours.iter().map(|(key, _)| *key);
    let per_container = keys.find_map(|key| Some((key, Kind::of_one(key)?)));
    if let (Some((key, kind)), None) = (per_container, name) {
        let key = shown(key);
        return Err(Error::new(format!(
            "annotation {key} is for a container by name, but the engine gave this one no name"
        ))
        .hint(format!("use {}", kind.key())));
    }
    let (is_own, mut all) = for_container(ours, name)?;
    if all.is_empty() && per_container.is_none() {
        let key = ours.first().map_or(WAIT, |(key, _)| *key);
        let kinds = match key {
            COMPUTE => SLICE.to_owned(),
            SCOPE => format!("{SLICE} or {GPU}"),
            _ => format!("{SLICE}, {SHARE} or {GPU}"),
        };
        return Err(Error::new(format!("annotation {key} needs {kinds}"))
            .hint(format!("add {kinds}, or remove {key}")));
    }
    all.retain(|asked| asked.value.trim() != "none");
    if let [one, .., other] = all.as_slice()
        && (one.kind, other.kind) != (Kind::Slice, Kind::Share)
    {
        let (one, other) = (shown(&one.key), shown(&other.key));
        return Err(Error::new(format!(
            "annotation {one} cannot stand beside {other}: one container gets one kind of GPU"
        ))
        .hint(match is_own || name.is_none() {
            true => "take one of them away",
            false => "take one of them away, or give each container of the pod a key of its own",
        }));
    }
    Ok(all)
}

/// Returns what the annotations say for a container, also `none`, and whether its own keys say it. They win over those
/// for all containers.
fn for_container<'a>(
    ours: &[(&'a str, &'a str)],
    name: Option<&str>,
) -> Result<(bool, Vec<Asked<'a>>)> {
    let own = |kind: Kind| name.map(|name| format!("{}{name}", kind.prefix()));
    let own = asked(ours, own)?;
    match own.is_empty() {
        false => Ok((true, own)),
        true => Ok((false, asked(ours, |kind| Some(kind.key().to_owned()))?)),
    }
}

/// Returns the annotations that are there under the key of each kind.
fn asked<'a>(
    ours: &[(&'a str, &'a str)],
    key: impl Fn(Kind) -> Option<String>,
) -> Result<Vec<Asked<'a>>> {
    let mut all = Vec::new();
    for kind in KINDS {
        let Some(key) = key(kind) else { continue };
        if let Some(value) = get(ours, &key)? {
            all.push(Asked { kind, key, value });
        }
    }
    Ok(all)
}

/// The wanted part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// MIG slices.
    Slices(Slices),
    /// A share of one GPU's memory: the sizes in order of preference, at least one. The first that fits is
    /// chosen.
    Share(Vec<ShareSize>),
    /// A seat: a share of one slice.
    Seat(Seat),
    /// So many whole GPUs, at least 1.
    Gpus(u32),
}

/// The wanted slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slices {
    /// The alternatives in order of preference, at least one. The first that fits is chosen.
    pub alternatives: Vec<Alternative>,
    /// The least number of compute slices of each slice, or 0.
    pub min_compute: u32,
}

/// The wanted seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The slice, of which each alternative counts one.
    pub slices: Slices,
    /// The sizes of the share in order of preference, at least one.
    pub sizes: Vec<ShareSize>,
}

impl Slices {
    /// Returns the first alternative of several slices.
    fn several(&self) -> Option<String> {
        let mut all = self.alternatives.iter();
        all.find(|a| a.count() > 1).map(Alternative::to_string)
    }
}

impl Wanted {
    /// Returns the request for people: `1g.10gb,20Gi`, `share of 8Gi,1/4`, `share of 1/4 of 3g.40gb` or `2 GPUs`.
    pub fn written(&self) -> String {
        match self {
            Wanted::Slices(slices) => slice::written(&slices.alternatives),
            Wanted::Share(sizes) => format!("share of {}", slice::written(sizes)),
            Wanted::Seat(Seat { slices, sizes }) => {
                let slices = slice::written(&slices.alternatives);
                format!("share of {} of {slices}", slice::written(sizes))
            }
            Wanted::Gpus(1) => "1 GPU".to_owned(),
            Wanted::Gpus(n) => format!("{n} GPUs"),
        }
    }

    /// Refuses what the containers of a pod cannot share.
    fn check_scope(&self, key: &str) -> Result<()> {
        let key = shown(key);
        let share_of = |of: &str| {
            Err(Error::new(format!(
                "annotation {SCOPE}: \"pod\" shares one slice or GPU, and {key} asks for a share of a {of}"
            ))
            .hint("take the scope away: each container has a share of its own"))
        };
        let (noun, several, less) = match self {
            Wanted::Seat(_) => return share_of("slice"),
            Wanted::Share(_) => return share_of("GPU"),
            Wanted::Slices(slices) => ("slice", slices.several(), "one larger slice"),
            Wanted::Gpus(n) => ("GPU", (*n > 1).then(|| n.to_string()), "1"),
        };
        let Some(several) = several else {
            return Ok(());
        };
        Err(Error::new(format!(
            "annotation {SCOPE}: \"pod\" shares one {noun}, and {several} in {key} asks for several"
        ))
        .hint(format!("ask for {less}, or take the scope away")))
    }
}

/// Returns the kind of a request and its first profile from its words, which [`Wanted::written`] wrote into the queue.
/// The kinds are `slice`, `share`, `gpu` and `seat`. An amount of memory does not name a profile.
pub fn kind_of_written(request: &str) -> (&'static str, Option<String>) {
    let first = |alternatives: &str| {
        let first = alternatives.split([',', '*', slice::AND]).next()?;
        Some(first.parse::<ProfileName>().ok()?.to_string())
    };
    match request.strip_prefix("share of ") {
        Some(share) => match share.split_once(" of ") {
            Some((_, slices)) => ("seat", first(slices)),
            None => ("share", None),
        },
        None if request.ends_with(" GPU") || request.ends_with(" GPUs") => ("gpu", None),
        None => ("slice", first(request)),
    }
}
