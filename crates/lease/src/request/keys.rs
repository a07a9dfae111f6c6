//! The keys that ask for something, one pair for each kind of request.

use super::{GPU, GPU_OF, SHARE, SHARE_OF, SLICE, SLICE_OF, WAIT, get, shorten};
use crate::error::{Error, Result, printable};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Slice,
    Share,
    Gpu,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Slice, Kind::Share, Kind::Gpu];

impl Kind {
    /// Returns the key for a container, or for all containers of a pod.
    fn key(self) -> &'static str {
        match self {
            Kind::Slice => SLICE,
            Kind::Share => SHARE,
            Kind::Gpu => GPU,
        }
    }

    /// Returns the prefix of the keys for one container of a pod.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Kind::Slice => SLICE_OF,
            Kind::Share => SHARE_OF,
            Kind::Gpu => GPU_OF,
        }
    }
}

/// The annotation that counts for a container.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub kind: Kind,
    pub key: String,
    pub value: &'a str,
}

/// The annotations that count for a container.
#[derive(Debug)]
pub(super) enum Applicable<'a> {
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
pub(super) fn applicable<'a>(
    ours: &[(&'a str, &'a str)],
    name: Option<&str>,
) -> Result<Option<Applicable<'a>>> {
    let is_per_container = |key: &str| KINDS.iter().any(|kind| key.starts_with(kind.prefix()));
    let per_container = ours.iter().find(|(key, _)| is_per_container(key));
    if let (Some((key, _)), None) = (per_container, name) {
        let kind = KINDS
            .into_iter()
            .find(|kind| key.starts_with(kind.prefix()));
        return Err(Error::new(format!(
            "annotation {} is for a container by name, but the engine gave this one no name",
            printable(&shorten(key))
        ))
        .hint(format!("use {}", kind.map_or(SLICE, Kind::key))));
    }
    let own = |kind: Kind| name.map(|name| format!("{}{name}", kind.prefix()));
    let own = asked(ours, own)?;
    let (is_own, all) = match own.is_empty() {
        false => (true, own),
        true => (false, asked(ours, |kind| Some(kind.key().to_owned()))?),
    };
    if all.is_empty() && per_container.is_none() {
        let key = ours.first().map_or(WAIT, |(key, _)| *key);
        return Err(
            Error::new(format!("annotation {key} needs {SLICE}, {SHARE} or {GPU}"))
                .hint(format!("add {SLICE}, {SHARE} or {GPU}, or take {key} away")),
        );
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
            Err(beside(&one, &other, is_own))
        }
    }
}

fn beside(one: &Asked<'_>, other: &Asked<'_>, is_own: bool) -> Error {
    Error::new(format!(
        "annotation {} cannot stand beside {}: one container gets one kind of GPU",
        printable(&shorten(&one.key)),
        printable(&shorten(&other.key))
    ))
    .hint(match is_own {
        true => "take one of them away",
        false => "take one of them away, or give each container of the pod a key of its own",
    })
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
