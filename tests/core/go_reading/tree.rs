//! JSON that can say what a parsed tree cannot: a key twice, in any case and spelling, odd numbers.

use crate::below;
use serde_json::Value;
use testkit::random::Random;

/// Texts and keys are written as they stand here, between quotes.
#[derive(Clone)]
pub enum Tree {
    Object(Vec<(String, Tree)>),
    Array(Vec<Tree>),
    Text(String),
    Plain(String),
}

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "-0",
    "195",
    "195.0",
    "1.95e2",
    "195e0",
    "4294967296",
    "9223372036854775808",
    "18446744073709551611",
    "1e400",
    "\"195\"",
];

impl Tree {
    pub fn of(value: &Value) -> Tree {
        let inside = |text: &Value| {
            let quoted = text.to_string();
            quoted[1..quoted.len() - 1].to_owned()
        };
        match value {
            Value::Object(map) => {
                let entries = map
                    .iter()
                    .map(|(key, value)| (inside(&Value::from(key.as_str())), Tree::of(value)));
                Tree::Object(entries.collect())
            }
            Value::Array(list) => Tree::Array(list.iter().map(Tree::of).collect()),
            Value::String(_) => Tree::Text(inside(value)),
            other => Tree::Plain(other.to_string()),
        }
    }

    /// Changes something, somewhere.
    pub fn mutate(&mut self, dice: &mut Random) {
        let deeper = !dice.one_in(3);
        match self {
            Tree::Object(entries) if deeper && !entries.is_empty() => {
                let at = below(dice, entries.len());
                entries[at].1.mutate(dice);
            }
            Tree::Array(list) if deeper && !list.is_empty() => {
                let at = below(dice, list.len());
                list[at].mutate(dice);
            }
            Tree::Object(entries) if !entries.is_empty() => {
                let at = below(dice, entries.len());
                let (key, value) = entries[at].clone();
                match below(dice, 7) {
                    0 => entries.push((key, value)),
                    1 => entries.insert(at, (key, Tree::Plain("null".into()))),
                    2 => entries.push((spelled(&key, dice), value)),
                    3 => entries[at].0 = spelled(&key, dice),
                    4 => {
                        let other = entries[below(dice, entries.len())].1.clone();
                        entries.push((spelled(&key, dice), other));
                    }
                    5 => drop(entries.remove(at)),
                    _ => entries[at].1 = Tree::Plain("null".into()),
                }
            }
            Tree::Array(list) if !list.is_empty() => {
                let at = below(dice, list.len());
                match below(dice, 3) {
                    0 => list.push(list[at].clone()),
                    1 => list[at] = Tree::Plain("null".into()),
                    _ => drop(list.remove(at)),
                }
            }
            Tree::Text(text) => match below(dice, 3) {
                0 => *text = spelled(text, dice),
                1 => *self = Tree::Plain(NUMBERS[below(dice, NUMBERS.len())].into()),
                _ => *self = Tree::Array(Vec::new()),
            },
            plain => *plain = Tree::Plain(NUMBERS[below(dice, NUMBERS.len())].into()),
        }
    }

    pub fn to_bytes(&self, dice: &mut Random) -> Vec<u8> {
        let mut text = String::new();
        self.write(&mut text);
        let mut bytes = text.into_bytes();
        if dice.one_in(40) {
            bytes.extend_from_slice(b" {\"x\":1}");
        }
        if dice.one_in(40) {
            let at = below(dice, bytes.len());
            bytes.insert(at, 0xff);
        }
        bytes
    }

    fn write(&self, out: &mut String) {
        match self {
            Tree::Object(entries) => {
                out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if at == 0 { "\"" } else { ",\"" });
                    out.push_str(key);
                    out.push_str("\":");
                    value.write(out);
                }
                out.push('}');
            }
            Tree::Array(list) => {
                out.push('[');
                for (at, value) in list.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    value.write(out);
                }
                out.push(']');
            }
            Tree::Text(text) => {
                out.push('"');
                out.push_str(text);
                out.push('"');
            }
            Tree::Plain(text) => out.push_str(text),
        }
    }
}

/// The same word to some reader: in another case, with an escape, with a letter that folds into it.
fn spelled(word: &str, dice: &mut Random) -> String {
    let chars: Vec<char> = word.chars().collect();
    let at = below(dice, chars.len());
    let kind = below(dice, 7);
    let change = |(n, c): (usize, &char)| match (kind, *c) {
        (0, c) if n == 0 => c.to_uppercase().to_string(),
        (1, c) => c.to_ascii_uppercase().to_string(),
        (2, c) if n == at && c != '\\' => format!("\\u{:04x}", c as u32),
        (3, c) if n == at && c.is_ascii_alphabetic() => ((c as u8 ^ 0x20) as char).to_string(),
        (4, 's') => "\u{17f}".into(),
        (4, 'k') => "\\u212a".into(),
        (5, c) if n + 1 == chars.len() => format!("{c}\\u0000"),
        (6, c) if n == at => format!("{c}\\ud800"),
        (_, c) => c.to_string(),
    };
    chars.iter().enumerate().map(change).collect()
}
