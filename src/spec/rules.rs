//! The devices that the rules of `linux.resources.devices` let a container open.
//!
//! The rules have two readings. In the specification, and in crun on cgroup v2, the last rule that matches
//! wins. runc everywhere, and the kernel on cgroup v1, keep a default and a list of exceptions. There a
//! rule of type `a` sets the default, whatever its other fields are. A rule against an exception removes
//! only the identical one.
//!
//! The readings differ in corner cases: `a` with a major, and `deny c *:*` after `allow c 10:200`. runmig
//! knows neither the cgroup's version nor the low-level runtime's reading. So a device counts as allowed if
//! either reading allows it.

use super::document::{get, string, wrong_kind};
use runmig_lease::error::{Error, Result};
use serde_json::{Map, Value};
use std::fmt;

/// The accesses `r`, `w`, `m` as bits.
pub const READ: u8 = 1;
pub const WRITE: u8 = 2;
pub const MKNOD: u8 = 4;
const ALL: u8 = READ | WRITE | MKNOD;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Any,
    Char,
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub allow: bool,
    pub kind: Kind,
    /// The major number; none matches any.
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub access: u8,
}

impl Rule {
    /// Parses a rule. Errors call the rule `at`.
    pub fn parse(value: &Value, at: &str) -> Result<Self> {
        let rule = value.as_object().ok_or_else(|| wrong_kind(at, "object"))?;
        let allow = match rule.get("allow") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(allow)) => *allow,
            Some(_) => return Err(wrong_kind(&format!("{at}.allow"), "boolean")),
        };
        let kind = match string(rule, "type", at)?.unwrap_or_default() {
            "" | "a" => Kind::Any,
            // `u` is another name for a character device in linux.devices.
            "c" | "u" => Kind::Char,
            "b" => Kind::Block,
            other => {
                return Err(Error::new(format!(
                    "{at}.type in config.json is {other:?}, not a, b or c"
                )));
            }
        };
        let mut access = 0;
        for letter in string(rule, "access", at)?.unwrap_or_default().chars() {
            access |= match letter {
                'r' => READ,
                'w' => WRITE,
                'm' => MKNOD,
                _ => {
                    return Err(Error::new(format!(
                        "{at}.access in config.json holds {letter:?}, not only r, w and m"
                    )));
                }
            };
        }
        // runc refuses a rule without an access; others may take it for all accesses.
        if access == 0 && allow {
            access = ALL;
        }
        Ok(Rule {
            allow,
            kind,
            major: number(rule, "major", at)?,
            minor: number(rule, "minor", at)?,
            access,
        })
    }

    /// Returns whether the rule is `{"allow":false,"access":"rwm"}`, with which every list must begin.
    pub fn denies_everything(&self) -> bool {
        !self.allow
            && self.kind == Kind::Any
            && (self.major, self.minor, self.access) == (None, None, ALL)
    }

    fn covers(&self, kind: Kind, major: u32, minor: u32, wanted: u8) -> bool {
        (self.kind == Kind::Any || self.kind == kind)
            && self.major.is_none_or(|m| m == major)
            && self.minor.is_none_or(|m| m == minor)
            && self.access & wanted == wanted
    }
}

fn number(rule: &Map<String, Value>, key: &str, at: &str) -> Result<Option<u32>> {
    let Some(value) = get(rule, key) else {
        return Ok(None);
    };
    match value.as_i64() {
        Some(-1) => Ok(None),
        number => number
            .and_then(|n| u32::try_from(n).ok())
            .map(Some)
            .ok_or_else(|| wrong_kind(&format!("{at}.{key}"), "device number (or -1 for any)")),
    }
}

/// A list of rules in both readings.
pub struct Readings<'a> {
    rules: &'a [Rule],
    /// The index of the rule that made the default an allow.
    default: Option<usize>,
    /// The exceptions to the default, each with the index of its rule.
    exceptions: Vec<(usize, Rule)>,
}

impl<'a> Readings<'a> {
    pub fn of(rules: &'a [Rule]) -> Self {
        let mut default = None;
        let mut exceptions: Vec<(usize, Rule)> = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            if rule.kind == Kind::Any {
                default = rule.allow.then_some(at);
                exceptions.clear();
                continue;
            }
            let same = |other: &Rule| {
                (other.kind, other.major, other.minor) == (rule.kind, rule.major, rule.minor)
            };
            let found = exceptions.iter_mut().find(|(_, other)| same(other));
            match (found, rule.allow == default.is_some()) {
                (Some((_, other)), true) => other.access &= !rule.access,
                (None, true) => {}
                (Some((_, other)), false) => other.access |= rule.access,
                (None, false) => exceptions.push((at, *rule)),
            }
        }
        Readings {
            rules,
            default,
            exceptions,
        }
    }

    /// Returns the rule that lets a container open the character device for reading or writing, in either
    /// reading.
    pub fn opens(&self, major: u32, minor: u32) -> Option<usize> {
        [READ, WRITE, READ | WRITE].into_iter().find_map(|wanted| {
            self.last_match(major, minor, wanted)
                .or_else(|| self.by_exceptions(major, minor, wanted))
        })
    }

    /// Returns whether both readings allow the device to be opened for reading and writing.
    pub fn surely_opens(&self, major: u32, minor: u32) -> bool {
        let wanted = READ | WRITE;
        self.last_match(major, minor, wanted).is_some()
            && self.by_exceptions(major, minor, wanted).is_some()
    }

    fn last_match(&self, major: u32, minor: u32, wanted: u8) -> Option<usize> {
        let covers = |rule: &Rule| rule.covers(Kind::Char, major, minor, wanted);
        let at = self.rules.iter().rposition(covers)?;
        self.rules[at].allow.then_some(at)
    }

    fn by_exceptions(&self, major: u32, minor: u32, wanted: u8) -> Option<usize> {
        let covers = |(_, rule): &&(usize, Rule)| rule.covers(Kind::Char, major, minor, wanted);
        let exception = self.exceptions.iter().find(covers);
        match (self.default, exception) {
            (None, exception) => exception.map(|(at, _)| *at),
            (Some(_), Some(_)) => None,
            (default, None) => default,
        }
    }
}

/// Formats a rule as docker and the kernel write it: `allow c *:* rwm`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.allow { "allow" } else { "deny" };
        let kind = match self.kind {
            Kind::Any => 'a',
            Kind::Char => 'c',
            Kind::Block => 'b',
        };
        let number = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
        let (major, minor) = (number(self.major), number(self.minor));
        write!(f, "{verb} {kind} {major}:{minor} ")?;
        for (bit, letter) in [(READ, 'r'), (WRITE, 'w'), (MKNOD, 'm')] {
            if self.access & bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}
