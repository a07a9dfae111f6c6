//! A member more, or less, in a JSON file that somebody else wrote: its text is kept to the byte.
//! serde_json has read the text before, so it is JSON; here only places in it are found.

use std::ops::Range;

struct Member {
    key: Range<usize>,
    value: Range<usize>,
}

/// A file with nothing but this member.
pub fn alone(path: &[&str], key: &str, value: &str) -> String {
    format!("{}\n", nested(path, key, value, Some("  "), 0))
}

/// `"key": value` into the object at `path`, whose objects are made where they are not.
pub fn with_member(text: &str, path: &[&str], key: &str, value: &str) -> String {
    let unit = unit(text);
    let mut object = skip_blank(text, 0);
    for (depth, name) in path.iter().enumerate() {
        match find(text, object, name) {
            Some(member) => object = member.value.start,
            None => {
                let made = nested(&path[depth + 1..], key, value, unit, depth + 1);
                return insert(text, object, name, &made, unit);
            }
        }
    }
    insert(text, object, key, value, unit)
}

/// Objects in one another, with the member in the last.
fn nested(path: &[&str], key: &str, value: &str, unit: Option<&str>, depth: usize) -> String {
    // From the inside out.
    let mut made = object_of(key, value, unit, depth + path.len());
    for (more, name) in path.iter().enumerate().rev() {
        made = object_of(name, &made, unit, depth + more);
    }
    made
}

/// Takes it out, and the objects at `path` that are then empty and were not before.
pub fn without_member(text: &str, path: &[&str], key: &str) -> String {
    let mut object = skip_blank(text, 0);
    for name in path {
        match find(text, object, name) {
            Some(member) => object = member.value.start,
            None => return text.to_owned(),
        }
    }
    let all = members(text, object);
    let Some(index) = all.iter().position(|m| is_called(text, m, key)) else {
        return text.to_owned();
    };
    let was_empty = text[object + 1..].starts_with(INTO_EMPTY)
        && object + 1 + INTO_EMPTY.len() == all[0].key.start;
    if let ([_], false, Some((last, outer))) = (all.as_slice(), was_empty, path.split_last()) {
        return without_member(text, outer, last);
    }
    let cut = match (index, all.get(index + 1)) {
        (0, None) if was_empty => object + 1..all[0].value.end,
        (0, None) => object + 1..closing(text, object),
        (0, Some(next)) => all[0].key.start..next.key.start,
        _ => all[index - 1].value.end..all[index].value.end,
    };
    format!("{}{}", &text[..cut.start], &text[cut.end..])
}

/// Before a member in an object that was there and was empty: in one that is made, none stands so.
const INTO_EMPTY: &str = " ";

fn insert(text: &str, object: usize, key: &str, value: &str, unit: Option<&str>) -> String {
    match members(text, object).last() {
        Some(last) => {
            // As far from it as it is from what stands before it.
            let before = text[..last.key.start].trim_end().len();
            let blank = &text[before..last.key.start];
            let at = last.value.end;
            format!(
                "{},{blank}{}{}",
                &text[..at],
                member(key, value, unit),
                &text[at..]
            )
        }
        None => {
            let (before, after) = text.split_at(object + 1);
            format!("{before}{INTO_EMPTY}{}{after}", member(key, value, unit))
        }
    }
}

fn object_of(key: &str, value: &str, unit: Option<&str>, depth: usize) -> String {
    let member = member(key, value, unit);
    match unit {
        None => format!("{{{member}}}"),
        Some(unit) => format!(
            "{{\n{}{member}\n{}}}",
            unit.repeat(depth + 1),
            unit.repeat(depth)
        ),
    }
}

fn member(key: &str, value: &str, unit: Option<&str>) -> String {
    let key = serde_json::Value::from(key);
    match unit {
        None => format!("{key}:{value}"),
        Some(_) => format!("{key}: {value}"),
    }
}

/// What one step to the right is; none where all stands in one line.
fn unit(text: &str) -> Option<&str> {
    let object = skip_blank(text, 0);
    match members(text, object).first() {
        None => None,
        Some(first) => {
            let blank = &text[object + 1..first.key.start];
            blank.rsplit_once('\n').map(|(_, indent)| indent)
        }
    }
}

fn find(text: &str, object: usize, key: &str) -> Option<Member> {
    // Of two with one name, the last counts.
    members(text, object)
        .into_iter()
        .rev()
        .find(|m| is_called(text, m, key))
}

fn is_called(text: &str, member: &Member, key: &str) -> bool {
    serde_json::from_str::<String>(&text[member.key.clone()]).is_ok_and(|found| found == key)
}

fn members(text: &str, object: usize) -> Vec<Member> {
    let mut found = Vec::new();
    let mut at = skip_blank(text, object + 1);
    while text[at..].starts_with('"') {
        let key = at..end_of_value(text, at);
        let start = skip_blank(text, skip_blank(text, key.end) + 1);
        let value = start..end_of_value(text, start);
        at = skip_blank(text, value.end);
        found.push(Member { key, value });
        if text[at..].starts_with(',') {
            at = skip_blank(text, at + 1);
        }
    }
    found
}

fn closing(text: &str, object: usize) -> usize {
    end_of_value(text, object) - 1
}

fn skip_blank(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

fn end_of_value(text: &str, start: usize) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in text.bytes().enumerate().skip(start) {
        match c {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => {
                quoted = !quoted;
                if !quoted && depth == 0 {
                    return at + 1;
                }
            }
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 1 => depth -= 1,
            b'}' | b']' if depth == 1 => return at + 1,
            b',' | b'}' | b']' if depth == 0 => return text[..at].trim_end().len(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = r#"{"path":"/r"}"#;

    #[test]
    fn a_member_more_and_everything_else_to_the_byte() {
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
            let more = with_member(text, &["runtimes"], "r", VALUE);
            assert_eq!(more, expected);
            serde_json::from_str::<serde_json::Value>(&more).unwrap();
            assert_eq!(without_member(&more, &["runtimes"], "r"), text);
            assert_eq!(without_member(text, &["runtimes"], "r"), text);
        }
    }

    #[test]
    fn the_first_and_the_middle_go_alone() {
        let text = r#"{"runtimes": {"a": 1, "b": 2, "c": 3}}"#;
        assert_eq!(
            without_member(text, &["runtimes"], "a"),
            r#"{"runtimes": {"b": 2, "c": 3}}"#
        );
        assert_eq!(
            without_member(text, &["runtimes"], "b"),
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
        fn whatever_stands_there_stays(members in proptest::collection::vec(("[a-c]", any_value()), 0..4),
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
                let more = with_member(&text, &["runtimes", "r"], "path", "\"/r\"");
                let mut expected = root.clone();
                expected["runtimes"]["r"]["path"] = "/r".into();
                let parsed: serde_json::Value = serde_json::from_str(&more).unwrap();
                proptest::prop_assert_eq!(parsed, expected);
                proptest::prop_assert_eq!(without_member(&more, &["runtimes"], "r"), text);
            }
        }
    }
}
