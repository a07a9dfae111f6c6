//! Limits: how many slices, shares and GPUs, and how much memory, a namespace, pod or user may have.

use super::subjects::{Group, Subject, Subjects, User, subjects};
use super::{Kind, Policy, numbered};
use crate::error::{Error, Result, printable};
use crate::request::{self, Slice};
use serde::Deserialize;

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
    /// The most slices. Without `shares` or `gpus`, those count as slices.
    pub slices: Option<u32>,
    /// The most shares of GPUs.
    pub shares: Option<u32>,
    /// The most whole GPUs.
    pub gpus: Option<u32>,
    /// The most memory, in bytes.
    #[serde(default, deserialize_with = "memory")]
    pub memory: Option<u64>,
}

/// A slice, a share or a GPU that a subject has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The subject.
    pub subject: Subject,
    /// Its kind.
    pub kind: Kind,
    /// Its memory, in MiB.
    pub memory_mib: u64,
    /// The memory of the slice on which a seat is, in MiB; for others the same as `memory_mib`.
    pub whole_mib: u64,
}

/// The nouns of the counts.
const SLICES: &str = "slices";
const SHARES: &str = "shares";
const GPUS: &str = "GPUs";

/// The amount of a limit that is in bytes.
pub const MEMORY: &str = "memory";

/// An amount that a limit names, and how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The key of the amount in the configuration.
    pub amount: &'static str,
    /// The used part: a number, or bytes of memory.
    pub used: u64,
    /// The limit.
    pub most: u64,
}

/// The holdings of one group of subjects under one limit. A name is none if the rule counts all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitAccount {
    /// The number of the limit in the configuration, from 1.
    pub number: usize,
    /// The namespace.
    pub namespace: Option<String>,
    /// The pod.
    pub pod: Option<String>,
    /// The user.
    pub user: Option<u32>,
    /// The amounts that the rule limits.
    pub amounts: Vec<Used>,
}

impl Policy {
    /// Returns the account of each group that holds something under a limit. A limit for one named group has an
    /// account also if that group holds nothing.
    pub fn accounts(&self, usage: &[Usage]) -> Vec<LimitAccount> {
        let mut accounts = Vec::new();
        for (number, limit) in numbered(&self.limit) {
            let subjects = limit.subjects();
            let mut groups: Vec<(Group, Vec<&Usage>)> = Vec::new();
            groups.extend(subjects.only_group().map(|group| (group, Vec::new())));
            for one in usage {
                let Some(group) = subjects.group(&one.subject) else {
                    continue;
                };
                match groups.iter_mut().find(|(known, _)| *known == group) {
                    Some((_, its)) => its.push(one),
                    None => groups.push((group, vec![one])),
                }
            }
            let account = |(group, its): &(Group, Vec<&Usage>)| limit.account(number, group, its);
            accounts.extend(groups.iter().map(account));
        }
        accounts
    }

    /// Checks whether a subject may have so many more of a kind. `memory_mib` is the memory of all of them.
    ///
    /// # Errors
    /// The first limit that they would exceed.
    pub fn check_limits(
        &self,
        subject: &Subject,
        kind: Kind,
        more: u32,
        memory_mib: u64,
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
            const ASK_AGAIN: &str = "run migctl list to see which; ask again when one ends";
            let counted = limit.counted(kind);
            let count = same.clone().filter(|h| limit.counted(h.kind) == counted);
            let count = count.count();
            if let Some((noun, most)) = counted
                && count + more as usize > most as usize
            {
                let asked = match more {
                    1 => String::new(),
                    n => format!(", and {n} are asked for"),
                };
                let hint = match more > most {
                    true if most == 0 => "have the administrator raise the limit",
                    true => "ask for fewer",
                    false => ASK_AGAIN,
                };
                return Err(too_much(format!("{count} of {most} {noun}{asked}"), hint));
            }
            let used: u128 = same.map(|h| u128::from(limit.counted_mib(h)) << 20).sum();
            let asked_memory = u128::from(memory_mib) << 20;
            if let Some(most) = limit.memory
                && used + asked_memory > u128::from(most)
            {
                let asked = match memory_mib {
                    0 => String::new(),
                    mib => format!(", and {mib}Mi are asked for"),
                };
                let hint = match asked_memory > u128::from(most) {
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

impl Limit {
    /// Returns the count that a kind adds to, with its limit. A rule that knows slices alone was written before
    /// there were other kinds, and counts them all.
    fn counted(&self, kind: Kind) -> Option<(&'static str, u32)> {
        let slices = self.slices.map(|most| (SLICES, most));
        match kind {
            Kind::Slice => slices,
            Kind::Share => self.shares.map(|most| (SHARES, most)).or(slices),
            Kind::Gpu => self.gpus.map(|most| (GPUS, most)).or(slices),
        }
    }

    /// Returns the memory of a holding that the rule counts, in MiB. A rule without `shares` was written before there
    /// were seats, each of which keeps a slice.
    fn counted_mib(&self, usage: &Usage) -> u64 {
        match self.shares {
            Some(_) => usage.memory_mib,
            None => usage.whole_mib,
        }
    }

    /// Returns what a group holds under the rule.
    fn account(&self, number: usize, group: &Group, of_group: &[&Usage]) -> LimitAccount {
        let count = |amount, noun, most: Option<u32>| {
            let counts = |h: &&&Usage| self.counted(h.kind).is_some_and(|(n, _)| n == noun);
            let used = of_group.iter().filter(counts).count() as u64;
            let most = u64::from(most?);
            Some(Used { amount, used, most })
        };
        let memory = |most| Used {
            amount: MEMORY,
            used: of_group.iter().map(|h| self.counted_mib(h) << 20).sum(),
            most,
        };
        let amounts = [
            count("slices", SLICES, self.slices),
            count("shares", SHARES, self.shares),
            count("gpus", GPUS, self.gpus),
            self.memory.map(memory),
        ];
        let (namespace, pod) = group.names();
        LimitAccount {
            number,
            namespace: namespace.map(str::to_owned),
            pod: pod.map(str::to_owned),
            user: group.user,
            amounts: amounts.into_iter().flatten().collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_none() && [self.slices, self.shares, self.gpus] == [None; 3]
    }

    pub(super) fn subjects(&self) -> Subjects {
        subjects(&self.namespace, &self.pod, &self.user)
    }
}

fn memory<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    use serde::de::Error as _;
    let text = String::deserialize(d)?;
    request::memory(&text).map(Some).map_err(|_| {
        D::Error::custom(format!(
            "\"{}\" is not an amount of memory such as 40Gi",
            printable(&text)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_count_what_each_group_holds() {
        let limits = r#"{"limit": [
            {"namespace": "a", "slices": 4, "memory": "40Gi"},
            {"pod": "*", "shares": 3, "gpus": 2},
            {"user": "*", "slices": 1},
            {"user": 7, "slices": 1},
            {"namespace": "c*", "slices": 1},
            {"slices": 9}
        ]}"#;
        let policy: Policy = serde_json::from_str(limits).unwrap();
        let one = |namespace: &str, pod: &str, user, kind, gib: u64| Usage {
            subject: Subject {
                namespace: Some(namespace.to_owned()),
                pod: Some(pod.to_owned()),
                pod_uid: None,
                user,
            },
            kind,
            memory_mib: gib << 10,
            whole_mib: gib << 10,
        };
        let usage = [
            one("a", "x", None, Kind::Slice, 2),
            one("a", "x", Some(5), Kind::Share, 3),
            one("b", "x", Some(5), Kind::Gpu, 10),
        ];
        let shown = |account: &LimitAccount| {
            let used = |of: &Used| format!("{} {}/{}", of.amount, of.used, of.most);
            let (namespace, pod) = (account.namespace.as_deref(), account.pod.as_deref());
            let (namespace, pod) = (namespace.unwrap_or("-"), pod.unwrap_or("-"));
            let user = account.user.map_or("-".to_owned(), |id| id.to_string());
            let amounts: Vec<String> = account.amounts.iter().map(used).collect();
            let amounts = amounts.join(", ");
            format!("{} {namespace} {pod} {user}: {amounts}", account.number)
        };
        let shown = |usage: &[Usage]| -> Vec<String> {
            let accounts = policy.accounts(usage);
            accounts.iter().map(shown).collect()
        };
        assert_eq!(
            shown(&usage),
            [
                format!(
                    "1 a - -: slices 2/4, memory {}/{}",
                    5_u64 << 30,
                    40_u64 << 30
                ),
                "2 a x -: shares 1/3, gpus 0/2".to_owned(),
                "2 b x -: shares 0/3, gpus 1/2".to_owned(),
                "3 - - 5: slices 2/1".to_owned(),
                "4 - - 7: slices 0/1".to_owned(),
                "6 - - -: slices 3/9".to_owned(),
            ]
        );
        let idle = shown(&[]);
        assert_eq!(idle.len(), 3, "{idle:?}");
        assert!(idle[0].starts_with("1 a - -: slices 0/4"), "{idle:?}");
    }
}
