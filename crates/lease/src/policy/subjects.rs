//! The subjects of a rule: patterns of names, and users.

use crate::error::{Error, Result, printable};
use serde::Deserialize;
use std::fmt;

/// For whom a rule is: for who matches all that is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subjects {
    /// Patterns.
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub user: Option<User>,
}

/// The users of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a user is a number, or \"*\" for each")]
pub enum User {
    /// One user, by the id of the login.
    Id(u32),
    /// Each user, counted alone.
    Each(Each),
}

/// The word for each user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Each {
    /// `*`
    #[serde(rename = "*")]
    Each,
}

/// The subject of rules: the pod and the user of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The namespace of the pod.
    pub namespace: Option<String>,
    /// The name of the pod.
    pub pod: Option<String>,
    /// The UID of the pod, which tells it from a later one with its name.
    pub pod_uid: Option<String>,
    /// The login that called the engine.
    pub user: Option<u32>,
}

pub(super) fn subjects(
    namespace: &Option<String>,
    pod: &Option<String>,
    user: &Option<User>,
) -> Subjects {
    Subjects {
        namespace: namespace.clone(),
        pod: pod.clone(),
        user: user.clone(),
    }
}

/// Those whose slices are counted together: what a rule names, each with its own value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    namespace: Option<String>,
    /// Name, and what tells it from another of that name.
    pod: Option<(String, Option<String>, Option<String>)>,
    pub user: Option<u32>,
}

/// An empty pattern would be a rule for nothing.
pub(super) fn not_empty(rule: &str, pattern: &str) -> Result<()> {
    if !pattern.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("{rule} has an empty pattern"))
        .hint("write a name or a pattern, or take it away; \"*\" is any"))
}

impl Subjects {
    pub(super) fn check(&self, rule: &str) -> Result<()> {
        for (key, pattern) in [("namespace", &self.namespace), ("pod", &self.pod)] {
            if let Some(pattern) = pattern {
                not_empty(&format!("{rule}: {key}"), pattern)?;
            }
        }
        Ok(())
    }

    /// Returns the group that the rule counts the requester in, or none if the rule is not for it.
    /// A key that the rule omits does not matter, so without any key all are one group. A key that
    /// it names, the container must have.
    pub(super) fn group(&self, subject: &Subject) -> Option<Group> {
        let named = |pattern: &Option<String>, value: &Option<String>| match (pattern, value) {
            (None, _) => Some(None),
            (Some(pattern), Some(value)) => matches(pattern, value).then(|| Some(value.clone())),
            (Some(_), None) => None,
        };
        let pod = named(&self.pod, &subject.pod)?;
        Some(Group {
            namespace: named(&self.namespace, &subject.namespace)?,
            pod: pod.map(|name| (name, subject.pod_uid.clone(), subject.namespace.clone())),
            user: match (&self.user, subject.user) {
                (None, _) => None,
                (Some(User::Each(_)), Some(id)) => Some(id),
                (Some(User::Id(named)), Some(id)) if *named == id => Some(id),
                (Some(_), _) => return None,
            },
        })
    }

    /// Returns the group of a rule whose keys name exactly one. Pods of one name follow each other, so a rule by pod
    /// names none.
    pub(super) fn only_group(&self) -> Option<Group> {
        let is_pattern = |pattern: &String| pattern.contains('*');
        if self.pod.is_some() || self.namespace.as_ref().is_some_and(is_pattern) {
            return None;
        }
        Some(Group {
            namespace: self.namespace.clone(),
            pod: None,
            user: match self.user {
                None => None,
                Some(User::Id(id)) => Some(id),
                Some(User::Each(_)) => return None,
            },
        })
    }
}

impl Group {
    /// Returns the namespace and the pod. A rule by pod alone counts pods of each namespace apart.
    pub(super) fn names(&self) -> (Option<&str>, Option<&str>) {
        let of_pod = self.pod.as_ref();
        let namespace = { self.namespace.as_deref() }
            .or_else(|| of_pod.and_then(|(_, _, namespace)| namespace.as_deref()));
        (namespace, of_pod.map(|(name, ..)| name.as_str()))
    }
}

impl fmt::Display for Subjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| match user {
            User::Id(id) => id.to_string(),
            User::Each(_) => "*".to_owned(),
        });
        words(f, [&self.namespace, &self.pod, &user])
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = self.pod.as_ref().map(|(name, ..)| name.clone());
        let user = self.user.map(|id| id.to_string());
        words(f, [&self.namespace, &pod, &user])
    }
}

/// `namespace team-a, user 1000`
fn words(f: &mut fmt::Formatter<'_>, values: [&Option<String>; 3]) -> fmt::Result {
    let kinds = ["namespace", "pod", "user"].into_iter().zip(values);
    let named: Vec<String> = kinds
        .filter_map(|(kind, value)| Some(format!("{kind} {}", printable(value.as_ref()?))))
        .collect();
    match named.is_empty() {
        true => f.write_str("the machine"),
        false => f.write_str(&named.join(", ")),
    }
}

/// `*` stands for any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut text) = parts.next().and_then(|head| text.strip_prefix(head)) else {
        return false;
    };
    let Some(tail) = parts.next_back() else {
        return text.is_empty();
    };
    // The first place is as good as any later one, so that none is tried again: the text is of
    // whoever names pods.
    for part in parts {
        match text.split_once(part) {
            Some((_, rest)) => text = rest,
            None => return false,
        }
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::matches;

    /// As one would say it.
    fn by_trying(pattern: &str, text: &str) -> bool {
        match pattern.split_once('*') {
            None => pattern == text,
            Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
                let mut ends = (0..=text.len()).filter(|at| text.is_char_boundary(*at));
                ends.any(|at| by_trying(rest, &text[at..]))
            }),
        }
    }

    proptest::proptest! {
        #[test]
        fn star_matches_any_text(pattern in "[ab*é]{0,6}", text in "[abé]{0,8}") {
            proptest::prop_assert_eq!(matches(&pattern, &text), by_trying(&pattern, &text));
        }
    }

    #[test]
    fn bounds_time_of_many_stars() {
        let text = "a".repeat(253);
        assert!(!matches(&("*a".repeat(60) + "b"), &text));
        assert!(matches(&"*".repeat(60_000), &text));
    }
}
