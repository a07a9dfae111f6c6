//! The administrator's limits on containers: pure functions of the rules, the requester and the
//! usage of others. An error names the rule and its place.
//!
//! The engine names the container's namespace and pod, and the kernel the login of the engine's
//! caller. An image chooses none of it; a pod's author only the pod's name.

mod limits;
mod subjects;

pub use crate::request::Kind;
pub use limits::{Limit, LimitAccount, MEMORY, Usage, Used};
pub use subjects::{Each, Subject, User};

pub(crate) use subjects::Subjects;

use crate::error::{Error, Result, printable};
use crate::model::{Gpu, GpuUuid, MigMode};
use crate::request::{self, Alternative, ImageAnnotations, MAX_COUNT, Slice};
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use subjects::{matches, not_empty, subjects};

/// The administrator's rules: the section `policy` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The kinds of requests that containers may make. Without the key they may make all, or with
    /// `profiles` requests for slices alone.
    pub kinds: Option<Vec<Kind>>,
    /// Patterns of the profile names that containers may have. Without the key they may have all.
    pub profiles: Option<Vec<String>>,
    /// The most slices that one container may request. Without the key that is one, since CUDA uses one MIG
    /// device in a process.
    pub slices_per_container: Option<u32>,
    /// The most whole GPUs that one container may request. Without the key that is one.
    pub gpus_per_container: Option<u32>,
    /// Refuses or believes a request that podman may have taken from an image.
    pub image_annotations: ImageAnnotations,
    /// Says whether containers of Kubernetes pods may ask by CDI devices, which their authors cannot name: a device
    /// plugin or a DRA driver has named them.
    pub cdi_in_pods: bool,
    /// GPUs on which runmig allocates nothing.
    pub exclude_gpus: Vec<GpuName>,
    /// Reservations of GPUs for some containers.
    pub reserve: Vec<Reserve>,
    /// Limits on the slices of containers.
    pub limit: Vec<Limit>,
    /// GPUs that containers without a claim may not use. The section `kubernetes` sets it.
    #[serde(skip)]
    pub apart: Option<Gpus>,
}

impl Kind {
    fn noun(self) -> &'static str {
        match self {
            Kind::Slice => "slice",
            Kind::Share => "share",
            Kind::Gpu => "GPU",
        }
    }
}

/// A GPU in a rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a GPU is an index (0) or a UUID (\"GPU-…\")")]
pub enum GpuName {
    /// The driver's index.
    Index(u32),
    /// The full UUID, in any case.
    Uuid(String),
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuName::Index(index) => write!(f, "{index}"),
            GpuName::Uuid(uuid) => f.write_str(&printable(uuid)),
        }
    }
}

impl FromStr for GpuName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<GpuName, String> {
        match text.parse() {
            Ok(index) => Ok(GpuName::Index(index)),
            Err(_) if text.to_ascii_uppercase().starts_with("GPU-") => {
                Ok(GpuName::Uuid(text.to_owned()))
            }
            Err(_) => Err("name the GPU by its index (0) or its UUID (GPU-…)".to_owned()),
        }
    }
}

impl GpuName {
    pub(crate) fn is(&self, gpu: &Gpu) -> bool {
        self.names(gpu.index, gpu.uuid.as_str())
    }

    /// Returns whether this names the GPU with an index and a UUID.
    pub fn names(&self, index: u32, uuid: &str) -> bool {
        match self {
            GpuName::Index(own) => *own == index,
            GpuName::Uuid(own) => own.eq_ignore_ascii_case(uuid),
        }
    }

    /// Returns the UUID, if this is a whole one.
    pub fn uuid(&self) -> Option<GpuUuid> {
        match self {
            GpuName::Uuid(uuid) if is_uuid(uuid) => Some(uuid.as_str().into()),
            _ => None,
        }
    }

    /// Refuses a name that no GPU can have, since a rule with it would never apply.
    fn check(&self, rule: &str) -> Result<()> {
        match self {
            GpuName::Uuid(uuid) if !is_uuid(uuid) => {
                let why = format!("{rule}: \"{}\" is not a GPU's UUID", printable(uuid));
                Err(Error::new(why).hint(
                    "write it as nvidia-smi -L does, in full (GPU- and 32 digits), or the GPU's index \
                     without quotes",
                ))
            }
            GpuName::Index(_) | GpuName::Uuid(_) => Ok(()),
        }
    }
}

/// GPUs that only some containers may use: those that match all named keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// The GPUs.
    pub gpus: Vec<GpuName>,
    /// A pattern of namespaces.
    pub namespace: Option<String>,
    /// A pattern of pod names.
    pub pod: Option<String>,
    /// The users.
    pub user: Option<User>,
}

impl Policy {
    /// Checks the rules beyond their syntax.
    ///
    /// # Errors
    /// A rule that could match nothing or limits nothing. The error names it.
    pub fn check(&self) -> Result<()> {
        for (key, most) in [
            ("slices_per_container", self.slices_per_container),
            ("gpus_per_container", self.gpus_per_container),
        ] {
            if let Some(most) = most.filter(|most| !(1..=MAX_COUNT).contains(most)) {
                let why = format!("policy.{key} = {most} is not a number from 1 to {MAX_COUNT}");
                return Err(Error::new(why));
            }
        }
        for gpu in &self.exclude_gpus {
            gpu.check("policy.exclude_gpus")?;
        }
        for pattern in self.profiles.iter().flatten() {
            not_empty("policy.profiles", pattern)?;
            let small = pattern.to_ascii_lowercase();
            if *pattern != small {
                let why = format!("policy.profiles: unknown profile \"{pattern}\"");
                return Err(Error::new(why).hint(format!("write \"{small}\"")));
            }
        }
        for (n, limit) in numbered(&self.limit) {
            limit.subjects().check(&format!("[[policy.limit]] {n}"))?;
            if limit.is_empty() {
                return Err(Error::new(format!("[[policy.limit]] {n} limits nothing"))
                    .hint("give it slices = 4, shares = 4, gpus = 1 or memory = \"40Gi\""));
            }
        }
        for (n, reserve) in numbered(&self.reserve) {
            let rule = format!("[[policy.reserve]] {n}");
            if reserve.gpus.is_empty() {
                return Err(Error::new(format!("{rule} names no GPU")));
            }
            for gpu in &reserve.gpus {
                gpu.check(&rule)?;
            }
            reserve.subjects().check(&rule)?;
            if reserve.subjects() == Subjects::default() {
                return Err(Error::new(format!("{rule} names nobody")).hint(
                    "give it a namespace, a pod or a user; policy.exclude_gpus is for nobody",
                ));
            }
        }
        Ok(())
    }

    /// Returns the UUIDs of the GPUs that the subject may not use, each with the rule in words.
    pub fn excluded(&self, gpus: &[Gpu], subject: &Subject) -> Vec<(GpuUuid, String)> {
        let rule = |gpu: &Gpu| {
            if self.exclude_gpus.iter().any(|name| name.is(gpu)) {
                return Some("excluded by policy.exclude_gpus".to_owned());
            }
            let mut reserves =
                numbered(&self.reserve).filter(|(_, r)| r.gpus.iter().any(|name| name.is(gpu)));
            let Some((n, first)) = reserves.clone().next() else {
                // A reserved GPU is not published, nor is one without MIG.
                let is_apart = |gpus: &Gpus| gpu.mig == MigMode::Enabled && gpus.has(gpu);
                let why =
                    "published for claims of Kubernetes alone by kubernetes.local = \"apart\"";
                return { self.apart.as_ref() }
                    .is_some_and(is_apart)
                    .then(|| why.to_owned());
            };
            if reserves.any(|(_, r)| r.subjects().group(subject).is_some()) {
                return None;
            }
            let subjects = first.subjects();
            Some(format!("reserved for {subjects} by [[policy.reserve]] {n}"))
        };
        let ruled = |gpu: &Gpu| Some((gpu.uuid.clone(), rule(gpu)?));
        gpus.iter().filter_map(ruled).collect()
    }

    /// Returns the names of the GPUs' profiles that no container may have, sorted.
    pub fn denied_profiles(&self, gpus: &[Gpu]) -> Vec<String> {
        let names = gpus.iter().flat_map(|g| &g.profiles).map(|p| &p.name);
        let mut denied: Vec<String> = names.filter(|n| !self.allows(n)).cloned().collect();
        denied.sort();
        denied.dedup();
        denied
    }

    /// Checks whether containers may make requests of a kind.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn check_kind(&self, kind: Kind) -> Result<()> {
        let forbidden = |rule: &str, hint: &str| {
            let why = format!("requests for a {} are not allowed ({rule})", kind.noun());
            Err(Error::new(why).hint(hint))
        };
        match (&self.kinds, &self.profiles) {
            (Some(kinds), _) if kinds.contains(&kind) => Ok(()),
            (Some(_), _) => forbidden("policy.kinds", "ask the administrator to allow the kind"),
            // The list of profiles is older than the other kinds, and its author allowed no more.
            (None, Some(_)) if kind != Kind::Slice => forbidden(
                "policy.profiles without policy.kinds",
                "ask the administrator to add the kind to policy.kinds",
            ),
            (None, _) => Ok(()),
        }
    }

    /// Checks whether a container may request so many whole GPUs.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn check_gpus(&self, count: u32) -> Result<()> {
        self.check_kind(Kind::Gpu)?;
        let most = self.gpus_per_container.unwrap_or(1);
        if count <= most {
            return Ok(());
        }
        Err(Error::new(format!(
            "{count} GPUs are more than a container may have: {most} (policy.gpus_per_container)"
        ))
        .hint("ask for fewer, or have the administrator raise policy.gpus_per_container"))
    }

    /// Returns the allowed alternatives.
    ///
    /// # Errors
    /// No alternative is allowed.
    pub fn allowed(&self, alternatives: &[Alternative]) -> Result<Vec<Alternative>> {
        self.check_kind(Kind::Slice)?;
        let most = self.slices_per_container.unwrap_or(1);
        let is_allowed = |slice: &Slice| match slice {
            Slice::Profile(name) => self.allows(&name.to_string()),
            Slice::Memory(_) => true,
        };
        let mut allowed = alternatives.to_vec();
        allowed.retain(|asked| asked.all().all(is_allowed));
        if allowed.is_empty() {
            let hint = match self.profiles.as_deref().unwrap_or_default() {
                [] => "ask the administrator to allow one; the list is empty".to_owned(),
                patterns => format!("request {}", printable(&patterns.join(", "))),
            };
            let asked = request::written(alternatives);
            let why = format!("{asked} is not allowed (policy.profiles)");
            return Err(Error::new(why).hint(hint));
        }
        allowed.retain(|asked| asked.count() <= most);
        if allowed.is_empty() {
            return Err(too_many(alternatives, self.slices_per_container));
        }
        Ok(allowed)
    }

    fn allows(&self, profile: &str) -> bool {
        let mut patterns = self.profiles.iter().flatten();
        self.profiles.is_none() || patterns.any(|pattern| matches(pattern, profile))
    }
}

fn too_many(asked: &[Alternative], most: Option<u32>) -> Error {
    let asked = request::written(asked);
    match most {
        None | Some(1) => Error::new(format!(
            "{asked} asks for several slices, and CUDA uses one MIG device in a process"
        ))
        .hint(
            "ask for one larger slice, or run a container for each; where a container's processes \
             share them out, policy.slices_per_container allows several",
        ),
        Some(most) => Error::new(format!(
            "{asked} asks for more than {most} slices (policy.slices_per_container)"
        ))
        .hint("ask for fewer, larger slices, or run several containers"),
    }
}

/// `GPU-` and 8-4-4-4-12 digits.
fn is_uuid(text: &str) -> bool {
    let parts = text.strip_prefix("GPU-").map(|digits| digits.split('-'));
    parts.is_some_and(|parts| {
        let is_hex = |part: &str| part.bytes().all(|c| c.is_ascii_hexdigit());
        parts.clone().all(is_hex) && parts.map(str::len).eq([8, 4, 4, 4, 12])
    })
}

/// As people count them.
fn numbered<T>(rules: &[T]) -> impl Iterator<Item = (usize, &T)> + Clone {
    rules.iter().enumerate().map(|(n, rule)| (n + 1, rule))
}

impl Reserve {
    fn subjects(&self) -> Subjects {
        subjects(&self.namespace, &self.pod, &self.user)
    }
}

/// A choice of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "the GPUs are \"all\" or a list of indexes and UUIDs")]
pub enum Gpus {
    /// All of them.
    All(All),
    /// Those with these names.
    Named(Vec<GpuName>),
}

/// The word for all GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum All {
    /// `all`
    #[serde(rename = "all")]
    All,
}

impl Default for Gpus {
    fn default() -> Self {
        Gpus::All(All::All)
    }
}

impl Gpus {
    /// Returns the names.
    pub(crate) fn names(&self) -> &[GpuName] {
        match self {
            Gpus::All(_) => &[],
            Gpus::Named(names) => names,
        }
    }

    /// Returns whether the choice has a GPU.
    pub fn has(&self, gpu: &Gpu) -> bool {
        match self {
            Gpus::All(_) => true,
            Gpus::Named(names) => names.iter().any(|name| name.is(gpu)),
        }
    }

    /// Checks the choice beyond its syntax.
    pub(crate) fn check(&self, rule: &str) -> Result<()> {
        match self {
            Gpus::All(_) => Ok(()),
            Gpus::Named(names) if names.is_empty() => {
                Err(Error::new(format!("{rule} names no GPU"))
                    .hint("name a GPU, or remove the key to publish all"))
            }
            Gpus::Named(names) => names.iter().try_for_each(|name| name.check(rule)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_gpu_by_index_or_uuid() {
        let named = |text: &str| text.parse::<GpuName>();
        assert_eq!(named("7"), Ok(GpuName::Index(7)));
        for uuid in ["GPU-1", "gpu-1"] {
            let name = named(uuid).unwrap();
            assert_eq!(name, GpuName::Uuid(uuid.to_owned()));
            assert!(name.names(7, "GPU-1") && !name.names(1, "GPU-2"));
            // A part of a UUID names a GPU that is there, and none for a rule.
            assert_eq!(name.uuid(), None);
        }
        for text in ["", "-1", "MIG-1", "x"] {
            assert!(named(text).is_err(), "{text}");
        }
    }

    #[test]
    fn choice_has_the_gpus_that_it_names() {
        let gpu = Gpu {
            index: 1,
            uuid: "GPU-1".into(),
            ..Gpu::default()
        };
        let uuid = GpuName::Uuid("gpu-1".to_owned());
        for (choice, has, names) in rows! {
            Gpus::default(), true => "";
            Gpus::Named(vec![GpuName::Index(1)]), true => "1";
            Gpus::Named(vec![GpuName::Index(0), uuid]), true => "0 gpu-1";
            Gpus::Named(vec![GpuName::Index(0)]), false => "0";
        } {
            let named: Vec<String> = choice.names().iter().map(ToString::to_string).collect();
            assert_eq!((choice.has(&gpu), named.join(" ").as_str()), (has, names));
        }
    }
}
