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
pub use near::is_near_word;
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
    let Some(asked) = applicable(&ours, who.container_name.as_deref())? else {
        return Ok(None);
    };
    let wait = match get(&ours, WAIT)? {
        None => None,
        Some(text) => Some(duration(text).map_err(|why| {
            Error::new(format!("annotation {WAIT}: {why}")).hint(match share::number(text) {
                Some(_) => format!("write {}s", text.trim()),
                None => "write it as 30s or 2m".to_owned(),
            })
        })?),
    };
    let compute_slices = get(&ours, COMPUTE)?;
    let (key, wanted) = match &asked {
        Applicable::One(Asked { kind, key, value }) => (
            key,
            match kind {
                Kind::Slice => slices(key, value, compute_slices)?.map(Wanted::Slices),
                Kind::Share => share(key, value, compute_slices)?,
                Kind::Gpu => gpus(key, value, compute_slices)?,
            },
        ),
        Applicable::Seat { slice, share } => (&share.key, seat(slice, share, compute_slices)?),
    };
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let shared_in = scope(get(&ours, SCOPE)?, &who)?;
    if let (Some(_), Wanted::Share(_) | Wanted::Seat(_)) = (&shared_in, &wanted) {
        return Err(Error::new(format!(
            "annotation {SCOPE}: \"pod\" shares one slice or GPU, and {} asks for a share of a {}",
            shown(key),
            if let Wanted::Seat(_) = wanted {
                "slice"
            } else {
                "GPU"
            }
        ))
        .hint("take the scope away: each container has a share of its own"));
    }
    if let (Some(_), Some(several)) = (&shared_in, wanted.several()) {
        return Err(Error::new(format!(
            "annotation {SCOPE}: \"pod\" shares one {}, and {several} in {} asks for several",
            wanted.noun(),
            shown(key)
        ))
        .hint(match wanted {
            Wanted::Slices(_) => "ask for one larger slice, or take the scope away",
            Wanted::Share(_) | Wanted::Seat(_) | Wanted::Gpus(_) => {
                "ask for 1, or take the scope away"
            }
        }));
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

fn slices(key: &str, value: &str, compute_slices: Option<&str>) -> Result<Option<Slices>> {
    let Some(alternatives) = alternatives(value).map_err(|e| named(key, e))? else {
        return Ok(None);
    };
    let min_compute = match compute_slices {
        None => 0,
        Some(text) => compute(text, key, &alternatives)?,
    };
    Ok(Some(Slices {
        alternatives,
        min_compute,
    }))
}

/// A share of one slice. The number of compute slices is the slice's.
fn seat(
    slice: &Asked<'_>,
    share: &Asked<'_>,
    compute_slices: Option<&str>,
) -> Result<Option<Wanted>> {
    let slices = slices(&slice.key, slice.value, compute_slices)?;
    let sizes = share::sizes(share.value).map_err(|e| named(&share.key, e))?;
    let (Some(slices), false) = (slices, sizes.is_empty()) else {
        return Ok(None);
    };
    if let Some(several) = slices.alternatives.iter().find(|a| a.count() > 1) {
        let (slice, share) = (shown(&slice.key), shown(&share.key));
        return Err(Error::new(format!(
            "{slice} asks for several slices ({several}), and {share} for a share of one"
        ))
        .hint("ask for a share of one slice, or for several slices without a share"));
    }
    Ok(Some(Wanted::Seat(Seat { slices, sizes })))
}

fn share(key: &str, value: &str, compute_slices: Option<&str>) -> Result<Option<Wanted>> {
    let sizes = share::sizes(value).map_err(|e| named(key, e))?;
    match compute_slices {
        _ if sizes.is_empty() => Ok(None),
        None => Ok(Some(Wanted::Share(sizes))),
        Some(_) => Err(without_compute(
            key,
            "a share of a GPU: shares take turns, each with the whole GPU",
        )),
    }
}

fn gpus(key: &str, value: &str, compute_slices: Option<&str>) -> Result<Option<Wanted>> {
    let Some(count) = slice::count(value).map_err(|e| named(key, e))? else {
        return Ok(None);
    };
    match compute_slices {
        None => Ok(Some(Wanted::Gpus(count))),
        Some(_) => Err(without_compute(key, "a whole GPU")),
    }
}

/// Returns the error of a number of compute slices beside a request that has none.
fn without_compute(key: &str, what: &str) -> Error {
    let key = shown(key);
    let why = format!("annotation {COMPUTE} counts compute slices, and {key} asks for {what}");
    Error::new(why).hint(format!("take {COMPUTE} away"))
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
            "annotation {SCOPE}: unknown scope \"{}\"",
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
            "annotation {COMPUTE}: \"{}\" is not a number of compute slices",
            printable(text)
        ))
        .hint("write it as a whole number: 2")
    })?;
    let slices = alternatives.iter().flat_map(Alternative::all);
    match { slices }.find_map(|s| s.has_fewer_than(least)) {
        None => Ok(least),
        Some(name) => Err(Error::new(format!(
            "annotation {COMPUTE} asks for at least {least} compute slices, and {name} in {} has {}",
            shown(key),
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
        Err(_) if share::number(text).is_some() => {
            Err(format!("\"{}\" has no unit", printable(text)))
        }
        Err(_) => Err(format!("\"{}\" is not a duration", printable(text))),
    }
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

fn named(key: &str, e: Error) -> Error {
    Error::new(format!("annotation {}", shown(key))).caused_by(e)
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
        return Err(Error::new(format!(
            "annotation {} is {} bytes long, more than {MAX_VALUE}",
            shown(key),
            value.len()
        )));
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
        return Err(Error::new(format!(
            "annotation {key} contradicts itself: \"{first}\" and \"{other}\""
        )));
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
        KINDS
            .into_iter()
            .find(|kind| key.starts_with(kind.prefix()))
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
    pub kind: Kind,
    pub key: String,
    pub value: &'a str,
}

/// The annotations that count for a container.
#[derive(Debug)]
enum Applicable<'a> {
    /// One kind.
    One(Asked<'a>),
    /// A slice and a share of it.
    Seat { slice: Asked<'a>, share: Asked<'a> },
}

/// Returns the annotations that count for a container. A key that names the container wins over the pod's
/// keys of any kind. Returns none if each kind is absent or `none`.
///
/// # Errors
/// Two kinds for one container, and keys that no container can have.
fn applicable<'a>(
    ours: &[(&'a str, &'a str)],
    name: Option<&str>,
) -> Result<Option<Applicable<'a>>> {
    let per_container = ours
        .iter()
        .find_map(|(key, _)| Some((key, Kind::of_one(key)?)));
    if let (Some((key, kind)), None) = (per_container, name) {
        let key = shown(key);
        return Err(Error::new(format!(
            "annotation {key} is for a container by name, but the engine gave this one no name"
        ))
        .hint(format!("use {}", kind.key())));
    }
    let (is_own, all) = for_container(ours, name)?;
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
    let mut wanting = all.into_iter().filter(|asked| asked.value.trim() != "none");
    match (wanting.next(), wanting.next(), wanting.next()) {
        (None, ..) => Ok(None),
        (Some(one), None, _) => Ok(Some(Applicable::One(one))),
        (Some(slice), Some(share), None)
            if (slice.kind, share.kind) == (Kind::Slice, Kind::Share) =>
        {
            Ok(Some(Applicable::Seat { slice, share }))
        }
        (Some(one), Some(_), Some(other)) | (Some(one), Some(other), None) => {
            Err(beside(&one, &other, is_own || name.is_none()))
        }
    }
}

fn beside(one: &Asked<'_>, other: &Asked<'_>, is_own: bool) -> Error {
    let (one, other) = (shown(&one.key), shown(&other.key));
    Error::new(format!(
        "annotation {one} cannot stand beside {other}: one container gets one kind of GPU"
    ))
    .hint(match is_own {
        true => "take one of them away",
        false => "take one of them away, or give each container of the pod a key of its own",
    })
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

impl Seat {
    /// Returns the request for people: `share of 1/4 of 3g.40gb`.
    pub fn written(&self) -> String {
        let slices = slice::written(&self.slices.alternatives);
        format!("share of {} of {slices}", slice::written(&self.sizes))
    }
}

impl Wanted {
    /// Returns the request for people: `1g.10gb,20Gi`, `share of 8Gi,1/4` or `2 GPUs`.
    pub fn written(&self) -> String {
        match self {
            Wanted::Slices(slices) => slice::written(&slices.alternatives),
            Wanted::Share(sizes) => format!("share of {}", slice::written(sizes)),
            Wanted::Seat(seat) => seat.written(),
            Wanted::Gpus(1) => "1 GPU".to_owned(),
            Wanted::Gpus(n) => format!("{n} GPUs"),
        }
    }

    /// Returns the part that asks for more than one slice or GPU.
    fn several(&self) -> Option<String> {
        match self {
            Wanted::Slices(slices) => {
                let mut all = slices.alternatives.iter();
                all.find(|a| a.count() > 1).map(Alternative::to_string)
            }
            Wanted::Share(_) | Wanted::Seat(_) | Wanted::Gpus(1) => None,
            Wanted::Gpus(n) => Some(n.to_string()),
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Wanted::Slices(_) => "slice",
            Wanted::Share(_) | Wanted::Seat(_) => "share",
            Wanted::Gpus(_) => "GPU",
        }
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
