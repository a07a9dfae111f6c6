//! What a container asks for by CDI devices, such as `runmig.dev/slice=1g.10gb`.

use super::{
    DOMAIN, GPU, MAX_VALUE, SEPARATORS, SHARE, SLICE, WAIT, duration, for_container, identity,
    ours, share, shown, slice,
};
use crate::error::{Error, Result};
use humantime::format_duration;
use std::collections::BTreeSet;
use std::fmt;

pub const DEVICE_KINDS: [&str; 4] = [SLICE, SHARE, GPU, WAIT];

/// A device, by what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRequest {
    /// The annotation that asks for the same.
    pub key: &'static str,
    /// The value of that annotation.
    pub value: String,
}

impl DeviceRequest {
    /// Returns the request with a value that is the same for all that mean the same.
    fn plain(key: &'static str, value: &str) -> DeviceRequest {
        let plain = match key {
            SLICE => { slice::alternatives(value).ok() }.map(|all| slice::written(&all)),
            SHARE => { share::sizes(value).ok() }.map(|sizes| slice::written(&sizes)),
            WAIT => { duration(value).ok() }.map(|time| format_duration(time).to_string()),
            _ => None,
        };
        DeviceRequest {
            key,
            value: plain.unwrap_or_else(|| value.trim().to_owned()),
        }
    }

    /// Returns the argument of the device's hook, as `device_request` reads it.
    pub fn argument(&self) -> String {
        let kind = self.key.strip_prefix(DOMAIN).unwrap_or(self.key);
        format!("{kind}={}", self.value)
    }
}

impl fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, device_name(&shown(&self.value)))
    }
}

/// Returns the request in the argument of a device's hook, `slice=1g.10gb`; none for others.
pub fn device_request(argument: &str) -> Option<DeviceRequest> {
    let (kind, value) = argument.split_once('=')?;
    let of_kind = |key: &&&str| key.strip_prefix(DOMAIN) == Some(kind);
    let key = DEVICE_KINDS.iter().find(of_kind)?;
    let is_value = !value.is_empty() && value.len() <= MAX_VALUE && value.trim() != "none";
    is_value.then(|| DeviceRequest {
        key,
        value: value.to_owned(),
    })
}

/// Returns the name of a device for a value. CDI has no `+`, `*` and `/` in names: `1g.10gb.me`, `2x1g.10gb`, `1of4`.
pub fn device_name(value: &str) -> String {
    let one = |value: &str| match value.split_once('*') {
        Some((slice, count)) => format!("{count}x{slice}"),
        None => value.replace('/', "of"),
    };
    let all: Vec<String> = value.split(slice::AND).map(one).collect();
    all.join("&").replace('+', ".")
}

/// Returns the annotations with those of the devices. Equal requests are one, since engines repeat a device.
///
/// # Errors
/// Requests that contradict each other, a sandbox, and a container of a Kubernetes pod unless `in_pods`: only device plugins and DRA
/// drivers name devices there.
pub fn with_devices(
    mut annotations: Vec<(String, String)>,
    devices: &[DeviceRequest],
    in_pods: bool,
) -> Result<Vec<(String, String)>> {
    let Some(first) = devices.first() else {
        return Ok(annotations);
    };
    let who = identity(&annotations)?;
    if who.sandbox {
        return Err(Error::new(format!(
            "device {first} is given to the pod's sandbox, which runs no program of the user's"
        ))
        .hint("give the device to a container"));
    }
    let of_pod = |(key, _): &(String, String)| {
        key.starts_with("io.kubernetes.cri.") || key.starts_with("io.kubernetes.pod.")
    };
    let is_in_pod = who.pod.is_some() || who.pod_uid.is_some() || annotations.iter().any(of_pod);
    if is_in_pod && !in_pods {
        return Err(Error::new(format!(
            "a container of a pod asks by device {first}, which the pod's author cannot have named"
        ))
        .hint(format!(
            "annotate the pod with {}, or set policy.cdi_in_pods = true for a device plugin that names runmig's devices",
            first.key
        )));
    }
    let names = |(_, value): &&(String, String)| {
        let mut kinds = DEVICE_KINDS.iter();
        kinds.any(|kind| value.contains(&format!("{kind}=")))
    };
    if let (Some((key, _)), false) = (annotations.iter().find(names), is_in_pod) {
        return Err(Error::new(format!(
            "cannot tell whether the user or the image asks: annotation {} names a CDI device of runmig",
            shown(key)
        ))
        .hint("remove the annotation, and let the engine call runmig without nvidia-container-runtime"));
    }
    let asked = together(devices)?;
    let ours = ours(&annotations);
    let (_, kinds) = for_container(&ours, who.container_name.as_deref())?;
    let kinds = { kinds.iter() }.map(|asked| DeviceRequest::plain(asked.kind.key(), asked.value));
    let waits = ours.iter().filter(|(key, _)| *key == WAIT);
    let waits = waits.map(|(_, value)| DeviceRequest::plain(WAIT, value));
    let said: BTreeSet<DeviceRequest> = kinds.chain(waits).collect();
    // What is to be given and the time to wait are each said in one place, or twice alike.
    for is_wait in [false, true] {
        let [by_device, by_annotation] = [&asked, &said].map(|all| {
            let part = all.iter().filter(|one| (one.key == WAIT) == is_wait);
            part.collect::<Vec<_>>()
        });
        let differ = match by_device.is_empty() {
            true => !is_wait && by_annotation.iter().all(|one| one.value == "none"),
            false => by_device != by_annotation,
        };
        if let (Some(other), true) = (by_annotation.first(), differ) {
            let device = by_device.first().copied().unwrap_or(first);
            let said = format!("annotation {}: \"{}\"", other.key, shown(&other.value));
            return Err(two(device, &said));
        }
    }
    let new = asked.difference(&said).cloned();
    annotations.extend(new.map(|one| (one.key.to_owned(), one.value)));
    Ok(annotations)
}

/// Returns what devices ask for together. Different slices are one request for all of them.
fn together(devices: &[DeviceRequest]) -> Result<BTreeSet<DeviceRequest>> {
    let mut all: Vec<DeviceRequest> = Vec::new();
    let plain = { devices.iter() }.map(|one| DeviceRequest::plain(one.key, &one.value));
    for device in plain.collect::<BTreeSet<_>>() {
        let Some(known) = all.iter_mut().find(|known| known.key == device.key) else {
            all.push(device);
            continue;
        };
        let value = format!("{}{}{}", known.value, slice::AND, device.value);
        if known.key != SLICE || value.contains(SEPARATORS) {
            return Err(two(known, &format!("device {device}")));
        }
        *known = DeviceRequest::plain(SLICE, &value);
    }
    Ok(all.into_iter().collect())
}

fn two(one: &DeviceRequest, other: &str) -> Error {
    let why = format!("the container has two requests: device {one}, and {other}");
    Error::new(why).hint("remove one of them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::parse;

    const NAME: (&str, &str) = ("io.kubernetes.container.name", "web");
    const POD: (&str, &str) = ("io.kubernetes.pod.uid", "u");

    fn told(annotations: &[(&str, &str)], devices: &[&str], in_pods: bool) -> Result<String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let annotations = annotations.iter().map(own).collect();
        let devices: Vec<_> = { devices.iter() }
            .map(|argument| device_request(argument).unwrap())
            .collect();
        let request = parse(&with_devices(annotations, &devices, in_pods)?)?;
        let request = request.expect("a request");
        Ok(match request.wait {
            Some(wait) => format!("{} for {}s", request.wanted.written(), wait.as_secs()),
            None => request.wanted.written(),
        })
    }

    #[test]
    fn device_asks_as_the_annotation_does() {
        for (annotations, devices, wanted) in rows! {
            &[][..], &["slice=1g.10gb"][..] => "1g.10gb";
            &[], &["slice=1g.10gb+me", "slice=1g.10gb+me"] => "1g.10gb+me";
            &[], &["slice=1g.10gb*2", "wait=5m"] => "1g.10gb*2 for 300s";
            &[], &["slice=1g.10gb", "slice=2g.20gb"] => "2g.20gb&1g.10gb";
            &[(SLICE, " 1g.10gb*2&3g.40gb")], &["slice=3g.40gb", "slice=1g.10gb*2", "slice=3g.40gb"] =>
                "3g.40gb&1g.10gb*2";
            &[(SLICE, "1g.10gb*1")], &["slice=1g.10gb"] => "1g.10gb";
            &[], &["share=1/4"] => "1/4";
            &[], &["gpu=2"] => "2";
            &[(SLICE, "1g.10gb ")], &["slice=1g.10gb"] => "1g.10gb";
            &[(SLICE, "1g.10gb")], &["wait=30s"] => "1g.10gb for 30s";
            &[(WAIT, "30s")], &["slice=1g.10gb"] => "1g.10gb for 30s";
            &[(SLICE, "1g.10gb"), (WAIT, "60s")], &["slice=1g.10gb", "wait=1m"] => "1g.10gb for 60s";
            &[(SHARE, "8192Mi,1/4")], &["share=8Gi|1/4"] => "8Gi";
            &[NAME, ("slice.runmig.dev/web", "1g.10gb")], &["slice=1g.10gb"] => "1g.10gb";
            &[NAME, ("slice.runmig.dev/db", "7g.80gb")], &["slice=1g.10gb"] => "1g.10gb";
        } {
            let said = told(annotations, devices, false).unwrap();
            assert!(said.contains(wanted), "{said}: {wanted}");
        }
        let seat = told(&[], &["slice=3g.40gb", "share=8Gi"], false).unwrap();
        assert!(seat.contains("3g.40gb") && seat.contains("8Gi"), "{seat}");
    }

    #[test]
    fn refuses_two_requests() {
        let two = "the container has two requests: device runmig.dev/";
        for (annotations, devices, why) in rows! {
            &[][..], &["slice=1g.10gb,2g.20gb", "slice=3g.40gb"][..] =>
                "slice=1g.10gb,2g.20gb, and device runmig.dev/slice=3g.40gb";
            &[(SLICE, "1g.10gb*2&2g.20gb")], &["slice=1g.10gb", "slice=2g.20gb"] =>
                "slice=2g.20gb&1g.10gb, and annotation runmig.dev/slice: \"2g.20gb&1g.10gb*2\"";
            &[(SLICE, "1g.10gb")], &["slice=1g.10gb*2", "slice=2g.20gb"] =>
                "slice=2g.20gb&2x1g.10gb, and annotation runmig.dev/slice: \"1g.10gb\"";
            &[], &["gpu=1", "gpu=2"] => "gpu=1, and device runmig.dev/gpu=2";
            &[], &["wait=1m", "slice=1g.10gb", "wait=2m"] => "wait=1m, and device runmig.dev/wait=2m";
            &[(SLICE, "2g.20gb")], &["slice=1g.10gb"] =>
                "slice=1g.10gb, and annotation runmig.dev/slice: \"2g.20gb\"";
            &[(SLICE, "none")], &["slice=1g.10gb"] => "slice=1g.10gb, and annotation runmig.dev/slice: \"none\"";
            &[(SLICE, "none")], &["gpu=1"] => "gpu=1, and annotation runmig.dev/slice: \"none\"";
            &[(SLICE, "3g.40gb")], &["share=1/4"] => "share=1of4, and annotation runmig.dev/slice: \"3g.40gb\"";
            &[(SLICE, "3g.40gb")], &["slice=3g.40gb", "share=8Gi"] =>
                "share=8Gi, and annotation runmig.dev/slice: \"3g.40gb\"";
            &[NAME, ("slice.runmig.dev/web", "2g.20gb")], &["slice=1g.10gb"] =>
                "slice=1g.10gb, and annotation runmig.dev/slice: \"2g.20gb\"";
            &[(SLICE, "1g.10gb"), (WAIT, "1m")], &["wait=2m"] => "wait=2m, and annotation runmig.dev/wait: \"1m\"";
        } {
            let line = told(annotations, devices, false).unwrap_err().line();
            assert!(line.starts_with(&format!("{two}{why}; ")), "{line}");
        }
        let line = |annotations: &[(&str, &str)], devices: &[&str]| {
            told(annotations, devices, false).unwrap_err().line()
        };
        assert!(told(&[], &["slice=1g.10gb", "gpu=1"], false).is_err());
        let named = ("cdi.k8s.io/x", "runmig.dev/slice=1g.10gb");
        let of_image = line(&[named], &["slice=1g.10gb"]);
        assert!(
            of_image.contains("annotation cdi.k8s.io/x names"),
            "{of_image}"
        );
        assert!(told(&[named, POD], &["slice=1g.10gb"], true).is_ok());
        assert!(told(&[], &["wait=1m"], false).is_err());
        let none = line(&[(SLICE, "none")], &["wait=1m"]);
        assert!(none.contains("runmig.dev/slice: \"none\""), "{none}");
    }

    #[test]
    fn pods_ask_by_annotation() {
        let asked =
            |annotations: &[(&str, &str)], in_pods| told(annotations, &["slice=1g.10gb"], in_pods);
        let line = asked(&[POD], false).unwrap_err().line();
        assert!(
            line.contains("annotate the pod with runmig.dev/slice"),
            "{line}"
        );
        let sandbox = ("io.kubernetes.cri.container-type", "sandbox");
        let line = asked(&[POD, sandbox], true).unwrap_err().line();
        assert!(line.contains("the pod's sandbox"), "{line}");
        assert_eq!(asked(&[POD], true).unwrap(), "1g.10gb");
    }

    #[test]
    fn reads_the_argument_that_it_writes() {
        for argument in ["slice=1g.10gb*2", "share=1/4", "gpu=2", "wait=5m"] {
            let device = device_request(argument).unwrap();
            assert_eq!(device.argument(), argument);
        }
    }
}
