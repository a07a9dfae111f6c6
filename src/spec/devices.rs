//! Edits `linux.devices` and `linux.resources.devices`. It removes NVIDIA devices that the container was
//! not granted, and adds the granted ones. Then it checks which devices the rules allow.
//!
//! The rules have two readings. In the specification, and in crun on cgroup v2, the last rule that matches wins. runc
//! everywhere, and the kernel on cgroup v1, keep a default and a list of exceptions. There a rule of type `a` sets the default,
//! whatever its other fields are. A rule against an exception removes only the identical one.
//!
//! The readings differ in corner cases: `a` with a major, and `deny c *:*` after `allow c 10:200`. runmig knows neither the
//! cgroup's version nor the low-level runtime's reading. So a device counts as allowed if either reading allows it.

use super::document::{Document, array, get, object, part, string, try_retain, wrong_kind};
use super::section;
use oci_spec::runtime::{
    LinuxDeviceBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType as DeviceType,
};
use runmig_lease::error::{Error, Result};
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use runmig_lease::paths::clean;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

const RULES: &str = "linux.resources.devices";

/// The largest number of device rules. Engines write a few dozen. The check compares every rule with every
/// minor number in the rules.
const RULES_LIMIT: usize = 1024;

pub fn is_nvidia(numbers: &NvidiaNumbers, major: u32, minor: u32) -> bool {
    numbers.majors.contains(&major) || numbers.drm.contains(&(major, minor))
}

pub fn is_granted(nodes: &[DeviceNode], major: u32, minor: u32) -> bool {
    nodes.iter().any(|n| (n.major, n.minor) == (major, minor))
}

/// Removes the nodes of other NVIDIA devices and any node at the path of a granted one. Then it appends the
/// granted nodes.
pub fn put_nodes(
    document: &mut Document,
    nodes: &[DeviceNode],
    numbers: &NvidiaNumbers,
) -> Result<()> {
    let linux = section(document, "linux")?;
    let devices = array(linux, "devices", "linux.devices")?;
    retain_nodes(devices, |path, number| {
        let foreign =
            number.is_some_and(|(ma, mi)| is_nvidia(numbers, ma, mi) && !is_granted(nodes, ma, mi));
        !foreign && !nodes.iter().any(|node| clean(&node.path) == clean(path))
    })?;
    for node in nodes {
        let device = LinuxDeviceBuilder::default()
            .path(&node.path)
            .typ(DeviceType::C)
            .major(node.major)
            .minor(node.minor)
            .file_mode(node.mode)
            .build();
        devices.push(part(device)?);
    }
    Ok(())
}

/// Refuses masks over what the container gets, with which it would start without.
pub fn check_masks<'a>(
    document: &Document,
    mut given: impl Iterator<Item = &'a Path>,
) -> Result<()> {
    let masked: Vec<&str> = document.masked_paths().collect();
    let hidden = given.find_map(|path| {
        let mut masks = masked.iter();
        masks.find(|mask| clean(path).starts_with(clean(mask)))
    });
    hidden.map_or(Ok(()), |path| {
        let why = format!("linux.maskedPaths hides {path}, where the container has its GPU");
        Err(Error::new(why).hint("take this path out of the engine's list of masked paths"))
    })
}

/// Keeps the nodes for which `keep` returns true. `keep` gets the path, and the number of a character
/// device.
fn retain_nodes(
    devices: &mut Vec<Value>,
    keep: impl Fn(&str, Option<(u32, u32)>) -> bool,
) -> Result<()> {
    try_retain(devices, |at, device| {
        let at = format!("linux.devices[{at}]");
        let text = |key: &str| device.get(key).and_then(Value::as_str);
        let path = text("path").ok_or_else(|| wrong_kind(&format!("{at}.path"), "string"))?;
        let number = |key: &str| match device.get(key) {
            None | Some(Value::Null) => Ok(0),
            Some(value) => value
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| wrong_kind(&format!("{at}.{key}"), "device number")),
        };
        // Only a FIFO and a block device are certainly not character devices.
        let number = match text("type") {
            Some("p" | "b") => None,
            _ => Some((number("major")?, number("minor")?)),
        };
        Ok(keep(path, number))
    })
}

/// Removes the rules that name NVIDIA's numbers, puts a deny-all rule first if it is missing, and appends
/// the rules of the granted nodes. It fails if the result allows more than these nodes.
pub fn put_rules(
    document: &mut Document,
    nodes: &[DeviceNode],
    numbers: &NvidiaNumbers,
) -> Result<()> {
    let resources = object(section(document, "linux")?, "resources", "linux.resources")?;
    let devices = array(resources, "devices", RULES)?;
    let mut rules = keep_unnamed(devices, numbers)?;
    if !rules.first().is_some_and(Rule::denies_everything) {
        let deny = json!({"allow": false, "access": "rwm"});
        rules.insert(0, Rule::parse(&deny, None)?);
        devices.insert(0, deny);
    }
    for node in nodes {
        let rule = LinuxDeviceCgroupBuilder::default()
            .allow(true)
            .typ(DeviceType::C)
            .major(node.major)
            .minor(node.minor)
            .access("rwm")
            .build();
        let rule = part(rule)?;
        rules.push(Rule::parse(&rule, None)?);
        devices.push(rule);
    }
    check(&rules, nodes, numbers)
}

/// Removes the rules that name NVIDIA's numbers, and returns the others.
fn keep_unnamed(devices: &mut Vec<Value>, numbers: &NvidiaNumbers) -> Result<Vec<Rule>> {
    if devices.len() > RULES_LIMIT {
        let why = format!("{RULES} in config.json has more than {RULES_LIMIT} rules");
        return Err(Error::new(why).hint("give the container fewer"));
    }
    let mut rules = Vec::new();
    try_retain(devices, |place, device| {
        let rule = Rule::parse(device, Some(place))?;
        let is_kept = !names(&rule, numbers);
        rules.extend(is_kept.then_some(rule));
        Ok(is_kept)
    })?;
    Ok(rules)
}

/// Returns whether the rule allows NVIDIA's devices and no others.
fn names(rule: &Rule, numbers: &NvidiaNumbers) -> bool {
    rule.allow
        && rule.kind != Kind::Block
        && rule.major.is_some_and(|major| {
            numbers.majors.contains(&major)
                || rule
                    .minor
                    .is_some_and(|minor| numbers.drm.contains(&(major, minor)))
        })
}

fn check(rules: &[Rule], nodes: &[DeviceNode], numbers: &NvidiaNumbers) -> Result<()> {
    let readings = Readings::of(rules);
    // Rules distinguish only the minors that they name, so one unnamed minor stands for all others.
    let mut minors: BTreeSet<u32> = rules.iter().filter_map(|rule| rule.minor).collect();
    minors.extend(nodes.iter().map(|node| node.minor));
    minors.extend((0..).find(|minor| !minors.contains(minor)));
    let of_major = |major| minors.iter().map(move |minor| (major, *minor));
    let of_driver = { numbers.majors.iter() }.flat_map(|major| of_major(*major));
    for (major, minor) in of_driver.chain(numbers.drm.iter().copied()) {
        if is_granted(nodes, major, minor) {
            continue;
        }
        if let Some(at) = readings.opens(major, minor) {
            let rule = rules[at];
            let place = { rule.place }.map_or(String::new(), |at| format!(" {RULES}[{at}]"));
            return Err(Error::new(format!(
                "device rule{place} ({rule}) lets the container open NVIDIA devices that it was not given, {major}:{minor} for one"
            ))
            .hint("run it unprivileged, with rules for the devices that it needs"));
        }
    }
    for node in nodes {
        if !readings.surely_opens(node.major, node.minor) {
            return Err(Error::new(format!(
                "the device rules of config.json keep the container from {} ({}:{})",
                node.path.display(),
                node.major,
                node.minor
            ))
            .hint("let the rules begin with a deny-all and allow what the container needs"));
        }
    }
    Ok(())
}

/// Removes every NVIDIA node and rule.
pub fn take_out(document: &mut Document, numbers: &NvidiaNumbers) -> Result<()> {
    if let Some(devices) = document.list_mut(&["linux", "devices"]) {
        retain_nodes(devices, |_, number| {
            !number.is_some_and(|(major, minor)| is_nvidia(numbers, major, minor))
        })?;
    }
    if let Some(devices) = document.list_mut(&["linux", "resources", "devices"]) {
        keep_unnamed(devices, numbers)?;
    }
    Ok(())
}

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
    /// Its index in the original file; none for a rule of runmig.
    place: Option<usize>,
}

impl Rule {
    /// Parses a rule. Errors name it by its place.
    fn parse(value: &Value, place: Option<usize>) -> Result<Self> {
        let at = &place.map_or(RULES.to_owned(), |place| format!("{RULES}[{place}]"));
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
            place,
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
