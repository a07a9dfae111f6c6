//! A configuration file as text, to the byte as mig-parted writes it.

use super::file::{Devices, Entry};
use super::key_order;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Go's YAML starts another line before an item beyond this column.
const WIDTH: usize = 80;

/// Named configurations, to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Document(pub BTreeMap<String, Vec<Entry>>);

impl Document {
    /// Returns the text in YAML, with a line end.
    pub fn yaml(&self) -> String {
        let mut text = "version: v1\nmig-configs:\n".to_owned();
        let mut names: Vec<&String> = self.0.keys().collect();
        names.sort_by(|a, b| key_order::compare(a, b));
        for name in names {
            let _ = write!(text, "  {}:", scalar(name));
            if self.0[name].is_empty() {
                text.push_str(" []");
            }
            text.push('\n');
            for entry in &self.0[name] {
                write_entry(&mut text, entry);
            }
        }
        text
    }

    /// Returns the text in JSON, without a line end.
    pub fn json(&self) -> String {
        let entries = |entries: &Vec<Entry>| Value::from_iter(entries.iter().map(json_entry));
        let configurations = self.0.iter().map(|(name, of)| (name.clone(), entries(of)));
        let configurations: Map<String, Value> = configurations.collect();
        let document = json!({"version": "v1", "mig-configs": configurations});
        serde_json::to_string_pretty(&document).expect("only strings are keys")
    }
}

fn write_entry(text: &mut String, entry: &Entry) {
    let mut lines = Vec::new();
    let filters: Vec<String> = entry.filters.iter().map(|f| format!("{f:?}")).collect();
    match &filters[..] {
        [] => {}
        [one] => lines.push(format!("device-filter: {one}")),
        several => lines.push(flow("device-filter", several)),
    }
    lines.push(match &entry.devices {
        Devices::All => "devices: all".to_owned(),
        Devices::Listed(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
            flow("devices", &numbers)
        }
    });
    lines.push(format!("mig-enabled: {}", entry.mig_enabled));
    lines.push(match entry.instances.is_empty() {
        true => "mig-devices: {}".to_owned(),
        false => "mig-devices:".to_owned(),
    });
    let mut names: Vec<&String> = entry.instances.keys().collect();
    names.sort_by(|a, b| key_order::compare(a, b));
    for name in names {
        lines.push(format!("  {name}: {}", entry.instances[name]));
    }
    for (n, line) in lines.iter().enumerate() {
        let mark = if n == 0 { "  - " } else { "    " };
        let _ = writeln!(text, "{mark}{line}");
    }
}

/// Writes a list on one line, as far as the width allows.
fn flow(key: &str, items: &[String]) -> String {
    const INDENT: usize = 4;
    let mut text = format!("{key}: [");
    let mut column = INDENT + text.len();
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            text.push(',');
            column += 1;
        }
        if column > WIDTH {
            text.push_str("\n      ");
            column = INDENT + 2;
        } else if n > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(item);
        column += item.len();
    }
    text.push(']');
    text
}

fn scalar(text: &str) -> String {
    match key_order::is_plain(text) {
        true => text.to_owned(),
        false => format!("\"{text}\""),
    }
}

fn json_entry(entry: &Entry) -> Value {
    let mut fields = Map::new();
    match &entry.filters[..] {
        [] => {}
        [one] => drop(fields.insert("device-filter".to_owned(), json!(one))),
        several => drop(fields.insert("device-filter".to_owned(), json!(several))),
    }
    let devices = match &entry.devices {
        Devices::All => json!("all"),
        Devices::Listed(numbers) => json!(numbers),
    };
    fields.insert("devices".to_owned(), devices);
    fields.insert("mig-enabled".to_owned(), json!(entry.mig_enabled));
    fields.insert("mig-devices".to_owned(), json!(entry.instances));
    Value::Object(fields)
}
