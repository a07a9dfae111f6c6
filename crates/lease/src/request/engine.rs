//! The engine's description of a container beside its request: its identity, and the time that its
//! create may take. The keys are the engines' own (containerd, CRI-O, podman, nerdctl).

use super::{GPU, Kind, MAX_VALUE, SHARE, SLICE, is_ours, may_ask, shown};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::time::Duration;

const MANAGER: &str = "io.container.manager";
const PODMAN: &str = "libpod";
/// podman sets this one for the containers of a pod, and no other key of Kubernetes.
const SANDBOX_ID: &str = "io.kubernetes.cri-o.SandboxID";

/// The engine that made a container, by its records: an annotation may be an image's.
#[derive(Debug)]
pub enum Engine {
    /// podman before 4.5.1 makes the annotations of an image the container's.
    Podman(Image),
    /// Every other engine keeps an image's annotations out.
    Other,
}

/// The image of a container of podman's.
#[derive(Debug)]
pub enum Image {
    /// The annotations of its manifests, all that any of them has; empty without an image.
    Carries(Vec<(String, String)>),
    /// podman's records do not tell, and why.
    Unknown(Error),
}

impl Image {
    fn carries(&self, key: &str, value: &str) -> bool {
        match self {
            Image::Carries(annotations) => annotations.iter().any(|(k, v)| k == key && v == value),
            Image::Unknown(_) => false,
        }
    }

    fn may_carry(&self, key: &str, value: &str) -> bool {
        matches!(self, Image::Unknown(_)) || self.carries(key, value)
    }
}

/// Says whether an annotation counts that podman may have taken from the image
/// (`policy.image_annotations`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageAnnotations {
    /// runmig refuses the container.
    #[default]
    Refuse,
    /// The annotation counts as the user's.
    Allow,
}

/// What asks for the container besides its annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Besides {
    Nothing,
    /// The configuration of its runtime, if nobody else does: an image's `none` would take that away.
    Runtime,
    /// A CDI device, which no image can give it.
    Device,
}

/// Returns the annotations that the engine or the user set.
///
/// # Errors
/// An image may have set one that would count. Without it the container could start with another slice than
/// its user meant.
pub fn believed(
    mut annotations: Vec<(String, String)>,
    engine: Engine,
    rule: ImageAnnotations,
    besides: Besides,
) -> Result<Vec<(String, String)>> {
    let image = match engine {
        Engine::Podman(image) => image,
        // The author of a pod may write this, under CRI-O.
        Engine::Other => {
            annotations.retain(|(key, value)| (key.as_str(), value.as_str()) != (MANAGER, PODMAN));
            return Ok(annotations);
        }
    };
    annotations.retain(|(key, value)| match key.as_str() {
        SANDBOX_ID => !image.carries(key, value),
        MANAGER => false,
        key if key.starts_with("io.kubernetes.") || key.starts_with("nerdctl/") => false,
        key if Kind::of_one(key).is_some() => !image.carries(key, value),
        // It gives nothing, and its image may not have meant runmig at all.
        key if may_ask(key) && !is_ours(key) => !image.carries(key, value),
        _ => true,
    });
    annotations.push((MANAGER.to_owned(), PODMAN.to_owned()));
    if rule == ImageAnnotations::Allow {
        return Ok(annotations);
    }
    // The user has said by the device what the container gets.
    annotations.retain(|(key, value)| {
        !(besides == Besides::Device && is_ours(key) && image.carries(key, value))
    });
    let doubtful = |key: &str, value: &str| is_ours(key) && image.may_carry(key, value);
    // Otherwise `none` gives nothing, so it counts whether the user or the image said it.
    let is_kind = |key: &str| [SLICE, SHARE, GPU].contains(&key);
    let is_none = |key: &str, value: &str| is_kind(key) && value.trim() == "none";
    let asks = |key: &str, value: &str| is_kind(key) && !is_none(key, value);
    let is_asking = annotations.iter().any(|(key, value)| asks(key, value));
    if !is_asking && annotations.iter().any(|(key, value)| is_none(key, value)) {
        let mut nones = annotations.iter().filter(|(k, v)| is_none(k, v));
        let taken = nones.find(|(k, v)| besides == Besides::Runtime && doubtful(k, v));
        if let Some((key, value)) = taken {
            return Err(refused(key, value, image));
        }
        annotations.retain(|(key, value)| is_none(key, value) || !doubtful(key, value));
        return Ok(annotations);
    }
    // Beside a request of one kind, `none` of another gives and takes nothing.
    annotations.retain(|(key, value)| !is_none(key, value));
    let mut ours = annotations.iter().filter(|(key, _)| is_ours(key));
    match ours.find(|(key, value)| doubtful(key, value)) {
        None => Ok(annotations),
        Some((key, value)) => Err(refused(key, value, image)),
    }
}

fn refused(key: &str, value: &str, image: Image) -> Error {
    const ALLOW: &str = "policy.image_annotations = \"allow\"";
    let said = format!("annotation {} = \"{}\"", shown(key), shown(value));
    let cannot = |why| Error::new(format!("cannot tell whether {said} is the user's{why}"));
    let as_what = match key {
        _ if value.trim() == "none" => "what it is to have".to_owned(),
        GPU => format!("{GPU}=none for no GPU"),
        SHARE => format!("{SHARE}=none for no share"),
        _ => format!("{SLICE}=none for no slice"),
    };
    match image {
        Image::Carries(_) => cannot(": the image carries the same").hint(format!(
            "give the container this annotation with another value ({as_what}), or set {ALLOW} where \
             every image is trusted"
        )),
        Image::Unknown(why) => cannot(" or the image's")
            .caused_by(why)
            .hint(format!("set {ALLOW} where podman is 4.5.1 or later, or every image is trusted")),
    }
}

/// The time that an engine waits for a create, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The name of the engine.
    pub engine: &'static str,
    /// The longest wait for room that leaves time for the create itself.
    pub longest_wait: Duration,
    /// Says whether the engine kills runmig at the deadline and deletes nothing. runmig's work must end
    /// with it then.
    pub kills: bool,
}

impl Deadline {
    /// Says whether the engine's client ends on no signal as long as the create lasts.
    pub fn is_deaf(&self) -> bool {
        self.engine == PODMAN_NAME
    }
}

/// The kubelet gives a call of the CRI two minutes. Then containerd kills runmig without a word. CRI-O gives
/// up after 240 s and lets runmig go on, which would make a container without a caller. The rest of the
/// two minutes is for the driver and the low-level runtime.
const LONGEST_WAIT_IN_KUBERNETES: Duration = Duration::from_secs(90);

/// The container's identity, in the words of the engine that called. It decides which per-container
/// key applies, whose limits count, and with which pod a slice is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The namespace of the pod.
    pub namespace: Option<String>,
    /// The name of the pod.
    pub pod: Option<String>,
    /// The UID of the pod.
    pub pod_uid: Option<String>,
    /// The name of the container in the pod.
    pub container_name: Option<String>,
    /// Says whether the container is the pod's sandbox.
    pub sandbox: bool,
    /// The key that tells the pod from every other: its sandbox's id, else its namespace and UID.
    pub pod_key: Option<String>,
}

const CONTAINERD: &str = "containerd";
const PODMAN_NAME: &str = "podman";
/// podman gives a create 240 s and then ends without the reason. The create goes on.
const LONGEST_WAIT_IN_PODMAN: Duration = Duration::from_secs(220);

/// Returns the time that the engine waits for a create, by the annotations that it sets; none if it is not known.
pub fn deadline(annotations: &[(String, String)]) -> Option<Deadline> {
    let has = |prefix: &str| annotations.iter().any(|(key, _)| key.starts_with(prefix));
    let by = |manager: &str| {
        annotations
            .iter()
            .any(|(k, v)| k == MANAGER && v == manager)
    };
    // podman borrows CRI-O's keys in pods.
    let (engine, longest_wait) = if by(PODMAN) {
        (PODMAN_NAME, LONGEST_WAIT_IN_PODMAN)
    } else if by("cri-o") || has("io.kubernetes.cri-o.") {
        ("CRI-O", LONGEST_WAIT_IN_KUBERNETES)
    } else if has("io.kubernetes.cri.") {
        (CONTAINERD, LONGEST_WAIT_IN_KUBERNETES)
    } else {
        return None;
    };
    Some(Deadline {
        engine,
        longest_wait,
        kills: engine == CONTAINERD,
    })
}

/// The engines' own annotations (containerd, CRI-O, podman, nerdctl).
pub fn identity(annotations: &[(String, String)]) -> Result<Identity> {
    let one = |keys: &[&str]| -> Result<Option<String>> {
        let mut found: Option<(&str, &str)> = None;
        let named = annotations.iter();
        for (key, value) in named.filter(|(k, _)| keys.contains(&k.as_str())) {
            match found {
                Some((first, text)) if text != value => {
                    let (one, other) = (shown(text), shown(value));
                    return Err(Error::new(format!(
                        "annotations {first} and {key} contradict each other: \"{one}\" and \"{other}\""
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
    let sandbox_id = one(&["io.kubernetes.cri.sandbox-id", SANDBOX_ID])?;
    // An empty one would make one pod of many.
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let of_sandbox = said(&sandbox_id).map(|id| format!("sandbox {id}"));
    let pod_key = of_sandbox.or_else(|| {
        let namespace = namespace.as_deref().unwrap_or_default();
        said(&pod_uid).map(|uid| format!("pod {namespace}/{uid}"))
    });
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
    use crate::request::{Request, parse};

    const NAME: (&str, &str) = ("io.kubernetes.container.name", "web");
    const ITS: (&str, &str) = ("slice.runmig.dev/web", "7g.80gb");
    const SMALL: (&str, &str) = (SLICE, "1g.10gb");
    const NONE: (&str, &str) = (SLICE, "none");
    const LONG: (&str, &str) = ("runmig.dev/wait", "23h");
    const POD: (&str, &str) = ("runmig.dev/scope", "pod");
    const SANDBOX: (&str, &str) = (SANDBOX_ID, "s1");
    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn owned(pairs: Pairs) -> Vec<(String, String)> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    /// As podman before 4.5.1 merges them: the user's value wins.
    fn merged(image: Pairs, user: Pairs) -> Vec<(String, String)> {
        let is_users = |key: &str| user.iter().any(|(k, _)| *k == key);
        let mut all = owned(image);
        all.retain(|(key, _)| !is_users(key));
        all.extend(owned(user));
        all.push((MANAGER.into(), PODMAN.into()));
        all
    }

    fn under(rule: ImageAnnotations, image: Pairs, user: Pairs) -> Result<Option<Request>> {
        let engine = Engine::Podman(Image::Carries(owned(image)));
        parse(&believed(
            merged(image, user),
            engine,
            rule,
            Besides::Nothing,
        )?)
    }

    fn asked(image: Pairs, user: Pairs) -> Option<Request> {
        under(ImageAnnotations::Refuse, image, user).unwrap()
    }

    fn refusal(image: Pairs, user: Pairs) -> String {
        let refused = under(ImageAnnotations::Refuse, image, user);
        refused.unwrap_err().line()
    }

    #[test]
    fn user_wins_over_image() {
        let plain = asked(&[], &[SMALL]);
        assert!(plain.is_some());
        assert_eq!(asked(&[NAME, ITS], &[SMALL]), plain);
        assert_eq!(asked(&[NAME, ITS, LONG], &[NONE]), None);
        assert_eq!(asked(&[NAME, ITS], &[]), None);
        assert_eq!(asked(&[(SLICE, "7g.80gb")], &[SMALL]), plain);
        assert_eq!(asked(&[NONE], &[]), None);
        let short = ("runmig.dev/wait", "1s");
        assert_eq!(asked(&[LONG], &[SMALL, short]), asked(&[], &[SMALL, short]));
        for kind in [
            "io.kubernetes.cri.container-type",
            "io.kubernetes.cri-o.ContainerType",
        ] {
            assert_eq!(asked(&[(kind, "sandbox")], &[SMALL]), plain);
        }
    }

    #[test]
    fn image_neither_asks_nor_waits() {
        for image in [&[SMALL][..], &[LONG], &[("runmig.dev/slcie", "x")]] {
            assert!(refusal(image, &[]).contains("the image carries the same"));
        }
        const NEAR: (&str, &str) = ("runmg.dev/slice", "1g.10gb");
        assert_eq!(asked(&[NEAR], &[]), None);
        assert_eq!(asked(&[NEAR], &[SMALL]), asked(&[], &[SMALL]));
        for (image, user) in [(&[][..], &[NEAR]), (&[NEAR], &[("runmig/slice", "x")])] {
            assert!(refusal(image, user).ends_with("hint: write runmig.dev/slice"));
        }
        assert_eq!(
            refusal(&[LONG], &[SMALL]),
            "cannot tell whether annotation runmig.dev/wait = \"23h\" is the user's: the image carries \
             the same; hint: give the container this annotation with another value \
             (runmig.dev/slice=none for no slice), or set policy.image_annotations = \"allow\" where \
             every image is trusted"
        );
        assert!(refusal(&[POD], &[SMALL, SANDBOX]).contains("runmig.dev/scope"));
        const WHOLE: (&str, &str) = (GPU, "1");
        let line = refusal(&[WHOLE], &[]);
        assert!(line.contains("(runmig.dev/gpu=none for no GPU)"), "{line}");
        assert!(refusal(&[WHOLE], &[NONE]).contains("runmig.dev/gpu"));
        assert_eq!(asked(&[WHOLE], &[(GPU, "none")]), None);
        // An image's `none` of another kind takes nothing away.
        let least = ("runmig.dev/compute", "2");
        let image = [(GPU, "none"), least];
        let line = refusal(&image, &[(SLICE, "20Gi"), least]);
        assert!(line.contains("runmig.dev/compute"), "{line}");
        for key in ["share.runmig.dev/web", "gpu.runmig.dev/web"] {
            assert_eq!(asked(&[NAME, (key, "1")], &[]), None);
        }
        const SHARED: (&str, &str) = (SHARE, "8Gi");
        let line = refusal(&[SHARED], &[]);
        assert!(
            line.contains("(runmig.dev/share=none for no share)"),
            "{line}"
        );
        assert!(refusal(&[NONE, SHARED], &[SHARED]).contains("runmig.dev/share"));
        assert_eq!(asked(&[SHARED], &[(SHARE, "none")]), None);
        assert!(asked(&[(SHARE, "none")], &[SMALL]).is_some());
        let allow = |image: Pairs, user: Pairs| under(ImageAnnotations::Allow, image, user);
        assert!(allow(&[SMALL], &[]).unwrap().is_some());
        assert!(allow(&[NAME, ITS], &[]).unwrap().is_none());
        assert!(allow(&[POD, SANDBOX], &[SMALL]).is_err());
    }

    #[test]
    fn image_names_no_pod() {
        let shared = |image: Pairs| asked(image, &[SMALL, SANDBOX]).unwrap().shared_in;
        assert_eq!(shared(&[]), None);
        let pod = asked(&[], &[SMALL, POD, SANDBOX]).unwrap();
        assert_eq!(pod.shared_in.as_deref(), Some("sandbox s1"));
        let podman = pod.deadline.unwrap();
        assert!(podman.engine == "podman" && podman.is_deaf());
        assert!(refusal(&[SANDBOX], &[SMALL, POD]).contains("the engine names no pod"));
        let uid = ("io.kubernetes.pod.uid", "u1");
        assert!(refusal(&[uid], &[SMALL, POD]).contains("the engine names no pod"));
    }

    #[test]
    fn podman_names_no_namespace() {
        let claims = [
            ("io.kubernetes.pod.namespace", "team-a"),
            ("io.kubernetes.cri.sandbox-namespace", "team-a"),
            ("nerdctl/namespace", "team-a"),
            ("io.kubernetes.pod.name", "trainer-1"),
            NAME,
        ];
        let engine = Engine::Podman(Image::Carries(Vec::new()));
        let all = merged(&claims, &[SMALL, (MANAGER, "cri-o")]);
        let all = believed(all, engine, ImageAnnotations::Refuse, Besides::Nothing).unwrap();
        assert_eq!(identity(&all).unwrap(), Identity::default());
        assert_eq!(deadline(&all).unwrap().engine, "podman");
    }

    #[test]
    fn image_takes_no_request_of_runtime() {
        let of = |image: Pairs, user: Pairs| {
            let engine = Engine::Podman(Image::Carries(owned(image)));
            let rule = ImageAnnotations::Refuse;
            let counts = believed(merged(image, user), engine, rule, Besides::Runtime)?;
            Ok::<_, Error>(counts.iter().any(|(key, _)| is_ours(key)))
        };
        for none in [NONE, (GPU, "none"), (SHARE, " none")] {
            let line = of(&[none], &[]).unwrap_err().line();
            assert!(
                line.contains("the image carries the same; hint: give the container"),
                "{line}"
            );
            assert!(of(&[], &[none]).unwrap());
            assert!(of(&[none], &[SMALL]).unwrap());
        }
        assert!(of(&[LONG], &[]).is_err());
        assert!(!of(&[ITS, NAME], &[]).unwrap());
        let unknown = Engine::Podman(Image::Unknown(Error::new("no record")));
        let all = merged(&[], &[NONE]);
        assert!(believed(all, unknown, ImageAnnotations::Refuse, Besides::Runtime).is_err());
    }

    #[test]
    fn refuses_what_no_record_tells() {
        let unknown = || Engine::Podman(Image::Unknown(Error::new("no record")));
        let look = |user: Pairs, rule| {
            parse(&believed(
                merged(&[], user),
                unknown(),
                rule,
                Besides::Nothing,
            )?)
        };
        let line = look(&[SMALL], ImageAnnotations::Refuse).unwrap_err().line();
        assert_eq!(
            line,
            "cannot tell whether annotation runmig.dev/slice = \"1g.10gb\" is the user's or the \
             image's: no record; hint: set policy.image_annotations = \"allow\" where podman is 4.5.1 or \
             later, or every image is trusted"
        );
        let none = look(&[NONE, ITS, LONG], ImageAnnotations::Refuse);
        assert_eq!(none.unwrap(), None);
        let allowed = look(&[SMALL, POD, SANDBOX], ImageAnnotations::Allow);
        assert!(allowed.unwrap().unwrap().shared_in.is_some());
    }

    #[test]
    fn recognises_podman_alone() {
        let fake = [
            SMALL,
            (MANAGER, PODMAN),
            ("io.kubernetes.cri-o.ContainerType", "container"),
            ("io.kubernetes.pod.namespace", "team-a"),
        ];
        let all = believed(
            owned(&fake),
            Engine::Other,
            ImageAnnotations::Refuse,
            Besides::Nothing,
        )
        .unwrap();
        let crio = deadline(&all).unwrap();
        assert!(crio.engine == "CRI-O" && !crio.is_deaf());
        assert_eq!(identity(&all).unwrap().namespace.as_deref(), Some("team-a"));
    }

    #[test]
    fn image_says_nothing_beside_a_device() {
        let engine = || Engine::Podman(Image::Carries(owned(&[SMALL, (GPU, "none"), LONG])));
        let all = merged(&[SMALL, (GPU, "none"), LONG], &[POD]);
        let kept = believed(all, engine(), ImageAnnotations::Refuse, Besides::Device).unwrap();
        let ours: Vec<_> = kept.iter().filter(|(key, _)| is_ours(key)).collect();
        assert_eq!(ours, owned(&[POD]).iter().collect::<Vec<_>>());
    }
}
