//! A handler beside others is to differ from the default one in the program alone: what the
//! administrator told that one (systemd's cgroups, the monitor) holds for ours.

use super::table;
use toml::{Table, Value};

/// `key = value` lines of what is set in `from`; what is empty is no setting.
pub fn lines(from: Option<&Table>, wanted: impl Fn(&str) -> bool) -> String {
    let mut lines = String::new();
    for (key, value) in from.into_iter().flatten() {
        if wanted(key) && says_something(value) {
            lines.push_str(&format!("{key} = {}\n", table::value(value)));
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
