//! The changes between two JSON documents, path by path.

use serde_json::Value;

/// `+ /path`, `- /path` and `~ /path`, in the order of the documents.
pub fn diff(before: &Value, after: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    compare("", before, after, &mut changes);
    changes
}

fn compare(at: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                match b.get(key) {
                    Some(other) => compare(&format!("{at}/{key}"), value, other, changes),
                    None => changes.push(format!("- {at}/{key}")),
                }
            }
            let new = b.keys().filter(|key| !a.contains_key(*key));
            changes.extend(new.map(|key| format!("+ {at}/{key}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            let gone = a.iter().filter(|value| !b.contains(value));
            changes.extend(gone.map(|value| format!("- {at}[{value}]")));
            let new = b.iter().filter(|value| !a.contains(value));
            changes.extend(new.map(|value| format!("+ {at}[{value}]")));
            let kept = |of: &[Value], by: &[Value]| -> Vec<Value> {
                of.iter().filter(|v| by.contains(v)).cloned().collect()
            };
            if kept(a, b) != kept(b, a) {
                changes.push(format!("~ {at}: order"));
            }
        }
        (a, b) if a != b => changes.push(format!("~ {at}")),
        _ => {}
    }
}
