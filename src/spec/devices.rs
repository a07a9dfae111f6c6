//! Edits `linux.devices` and `linux.resources.devices`. It removes NVIDIA devices that the container was
//! not granted, and adds the granted ones. Then it checks which devices the rules allow.

use super::document::{Document, array, get_mut, object, wrong_kind};
use super::linux;
use super::paths::clean;
use super::rules::{Readings, Rule};
use oci_spec::runtime::{
    LinuxDeviceBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType as DeviceType,
};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
    let linux = linux(document)?;
    check_masks(linux.get("maskedPaths"), nodes)?;
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
            .build()
            .context(|| format!("make device {}", node.path.display()))?;
        devices.push(serde_json::to_value(device).context(|| "write a device as JSON")?);
    }
    Ok(())
}

/// Refuses masks over granted nodes, with which the container would start without its device.
fn check_masks(masked: Option<&Value>, nodes: &[DeviceNode]) -> Result<()> {
    let mut paths =
        { masked.and_then(Value::as_array).into_iter().flatten() }.filter_map(Value::as_str);
    let hides = |path: &&str| {
        nodes
            .iter()
            .any(|node| clean(&node.path).starts_with(clean(path)))
    };
    paths.find(hides).map_or(Ok(()), |path| {
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
    let mut kept = Vec::with_capacity(devices.len());
    for (at, device) in devices.drain(..).enumerate() {
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
        if keep(path, number) {
            kept.push(device);
        }
    }
    *devices = kept;
    Ok(())
}

/// Removes the rules that name NVIDIA's numbers, puts a deny-all rule first if it is missing, and appends
/// the rules of the granted nodes. It fails if the result allows more than these nodes.
pub fn put_rules(
    document: &mut Document,
    nodes: &[DeviceNode],
    numbers: &NvidiaNumbers,
) -> Result<()> {
    let resources = object(linux(document)?, "resources", "linux.resources")?;
    let devices = array(resources, "devices", RULES)?;
    let mut rules = parse(devices)?;
    let named: Vec<bool> = rules.iter().map(|rule| names(rule, numbers)).collect();
    // An error names a rule by its index in the original file.
    let mut places: Vec<Option<usize>> = (0..rules.len()).map(Some).collect();
    keep_unnamed(&mut rules, &named);
    keep_unnamed(&mut places, &named);
    keep_unnamed(devices, &named);

    if !rules.first().is_some_and(Rule::denies_everything) {
        let deny = json!({"allow": false, "access": "rwm"});
        rules.insert(0, Rule::parse(&deny, RULES)?);
        places.insert(0, None);
        devices.insert(0, deny);
    }
    for node in nodes {
        let rule = LinuxDeviceCgroupBuilder::default()
            .allow(true)
            .typ(DeviceType::C)
            .major(node.major)
            .minor(node.minor)
            .access("rwm")
            .build()
            .context(|| format!("make the rule for {}", node.path.display()))?;
        let rule = serde_json::to_value(rule).context(|| "write a device rule as JSON")?;
        rules.push(Rule::parse(&rule, RULES)?);
        places.push(None);
        devices.push(rule);
    }
    check(&rules, &places, nodes, numbers)
}

fn parse(devices: &[Value]) -> Result<Vec<Rule>> {
    if devices.len() > RULES_LIMIT {
        return Err(Error::new(format!(
            "{RULES} in config.json has more than {RULES_LIMIT} rules"
        )));
    }
    devices
        .iter()
        .enumerate()
        .map(|(at, rule)| Rule::parse(rule, &format!("{RULES}[{at}]")))
        .collect()
}

/// Returns whether the rule allows NVIDIA's devices and no others.
fn names(rule: &Rule, numbers: &NvidiaNumbers) -> bool {
    rule.allow
        && rule.major.is_some_and(|major| {
            numbers.majors.contains(&major)
                || rule
                    .minor
                    .is_some_and(|minor| numbers.drm.contains(&(major, minor)))
        })
}

fn keep_unnamed<T>(list: &mut Vec<T>, named: &[bool]) {
    let mut named = named.iter();
    list.retain(|_| !named.next().copied().unwrap_or_default());
}

fn check(
    rules: &[Rule],
    places: &[Option<usize>],
    nodes: &[DeviceNode],
    numbers: &NvidiaNumbers,
) -> Result<()> {
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
            let place = places[at].map_or(String::new(), |place| format!(" {RULES}[{place}]"));
            return Err(Error::new(format!(
                "device rule{place} ({}) lets the container open NVIDIA devices that are not in its slice, {major}:{minor} for one",
                rules[at]
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
    let Some(Value::Object(linux)) = get_mut(&mut document.root, "linux") else {
        return Ok(());
    };
    if let Some(Value::Array(devices)) = get_mut(linux, "devices") {
        retain_nodes(devices, |_, number| {
            !number.is_some_and(|(major, minor)| is_nvidia(numbers, major, minor))
        })?;
    }
    if let Some(Value::Object(resources)) = get_mut(linux, "resources")
        && let Some(Value::Array(devices)) = get_mut(resources, "devices")
    {
        let rules = parse(devices)?;
        let named: Vec<bool> = rules.iter().map(|rule| names(rule, numbers)).collect();
        keep_unnamed(devices, &named);
    }
    Ok(())
}
