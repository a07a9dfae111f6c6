//! Reads TOML that others wrote, and copies settings from it, so that runmig's handler differs from the default one (systemd's
//! cgroups, the monitor) in the program alone.

use runmig_lease::error::{Error, Result};
use std::ops::Range;
use toml::{Table, Value};

/// Parses a TOML file. The error names the line.
pub fn parse(text: &str) -> Result<Table> {
    toml::from_str(text).map_err(|e| at_line(text, e.span(), e.message()))
}

/// Returns the error of a TOML parser with the line it means.
pub fn at_line(text: &str, span: Option<Range<usize>>, message: &str) -> Error {
    let line = span.map_or(0, |span| text[..span.start].matches('\n').count()) + 1;
    Error::new(format!("line {line}: {}", message.trim_end()))
}

/// Returns whether two files hold the same values. Comments and layout do not count.
pub fn same(a: &str, b: &str) -> bool {
    matches!((parse(a), parse(b)), (Ok(a), Ok(b)) if a == b)
}

/// Returns the value at `keys`, tables in tables.
pub fn at<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    rest.iter()
        .try_fold(table.get(*first)?, |value, key| value.get(key))
}

/// Returns the strings of the array at a key; none where the key is missing.
pub fn strings(table: &Table, key: &str) -> Result<Vec<String>> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let strings = value.clone().try_into();
    strings.map_err(|_| Error::new(format!("{key} is not an array of strings")))
}

/// Returns `key = value` lines of the wanted keys in `from`. An empty value counts as unset.
pub fn settings(from: Option<&Table>, wanted: impl Fn(&str) -> bool) -> String {
    let settings = from.into_iter().flatten();
    settings
        .filter(|(key, value)| wanted(key) && says_something(value))
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect()
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::String(s) => !s.is_empty(),
        Value::Integer(n) => *n != 0,
        Value::Boolean(b) => *b,
        Value::Array(a) => !a.is_empty(),
        Value::Table(_) => false,
        _ => true,
    }
}
