//! Adds a member to a JSON file that others wrote, or removes it.
//!
//! jsonc-parser finds the members; this file puts text beside them. Its editor (feature `cst`) is no use here: it
//! breaks an object in one line into several lines and closes up an empty one, and its removal does not undo that.
//! `daemon_json_gains_only_the_runtime` and `removal_restores_daemon_json` have such files.

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use runmig_lease::error::{Context, Error, Result};

/// Stands before a member in an object that was there and was empty: no object that runmig makes begins so.
const INTO_EMPTY: &str = " ";

/// Returns a file with nothing but this member.
pub fn alone(path: &[&str], key: &str, value: &str) -> String {
    format!("{}\n", nested(path, key, value, Some("  "), 0))
}

/// Adds `"key": value` to the object at `path`, and the objects of the path that are missing.
pub fn with_member(text: &str, path: &[&str], key: &str, value: &str) -> Result<String> {
    let root = parse(text)?;
    let unit = unit(text, &root);
    let mut object = &root;
    for (depth, name) in path.iter().enumerate() {
        match find(object, name).map(|member| &member.value) {
            Some(Value::Object(inner)) => object = inner,
            _ => {
                let made = nested(&path[depth + 1..], key, value, unit, depth + 1);
                return Ok(insert(text, object, name, &made, unit));
            }
        }
    }
    Ok(insert(text, object, key, value, unit))
}

/// Removes a member, and the objects of the path that `with_member` made and that are then empty.
pub fn without_member(text: &str, path: &[&str], key: &str) -> Result<String> {
    let root = parse(text)?;
    let mut object = &root;
    for name in path {
        match find(object, name).map(|member| &member.value) {
            Some(Value::Object(inner)) => object = inner,
            _ => return Ok(text.to_owned()),
        }
    }
    let all = &object.properties;
    let Some(index) = all.iter().position(|member| member.name.as_str() == key) else {
        return Ok(text.to_owned());
    };
    let inside = object.start() + 1;
    let was_empty = text[inside..all[0].start()] == *INTO_EMPTY;
    if let (1, false, Some((last, outer))) = (all.len(), was_empty, path.split_last()) {
        return without_member(text, outer, last);
    }
    let cut = match (index, all.get(1)) {
        (0, None) if was_empty => inside..all[0].end(),
        (0, None) => inside..object.end() - 1,
        (0, Some(next)) => all[0].start()..next.start(),
        _ => all[index - 1].end()..all[index].end(),
    };
    Ok(format!("{}{}", &text[..cut.start], &text[cut.end..]))
}

fn parse(text: &str) -> Result<Object<'_>> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
    match parsed.context(|| "edit the file")?.value {
        Some(Value::Object(root)) => Ok(root),
        _ => Err(Error::new("cannot edit the file: it is not a JSON object")),
    }
}

/// Returns the member that counts: of two with one name, the last.
fn find<'a, 'b>(object: &'a Object<'b>, key: &str) -> Option<&'a ObjectProp<'b>> {
    let mut members = object.properties.iter().rev();
    members.find(|member| member.name.as_str() == key)
}

fn insert(text: &str, object: &Object<'_>, key: &str, value: &str, unit: Option<&str>) -> String {
    let member = member(key, value, unit);
    let (at, added) = match object.properties.last() {
        Some(last) => {
            // The new member is as far from the last one as that is from the text before it.
            let before = text[..last.start()].trim_end().len();
            let blank = &text[before..last.start()];
            (last.end(), format!(",{blank}{member}"))
        }
        None => (object.start() + 1, format!("{INTO_EMPTY}{member}")),
    };
    format!("{}{added}{}", &text[..at], &text[at..])
}

/// Returns nested objects, with the member in the innermost.
fn nested(path: &[&str], key: &str, value: &str, unit: Option<&str>, depth: usize) -> String {
    let innermost = object_of(key, value, unit, depth + path.len());
    let outwards = path.iter().enumerate().rev();
    outwards.fold(innermost, |made, (more, name)| {
        object_of(name, &made, unit, depth + more)
    })
}

fn object_of(key: &str, value: &str, unit: Option<&str>, depth: usize) -> String {
    let member = member(key, value, unit);
    match unit {
        None => format!("{{{member}}}"),
        Some(unit) => {
            let (inner, outer) = (unit.repeat(depth + 1), unit.repeat(depth));
            format!("{{\n{inner}{member}\n{outer}}}")
        }
    }
}

fn member(key: &str, value: &str, unit: Option<&str>) -> String {
    let key = serde_json::Value::from(key);
    let blank = if unit.is_some() { " " } else { "" };
    format!("{key}:{blank}{value}")
}

/// Returns the indentation of the file's first member, or `None` if it is in the line of the bracket.
fn unit<'a>(text: &'a str, root: &Object<'_>) -> Option<&'a str> {
    let first = root.properties.first()?;
    let blank = &text[root.start() + 1..first.start()];
    blank.rsplit_once('\n').map(|(_, indent)| indent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = r#"{"path":"/r"}"#;

    #[test]
    fn removing_a_member_restores_the_text() {
        for (text, expected) in [
            ("{}\n", "{ \"runtimes\":{\"r\":{\"path\":\"/r\"}}}\n"),
            (
                "{ \"runtimes\" : {\n}}",
                "{ \"runtimes\" : { \"r\":{\"path\":\"/r\"}\n}}",
            ),
            (r#"{"a":1}"#, r#"{"a":1,"runtimes":{"r":{"path":"/r"}}}"#),
            (
                "{\n\t\"a\": \"}\\\"\",\n\t\"n\": 1.50\n}",
                "{\n\t\"a\": \"}\\\"\",\n\t\"n\": 1.50,\n\t\"runtimes\": {\n\t\t\"r\": {\"path\":\"/r\"}\n\t}\n}",
            ),
            (
                "{\n    \"runtimes\": {\n        \"x\": {\"path\": \"/x\", \"a\": [{}, []]}\n    },\n    \"z\": null\n}\n",
                "{\n    \"runtimes\": {\n        \"x\": {\"path\": \"/x\", \"a\": [{}, []]},\n        \"r\": {\"path\":\"/r\"}\n    },\n    \"z\": null\n}\n",
            ),
            (
                " {\"runtimes\" : { \"x\": 1 }}",
                " {\"runtimes\" : { \"x\": 1, \"r\":{\"path\":\"/r\"} }}",
            ),
        ] {
            let more = with_member(text, &["runtimes"], "r", VALUE).unwrap();
            assert_eq!(more, expected);
            serde_json::from_str::<serde_json::Value>(&more).unwrap();
            assert_eq!(without_member(&more, &["runtimes"], "r").unwrap(), text);
            assert_eq!(without_member(text, &["runtimes"], "r").unwrap(), text);
        }
    }

    #[test]
    fn removes_one_of_several_members() {
        let text = r#"{"runtimes": {"a": 1, "b": 2, "c": 3}}"#;
        assert_eq!(
            without_member(text, &["runtimes"], "a").unwrap(),
            r#"{"runtimes": {"b": 2, "c": 3}}"#
        );
        assert_eq!(
            without_member(text, &["runtimes"], "b").unwrap(),
            r#"{"runtimes": {"a": 1, "c": 3}}"#
        );
    }

    fn any_value() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<i32>().prop_map(Into::into),
            "[{}\\[\\],:\"\\\\ a\n]{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            let key = "[{}\",\\\\ a]{0,3}|runtimes";
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::vec((key, inner), 0..4)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Value>()),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn keeps_all_other_members(members in proptest::collection::vec(("[a-c]", any_value()), 0..4),
                                       others in proptest::option::of(proptest::collection::vec(("[\"x-z]", any_value()), 0..3)),
                                       indent in "[ ]{0,4}|\t") {
            let mut root: serde_json::Map<_, _> = members.into_iter().collect();
            if let Some(others) = others {
                root.insert("runtimes".into(), others.into_iter().collect::<serde_json::Value>());
            }
            let root = serde_json::Value::Object(root);
            let mut pretty = Vec::new();
            let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            let mut serializer = serde_json::Serializer::with_formatter(&mut pretty, formatter);
            serde::Serialize::serialize(&root, &mut serializer).unwrap();
            for text in [root.to_string(), String::from_utf8(pretty).unwrap()] {
                let more = with_member(&text, &["runtimes", "r"], "path", "\"/r\"").unwrap();
                let mut expected = root.clone();
                expected["runtimes"]["r"]["path"] = "/r".into();
                let parsed: serde_json::Value = serde_json::from_str(&more).unwrap();
                proptest::prop_assert_eq!(parsed, expected);
                proptest::prop_assert_eq!(without_member(&more, &["runtimes"], "r").unwrap(), text);
            }
        }
    }
}
