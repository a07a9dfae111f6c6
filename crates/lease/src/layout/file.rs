//! The format of mig-parted's configuration file, version 1. A file that mig-parted refuses is refused here.

use super::node::Node;
use crate::error::{Context, Error, Result};
use crate::model::ProfileName;
use crate::{files, trust};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// The version of the format.
pub(super) const VERSION: &str = "v1";
/// mig-parted's own file has 30 KiB.
const MAX_SIZE: u64 = 1024 * 1024;

/// A file with named configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutFile {
    configurations: BTreeMap<String, Vec<Entry>>,
}

/// A configuration of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Its name.
    pub name: String,
    /// Its entries in the order of the file.
    pub entries: Vec<Entry>,
}

/// The state that some GPUs are to have.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Entry {
    /// The models of the entry, such as `0x20B210DE`; none for all.
    #[serde(rename = "device-filter", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// The GPUs of the entry, among those of its models.
    pub devices: Devices,
    /// Whether MIG is to be on.
    pub mig_enabled: bool,
    /// The number of instances by their names, such as `1g.10gb` or `1c.3g.40gb`.
    #[serde(rename = "mig-devices")]
    pub instances: BTreeMap<String, i64>,
}

/// The GPUs of an entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Devices {
    /// All.
    All,
    /// The driver's indexes.
    #[serde(untagged)]
    Listed(Vec<i64>),
}

impl LayoutFile {
    /// Reads a file. Root acts on it, so only root may have written it.
    ///
    /// # Errors
    /// A file, a folder or a link on the way to it that users other than root can change; more than 1 MiB.
    pub fn read(path: &Path) -> Result<LayoutFile> {
        let what = || format!("read configuration file {}", path.display());
        let text = trust::read_to_string(path, MAX_SIZE).context(what)?;
        LayoutFile::parse(&text).context(what)
    }

    /// Reads a file from a stream, such as standard input.
    pub fn read_from(stream: impl Read) -> Result<LayoutFile> {
        let what = || "read the configuration from standard input";
        let bytes = files::read_rest(stream, MAX_SIZE).context(what)?;
        let text = std::str::from_utf8(&bytes).context(what)?;
        LayoutFile::parse(text).context(what)
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<LayoutFile> {
        let node = Node::parse(text)?;
        let keys = node.map()?;
        check_version(keys)?;
        let mut configurations = BTreeMap::new();
        for (key, value) in keys {
            match key.as_str() {
                "version" => {}
                "mig-configs" => {
                    let named = value.map().context(|| "read mig-configs")?;
                    if named.is_empty() {
                        return Err(Error::new("mig-configs is empty").hint("add a configuration"));
                    }
                    for (name, entries) in named {
                        let entries =
                            entries_of(entries).context(|| format!("read configuration {name}"))?;
                        configurations.insert(name.clone(), entries);
                    }
                }
                other => return Err(unknown_key(other)),
            }
        }
        Ok(LayoutFile { configurations })
    }

    /// Returns a configuration, or the only one without a name.
    ///
    /// # Errors
    /// A missing configuration, and none named of several.
    pub fn select(&self, name: Option<&str>) -> Result<Configuration> {
        let names: Vec<&str> = self.configurations.keys().map(String::as_str).collect();
        let name = match (name, names.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, []) => return Err(Error::new("it has no configuration")),
            (None, _) => {
                let why = Error::new("it has several configurations");
                return Err(why.hint(format!("choose one with -c: {}", names.join(", "))));
            }
        };
        let entries = self.configurations.get(name).ok_or_else(|| {
            let why = Error::new(format!("it has no configuration {name:?}"));
            match names.is_empty() {
                true => why,
                false => why.hint(format!("choose one of {}", names.join(", "))),
            }
        })?;
        Ok(Configuration {
            name: name.to_owned(),
            entries: entries.clone(),
        })
    }
}

fn check_version(keys: &[(String, Node)]) -> Result<()> {
    let version = keys.iter().find(|(key, _)| key == "version");
    let why = match version {
        Some((_, Node::Text(version))) if version == VERSION => return Ok(()),
        Some((_, Node::Text(version))) => format!("it has the unknown version {version:?}"),
        _ => "it has no version".to_owned(),
    };
    Err(Error::new(why).hint(format!("write version: {VERSION}")))
}

fn unknown_key(key: &str) -> Error {
    Error::new(format!("the key {key:?} is unknown")).hint("remove it")
}

fn entries_of(node: &Node) -> Result<Vec<Entry>> {
    let items = node.list()?;
    if items.is_empty() {
        return Err(Error::new("it is empty").hint("add an entry with devices and mig-enabled"));
    }
    let numbered = items.iter().enumerate();
    numbered
        .map(|(n, item)| entry(item).context(|| format!("read entry {}", n + 1)))
        .collect()
}

fn entry(node: &Node) -> Result<Entry> {
    let (mut filters, mut devices, mut mig_enabled, mut instances) = (Vec::new(), None, None, None);
    for (key, value) in node.map()? {
        let what = || format!("read {key}");
        match key.as_str() {
            "device-filter" => filters = filters_of(value).context(what)?,
            "devices" => devices = Some(devices_of(value).context(what)?),
            "mig-enabled" => mig_enabled = Some(switch(value).context(what)?),
            "mig-devices" => instances = instances_of(value).context(what)?,
            other => return Err(unknown_key(other)),
        }
    }
    let missing = |key: &str| Error::new(format!("it has no {key}"));
    let devices = devices.ok_or_else(|| missing("devices").hint("write devices: all"))?;
    let mig_enabled =
        mig_enabled.ok_or_else(|| missing("mig-enabled").hint("write mig-enabled: true"))?;
    let instances = match instances {
        None if mig_enabled => {
            let why = Error::new("it has no mig-devices, and mig-enabled is true");
            return Err(why.hint("write mig-devices: {} for a GPU without instances"));
        }
        instances => instances.unwrap_or_default(),
    };
    if !mig_enabled && !instances.is_empty() {
        let why = Error::new("it has mig-devices, and mig-enabled is false");
        return Err(why.hint("leave out mig-devices, or write mig-enabled: true"));
    }
    Ok(Entry {
        filters,
        devices,
        mig_enabled,
        instances,
    })
}

fn filters_of(node: &Node) -> Result<Vec<String>> {
    let text = |node: &Node| match node {
        Node::Text(text) => Ok(text.clone()),
        other => Err(Error::new(format!("it is {}, not a text", other.kind()))
            .hint("write the number in quotes")),
    };
    match node {
        Node::List(items) => items.iter().map(text).collect(),
        one => Ok(vec![text(one)?]),
    }
}

fn devices_of(node: &Node) -> Result<Devices> {
    let number = |node: &Node| match node {
        Node::Whole(number) => Ok(*number),
        other => Err(Error::new(format!("it has {}, not a number", other.kind()))),
    };
    let error = match node {
        Node::Text(text) if text == "all" => return Ok(Devices::All),
        Node::List(items) => match items.iter().map(number).collect() {
            Ok(numbers) => return Ok(Devices::Listed(numbers)),
            Err(e) => e,
        },
        Node::Text(text) => Error::new(format!("{text:?} is not a list of GPUs")),
        other => Error::new(format!("it is {}", other.kind())),
    };
    Err(error.hint("write all, or a list of numbers"))
}

fn switch(node: &Node) -> Result<bool> {
    match node {
        Node::Bool(value) => Ok(*value),
        other => {
            let why = format!("it is {}, not true or false", other.kind());
            Err(Error::new(why).hint("write true or false"))
        }
    }
}

/// Returns none for nothing.
fn instances_of(node: &Node) -> Result<Option<BTreeMap<String, i64>>> {
    if *node == Node::Null {
        return Ok(None);
    }
    let mut instances = BTreeMap::new();
    for (name, count) in node.map()? {
        if !is_instance_name(name) {
            let why = Error::new(format!("{name:?} is not a name of a MIG instance"));
            return Err(why.hint("write a name as 1g.10gb, 1g.10gb+me or 1c.3g.40gb"));
        }
        let why = match count {
            Node::Whole(count) if *count >= 0 => {
                instances.insert(name.clone(), *count);
                continue;
            }
            Node::Whole(count) => format!("{name} has the count {count}"),
            other => format!("{name} has {} as count", other.kind()),
        };
        return Err(Error::new(why).hint("write a count of 1 or more"));
    }
    if !instances.is_empty() && instances.values().all(|count| *count == 0) {
        return Err(Error::new("every count is 0").hint("write {} for a GPU without instances"));
    }
    Ok(Some(instances))
}

/// Returns whether a text has the form of a profile's name, or of a compute instance's as `1c.3g.40gb`.
fn is_instance_name(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let profile = match text.split_once("c.") {
        Some((slices, profile)) if is_number(slices) => profile,
        _ => text,
    };
    profile.parse::<ProfileName>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_configuration_by_name() {
        let entry = "[{devices: all, mig-enabled: false}]";
        let file = |names: &[&str]| {
            let named: Vec<String> = names.iter().map(|n| format!("{n}: {entry}")).collect();
            let text = format!("version: v1\nmig-configs: {{{}}}", named.join(", "));
            LayoutFile::parse(&text).unwrap()
        };
        assert_eq!(file(&["a"]).select(None).unwrap().name, "a");
        assert_eq!(file(&["a", "1"]).select(Some("1")).unwrap().name, "1");
        let line = |names: &[&str], name| file(names).select(name).unwrap_err().line();
        assert!(line(&["a", "b"], None).ends_with("hint: choose one with -c: a, b"));
        assert!(line(&["a"], Some("c")).ends_with("hint: choose one of a"));
    }

    #[test]
    fn reads_what_it_writes() {
        let of = |(name, count): &(&str, i64)| ((*name).to_owned(), *count);
        let entry = |filters: &[&str], devices, mig_enabled, instances: &[(&str, i64)]| Entry {
            filters: filters.iter().map(|f| (*f).to_owned()).collect(),
            devices,
            mig_enabled,
            instances: instances.iter().map(of).collect(),
        };
        let read = |file: &str| LayoutFile::parse(file)?.select(None).map(|all| all.entries);
        let entries = [
            entry(&[], Devices::All, false, &[]),
            entry(
                &["0x1", "0x2:0x3"],
                Devices::Listed(vec![0, 7]),
                true,
                &[("1c.3g.40gb", 3), ("1g.10gb+me", 1)],
            ),
            entry(&["0x1"], Devices::Listed(vec![]), true, &[]),
        ];
        let file = serde_json::json!({"version": VERSION, "mig-configs": {"all": entries}});
        assert_eq!(read(&file.to_string()).unwrap(), entries);
        // One filter needs no list, and a GPU without MIG no devices.
        let file = "{version: v1, mig-configs: {all: [{device-filter: '0x1', devices: [], mig-enabled: true, mig-devices: {}},
            {devices: all, mig-enabled: false, mig-devices: null}]}}";
        let expected = [entries[2].clone(), entries[0].clone()];
        assert_eq!(read(file).unwrap(), expected);
    }

    #[test]
    fn names_what_is_wrong_in_an_entry() {
        for (entry, words) in rows! {
            "mig-enabled: false" => "cannot read configuration all: cannot read entry 1: it has no devices; hint: write devices: all";
            "devices: all" => "it has no mig-enabled; hint: write mig-enabled: true";
            "devices: all, mig-enabled: true" => "it has no mig-devices, and mig-enabled is true";
            "devices: all, mig-enabled: true, mig-devices: null" => "it has no mig-devices, and mig-enabled is true";
            "devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}" => "it has mig-devices, and mig-enabled is false";
            "devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}" => "every count is 0";
            "devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}" => "1g.5gb has the count -1";
            "devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1.5}" => "1g.5gb has a number as count";
            "devices: all, mig-enabled: true, mig-devices: {big: 1}" => "\"big\" is not a name of a MIG instance";
            "devices: some, mig-enabled: false" => "\"some\" is not a list of GPUs; hint: write all, or a list";
            "devices: [a], mig-enabled: false" => "it has a text, not a number";
            "devices: all, mig-enabled: 1" => "not true or false";
            "device-filter: 1, devices: all, mig-enabled: false" => "hint: write the number in quotes";
            "devices: all, mig-enabled: false, gpus: all" => "the key \"gpus\" is unknown; hint: remove it";
        } {
            let file = format!("{{version: v1, mig-configs: {{all: [{{{entry}}}]}}}}");
            let line = LayoutFile::parse(&file).unwrap_err().line();
            assert!(line.contains(words), "{entry}: {line}");
        }
        for (file, words) in rows! {
            "{mig-configs: {}}" => "it has no version; hint: write version: v1";
            "{version: v2}" => "it has the unknown version \"v2\"";
            "{version: v1, mig-configs: {}}" => "mig-configs is empty";
            "{version: v1, mig-configs: {all: []}}" => "cannot read configuration all: it is empty; hint: add an entry";
            "{version: v1, configs: {}}" => "the key \"configs\" is unknown; hint: remove it";
        } {
            let line = LayoutFile::parse(file).unwrap_err().line();
            assert!(line.contains(words), "{file}: {line}");
        }
    }

    #[test]
    fn knows_names_of_instances() {
        for name in ["1g.10gb", "1c.3g.40gb", "1g.24gb+me.all", "1c.1g.24gb-me"] {
            assert!(is_instance_name(name), "{name}");
        }
        for name in [
            "",
            "1g",
            "1c.1c.1g.10gb",
            "c.1g.10gb",
            "1g.10gb me",
            "MIG 1g.10gb",
        ] {
            assert!(!is_instance_name(name), "{name}");
        }
    }

    #[test]
    fn reads_files_and_streams_of_a_mib() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layouts.yaml");
        let file = |more: usize| {
            let entry = "{devices: all, mig-enabled: false}";
            let comment = "x".repeat(more);
            format!("version: v1\nmig-configs: {{day: [{entry}]}}\n#{comment}")
        };
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let day = |file: Result<LayoutFile>| file?.select(Some("day")).map(|day| day.name);
            [
                day(LayoutFile::read(&path)),
                day(LayoutFile::read_from(text.as_bytes())),
            ]
        };
        for (text, is_read) in rows! {
            file(1_000_000) => true;
            file(1_048_576) => false;
            "version: v2".to_owned() => false;
        } {
            for day in read(&text) {
                assert_eq!(day.is_ok(), is_read, "{day:?} of {} bytes", text.len());
            }
        }
    }
}
