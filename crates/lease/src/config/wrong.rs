//! What is wrong in a configuration, in plain words: a parser has its own.

use crate::error::{Error, printable};
use crate::request::nearest;
use std::ops::Range;

const KEYS: &str = "see docs/configuration.md for the keys";

/// Returns the error for a parser's message about a part of the text.
pub(super) fn in_words(text: &str, message: &str, span: Option<Range<usize>>) -> Error {
    let Some((span, value)) = span.and_then(|span| Some((span.clone(), text.get(span)?))) else {
        return Error::new(message).hint(KEYS);
    };
    let (before, _) = text.split_at(span.start);
    let line = before.matches('\n').count() + 1;
    let key = before.rsplit('\n').next().unwrap_or_default();
    let key = key.trim().trim_end_matches('=').trim_end();
    let (why, hint) = why(message, key, value);
    let hint = hint.unwrap_or_else(|| KEYS.to_owned());
    Error::new(printable(&format!("line {line}: {why}"))).hint(printable(&hint))
}

/// Returns what is wrong and what to write, where the message tells. serde quotes the found word first, then all that it
/// knows.
fn why(message: &str, key: &str, value: &str) -> (String, Option<String>) {
    let mut words = message.split('`').skip(1).step_by(2);
    let found = words.next().unwrap_or_default();
    let known: Vec<&str> = words.collect();
    // Somebody may have left out the end of a long key.
    let is_begun = |key: &&&str| found.len() > 6 && key.starts_with(found);
    let begun = known.iter().find(is_begun).copied();
    let right = begun.or_else(|| nearest(found, known.iter().copied()));
    if message.starts_with("unknown field") {
        let hint = right.map(|right| format!("write {right}"));
        return (format!("unknown key {found}"), hint);
    }
    if message.starts_with("unknown variant") {
        let hint = match right {
            Some(right) => format!("write \"{right}\""),
            None => format!("write one of {}", known.join(", ")),
        };
        return (format!("unknown value \"{found}\""), Some(hint));
    }
    const NO_BOOLEAN: &str = "is neither true nor false";
    let is_bare = value.bytes().all(|b| b.is_ascii_alphabetic());
    // The parser took it for the start of such a word.
    let is_cut = { ["nan", "true", "false"].iter() }
        .any(|word| message.contains(&format!("expected `{word}`")));
    if message.starts_with("string values must be quoted") || is_bare && is_cut {
        let (is, hint) = match value.to_ascii_lowercase().as_str() {
            "yes" | "no" | "on" | "off" | "true" | "false" => (
                NO_BOOLEAN,
                format!("write true or false, or a text in quotes: \"{value}\""),
            ),
            _ => ("is not in quotes", format!("write \"{value}\"")),
        };
        return (format!("{key} = {value} {is}"), Some(hint));
    }
    if message.ends_with(" is not a duration") || message.ends_with(" has no unit") {
        return (message.to_owned(), Some("write it as \"30s\"".to_owned()));
    }
    let Some((_, expected)) = message
        .strip_prefix("invalid ")
        .and_then(|rest| rest.split_once(", expected "))
    else {
        return (message.to_owned(), None);
    };
    let is_number = |name: &str| name.trim_start_matches(['u', 'i']).parse::<u8>().is_ok();
    let what = if key.is_empty() {
        value.to_owned()
    } else {
        format!("{key} = {value}")
    };
    let (is, hint) = match expected {
        "a duration" if value.bytes().all(|b| b.is_ascii_digit()) => {
            ("has no unit", format!("write \"{value}s\""))
        }
        "a duration" => ("is not a duration", "write it as \"30s\"".to_owned()),
        "a string" | "path string" => {
            let text = value.trim_matches('"');
            ("is not in quotes", format!("write \"{text}\""))
        }
        "a boolean" => (NO_BOOLEAN, "write true or false without quotes".to_owned()),
        "a sequence" => ("is not a list", format!("write [{value}]")),
        number if is_number(number) => (
            "is not a whole number that fits",
            "write a whole number, without quotes or sign".to_owned(),
        ),
        map if map.starts_with("struct ") => ("is not a section", format!("write [{key}]")),
        other => return (format!("{what} is not {other}"), None),
    };
    (format!("{what} {is}"), Some(hint))
}
