//! Copies settings from the default handler (systemd's cgroups, the monitor), so that runmig's handler differs from it
//! in the program alone.

use toml::{Table, Value};

/// Returns `key = value` lines of the wanted keys in `from`. An empty value is no setting.
pub fn lines(from: Option<&Table>, wanted: impl Fn(&str) -> bool) -> String {
    let mut lines = String::new();
    for (key, value) in from.into_iter().flatten() {
        if wanted(key) && says_something(value) {
            lines.push_str(&format!("{key} = {value}\n"));
        }
    }
    lines
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
