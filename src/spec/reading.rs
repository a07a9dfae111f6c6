//! Checks that every low-level runtime reads a config.json as runmig does.
//!
//! Go's encoding/json, as in runc and nvidia-container-runtime, matches a key in another case to the one it
//! knows. It merges a key that occurs twice. crun takes the first of two, and ends a string at a NUL.
//! runmig's own tree keeps the last of two. If these differ, the seal would hold for another container than
//! the one that starts. So runmig gives such a file no slice.

use super::lenient_json::{Text, Token, Tokens};
use super::oci::{is_map, known_name};
use runmig_lease::error::{Error, Result, printable};
use std::borrow::Cow;
use std::collections::HashSet;

/// The key that serde_json uses for a number of any size. serde_json would take an object with this key for
/// a number.
const NUMBER_KEY: &str = "$serde_json::private::";

/// An open object or array.
struct Level<'a> {
    keys: HashSet<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
    /// Says whether the low-level runtimes read it. They skip every value under an unknown key.
    is_read: bool,
    /// Says whether the user chooses its keys, as in annotations and sysctls.
    is_map: bool,
}

/// Refuses a file that readers read differently. The bytes must be JSON.
pub fn check(bytes: &[u8]) -> Result<()> {
    let mut levels: Vec<Level> = Vec::new();
    for token in Tokens::new(bytes) {
        let token = token.map_err(|_| Error::new("config.json is not JSON"))?;
        match token {
            Token::Object | Token::Array => levels.push(inside(levels.last())),
            Token::End => drop(levels.pop()),
            Token::Key(key) => take_key(&mut levels, key)?,
            Token::Text(text) => {
                let is_annotation =
                    levels.len() == 2 && levels[0].key.as_deref() == Some("annotations");
                if is_read(&levels) && !is_annotation && text.lossy().contains('\0') {
                    return Err(cut_short(&name(&levels)));
                }
            }
            Token::Plain => {}
        }
    }
    Ok(())
}

fn inside<'a>(outer: Option<&Level<'a>>) -> Level<'a> {
    let under = outer.and_then(|level| level.key.as_deref());
    let is_read = match (outer, under) {
        (None, _) => true,
        (Some(outer), Some(key)) => outer.is_read && (outer.is_map || known_name(key) == Some(key)),
        (Some(outer), None) => outer.is_read,
    };
    Level {
        keys: HashSet::new(),
        key: None,
        is_read,
        is_map: under.is_some_and(is_map),
    }
}

/// Returns whether the low-level runtimes read the next value.
fn is_read(levels: &[Level]) -> bool {
    let last = levels.last();
    last.is_some_and(|level| inside(Some(level)).is_read)
}

fn take_key<'a>(levels: &mut [Level<'a>], key: Text<'a>) -> Result<()> {
    let key = key.lossy();
    let Some(level) = levels.last_mut() else {
        return Ok(());
    };
    level.key = Some(key.clone());
    let is_new = level.keys.insert(key.clone());
    let (is_read, is_map) = (level.is_read, level.is_map);
    let at = name(levels);
    if key.starts_with(NUMBER_KEY) {
        return Err(Error::new(format!(
            "config.json holds {NUMBER_KEY}, which cannot be carried through an edit"
        )));
    }
    if !is_new {
        return Err(Error::new(format!(
            "cannot read config.json: {at} occurs twice, and low-level runtimes differ in what they make of it"
        ))
        .hint("take one of the two out"));
    }
    if !is_read {
        return Ok(());
    }
    if let Some((before, _)) = key.split_once('\0')
        && (is_map || known_name(before) == Some(before))
    {
        return Err(cut_short(&at));
    }
    match known_name(&key) {
        Some(known) if known != key && !is_map => Err(Error::new(format!(
            "cannot read config.json: {at} is {known} to some low-level runtimes and nothing to others"
        ))
        .hint(format!("write it as {known}, or take it out"))),
        _ => Ok(()),
    }
}

fn cut_short(at: &str) -> Error {
    Error::new(format!(
        "cannot read config.json: {at} holds a NUL, where some low-level runtimes end it"
    ))
    .hint("take the NUL out")
}

/// Returns the name of the current field, as `linux.resources.devices`, without array indices.
fn name(levels: &[Level]) -> String {
    const LONGEST: usize = 80;
    let keys = levels.iter().filter_map(|level| level.key.as_deref());
    let name = keys.collect::<Vec<&str>>().join(".");
    let end: Vec<char> = name.chars().rev().take(LONGEST).collect();
    printable(&end.into_iter().rev().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        check(text.as_bytes()).unwrap_err().line()
    }

    #[test]
    fn refuses_keys_in_another_case() {
        for (text, at, known) in testkit::rows! {
            r#"{"Linux":{}}"#, "Linux" => "linux";
            r#"{"ANNOTATIONS":{}}"#, "ANNOTATIONS" => "annotations";
            r#"{"process":{"user":{"UID":0}}}"#, "process.user.UID" => "uid";
            r#"{"linux":{"resources":{"devices":[{"Allow":true}]}}}"#, "linux.resources.devices.Allow" => "allow";
            r#"{"linux":{"devices":[{},{"Type":"c"}]}}"#, "linux.devices.Type" => "type";
            r#"{"mounts":[{"Source":"/dev"}]}"#, "mounts.Source" => "source";
            r#"{"linux":{"namespaces":[{"tYpe":"pid"}]}}"#, "linux.namespaces.tYpe" => "type";
            r#"{"hooks":{"postStop":[]}}"#, "hooks.postStop" => "poststop";
            r#"{"hooks":{"poststop":[{"Args":[]}]}}"#, "hooks.poststop.Args" => "args";
            // the two letters outside ASCII that Go folds into ASCII letters
            "{\"proce\u{17f}s\":{}}", "proce\u{17f}s" => "process";
            r#"{"hoo\u212as":{}}"#, "hoo\u{212a}s" => "hooks";
            r#"{"linux":{"rdma":{"mlx":{"HcaHandles":1}}}}"#, "linux.rdma.mlx.HcaHandles" => "hcaHandles";
        } {
            assert_eq!(
                refused(text),
                format!(
                    "cannot read config.json: {at} is {known} to some low-level runtimes and nothing \
                     to others; hint: write it as {known}, or take it out"
                )
            );
        }
    }

    #[test]
    fn leaves_users_keys_alone() {
        for text in [
            r#"{"annotations":{"Path":"x","a":"b","A":"c","Linux":"d"},"linux":{"sysctl":{"Name":"1"}}}"#,
            r#"{"linux":{"netDevices":{"Type":{"name":"eth1"}}}}"#,
            r#"{"x-vendor":{"Name":"y","Type":[{"Path":"\u0000"}]}}"#,
            r#"{"annotations":{"a":"\u0000b"}}"#,
            r#"{"mounts":[{"source":"a"},{"source":"b"}],"number":18446744073709551616}"#,
            r#"{"text":"$serde_json::private::Number"}"#,
        ] {
            check(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        }
    }

    #[test]
    fn refuses_keys_that_occur_twice() {
        for (text, at) in testkit::rows! {
            r#"{"linux":{},"linux":{}}"# => "linux";
            r#"{"linux":{"devices":[],"x":1,"devices":[]}}"# => "linux.devices";
            r#"{"annotations":{"a":"b","\u0061":"b"}}"# => "annotations.a";
            r#"{"x":[[{"y":{"z":1,"z":1}}]]}"# => "x.y.z";
        } {
            assert_eq!(
                refused(text),
                format!(
                    "cannot read config.json: {at} occurs twice, and low-level runtimes differ in what \
                     they make of it; hint: take one of the two out"
                )
            );
        }
        let long = "k".repeat(1 << 20);
        assert!(refused(&format!(r#"{{"{long}":1,"{long}":2}}"#)).len() < 300);
    }

    #[test]
    fn refuses_a_nul_that_is_read() {
        for (text, at) in testkit::rows! {
            r#"{"mounts":[{"type":"bind\u0000x"}]}"# => "mounts.type";
            r#"{"mounts":[{"options":["rbind\u0000"]}]}"# => "mounts.options";
            r#"{"linux":{"devices\u0000":[]}}"# => "linux.devices\\u{0}";
            r#"{"annotations":{"a\u0000":"b"}}"# => "annotations.a\\u{0}";
        } {
            let line = refused(text);
            assert!(line.contains(&format!("{at} holds a NUL")), "{line}");
        }
    }

    #[test]
    fn refuses_the_key_of_numbers() {
        for key in [
            "$serde_json::private::Number",
            "\\u0024serde_json::private::RawValue",
        ] {
            let line = refused(&format!(r#"{{"a":{{"{key}":"1"}}}}"#));
            assert!(line.contains("cannot be carried"), "{line}");
        }
    }
}
