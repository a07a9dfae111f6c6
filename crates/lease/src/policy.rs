//! The administrator's limits on containers: pure functions of the rules, the requester and the
//! usage of others. An error names the rule and its place.
//!
//! The engine names the container's namespace and pod, and the kernel the login of the engine's
//! caller. An image chooses none of it; a pod's author only the pod's name.

use crate::error::{Error, Result, printable};
use crate::model::{Gpu, GpuUuid};
use crate::request::{self, Alternative, ImageAnnotations, MAX_COUNT, Slice};
use serde::Deserialize;

mod subjects;

pub use subjects::{Each, Subject, User};

pub(crate) use subjects::Subjects;
use subjects::{matches, not_empty, subjects};

/// The administrator's rules: the section `policy` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Patterns of the profile names that containers may have. Without the key they may have all.
    pub profiles: Option<Vec<String>>,
    /// The most slices that one container may request. Without the key that is one, since CUDA uses one MIG
    /// device in a process.
    pub slices_per_container: Option<u32>,
    /// Refuses or believes a request that podman may have taken from an image.
    pub image_annotations: ImageAnnotations,
    /// GPUs on which runmig allocates nothing.
    pub exclude_gpus: Vec<GpuName>,
    /// Reservations of GPUs for some containers.
    pub reserve: Vec<Reserve>,
    /// Limits on the slices of containers.
    pub limit: Vec<Limit>,
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

impl GpuName {
    fn is(&self, gpu: &Gpu) -> bool {
        match self {
            GpuName::Index(index) => *index == gpu.index,
            GpuName::Uuid(uuid) => uuid.eq_ignore_ascii_case(gpu.uuid.as_str()),
        }
    }

    /// Refuses a name that no GPU can have, since a rule with it would never apply.
    fn check(&self, rule: &str) -> Result<()> {
        match self {
            GpuName::Uuid(uuid) if !is_uuid(uuid) => Err(Error::new(format!(
                "{rule}: \"{}\" is no GPU's UUID",
                printable(uuid)
            ))
            .hint(
                "write it as nvidia-smi -L does, in full (GPU- and 32 digits), or the GPU's index \
                 without quotes",
            )),
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

/// The most that each namespace, pod or user may have. The named keys tell which of them the rule counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// A pattern of namespaces.
    pub namespace: Option<String>,
    /// A pattern of pod names.
    pub pod: Option<String>,
    /// The users.
    pub user: Option<User>,
    /// The most slices.
    pub slices: Option<u32>,
    /// The most memory, in bytes.
    #[serde(default, deserialize_with = "memory")]
    pub memory: Option<u64>,
}

/// A slice that a subject has or requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The subject.
    pub subject: Subject,
    /// Its memory, in MiB.
    pub memory_mib: u64,
}

impl Policy {
    /// Checks the rules beyond their syntax.
    ///
    /// # Errors
    /// A rule that could match nothing or limits nothing. The error names it.
    pub fn check(&self) -> Result<()> {
        if let Some(most) = self.slices_per_container
            && !(1..=MAX_COUNT).contains(&most)
        {
            return Err(Error::new(format!(
                "policy.slices_per_container = {most} is no number from 1 to {MAX_COUNT}"
            )));
        }
        for gpu in &self.exclude_gpus {
            gpu.check("policy.exclude_gpus")?;
        }
        for pattern in self.profiles.iter().flatten() {
            not_empty("policy.profiles", pattern)?;
        }
        for (n, limit) in numbered(&self.limit) {
            limit.subjects().check(&format!("[[policy.limit]] {n}"))?;
            if limit.slices.is_none() && limit.memory.is_none() {
                return Err(Error::new(format!("[[policy.limit]] {n} limits nothing"))
                    .hint("give it slices = 4 or memory = \"40Gi\""));
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
            let (n, first) = reserves.clone().next()?;
            if reserves.any(|(_, r)| r.subjects().group(subject).is_some()) {
                return None;
            }
            let subjects = first.subjects();
            Some(format!("reserved for {subjects} by [[policy.reserve]] {n}"))
        };
        let ruled = gpus
            .iter()
            .filter_map(|gpu| Some((gpu.uuid.clone(), rule(gpu)?)));
        ruled.collect()
    }

    /// Returns the names of the GPUs' profiles that no container may have, sorted.
    pub fn denied_profiles(&self, gpus: &[Gpu]) -> Vec<String> {
        let names = gpus.iter().flat_map(|g| &g.profiles).map(|p| &p.name);
        let mut denied: Vec<String> = names.filter(|n| !self.allows(n)).cloned().collect();
        denied.sort();
        denied.dedup();
        denied
    }

    /// Returns the allowed alternatives.
    ///
    /// # Errors
    /// No alternative is allowed.
    pub fn allowed(&self, alternatives: &[Alternative]) -> Result<Vec<Alternative>> {
        let most = self.slices_per_container.unwrap_or(1);
        let is_allowed = |asked: &&Alternative| match &asked.slice {
            Slice::Profile(name) => self.allows(&name.to_string()),
            Slice::Memory(_) => true,
        };
        let mut allowed: Vec<Alternative> =
            alternatives.iter().filter(is_allowed).cloned().collect();
        if allowed.is_empty() {
            let patterns = self.profiles.as_deref().unwrap_or_default();
            let hint = match patterns.is_empty() {
                true => "ask the administrator to allow one; the list is empty".to_owned(),
                false => format!("request {}", printable(&patterns.join(", "))),
            };
            return Err(Error::new(format!(
                "{} is not allowed (policy.profiles)",
                request::written(alternatives)
            ))
            .hint(hint));
        }
        allowed.retain(|asked| asked.count <= most);
        if allowed.is_empty() {
            return Err(too_many(alternatives, self.slices_per_container));
        }
        Ok(allowed)
    }

    fn allows(&self, profile: &str) -> bool {
        let mut patterns = self.profiles.iter().flatten();
        self.profiles.is_none() || patterns.any(|pattern| matches(pattern, profile))
    }

    /// Checks whether a subject may have more slices. `memory_mib` is the memory of all of them.
    ///
    /// # Errors
    /// The first limit that the slices would exceed.
    pub fn check_limits(
        &self,
        subject: &Subject,
        (slices, memory_mib): (u32, u64),
        usage: &[Usage],
    ) -> Result<()> {
        for (n, limit) in numbered(&self.limit) {
            let subjects = limit.subjects();
            let Some(group) = subjects.group(subject) else {
                continue;
            };
            let same = usage
                .iter()
                .filter(|h| subjects.group(&h.subject).as_ref() == Some(&group));
            let too_much = |what: String, hint: &str| {
                Error::new(format!("{group} has {what} ([[policy.limit]] {n})")).hint(hint)
            };
            const ASK_AGAIN: &str = "migctl list shows which; when one of them ends, ask again";
            let count = same.clone().count();
            if let Some(most) = limit.slices
                && count + slices as usize > most as usize
            {
                let asked = match slices {
                    1 => String::new(),
                    n => format!(", and {n} are asked for"),
                };
                let hint = match slices > most {
                    true => "ask for fewer",
                    false => ASK_AGAIN,
                };
                return Err(too_much(format!("{count} of {most} slices{asked}"), hint));
            }
            let used: u128 = same.map(|h| u128::from(h.memory_mib) << 20).sum();
            let more = u128::from(memory_mib) << 20;
            if let Some(most) = limit.memory
                && used + more > u128::from(most)
            {
                let asked = match memory_mib {
                    0 => String::new(),
                    mib => format!(", and {mib}Mi are asked for"),
                };
                let hint = match more > u128::from(most) {
                    true => "ask for less",
                    false => ASK_AGAIN,
                };
                let (used, most) = (used >> 20, Slice::Memory(most));
                let what = format!("{used}Mi of {most} of memory{asked}");
                return Err(too_much(what, hint));
            }
        }
        Ok(())
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

impl Limit {
    fn subjects(&self) -> Subjects {
        subjects(&self.namespace, &self.pod, &self.user)
    }
}

impl Reserve {
    fn subjects(&self) -> Subjects {
        subjects(&self.namespace, &self.pod, &self.user)
    }
}

fn memory<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    use serde::de::Error as _;
    let text = String::deserialize(d)?;
    request::memory(&text).map(Some).map_err(|_| {
        D::Error::custom(format!(
            "\"{}\" is no amount of memory such as 40Gi",
            printable(&text)
        ))
    })
}
