//! The one look that every create takes, of containers that ask for nothing too: so most files are
//! only searched for a word, and of the others nothing is built but the annotations.

use super::document::{not_json, text};
use super::hooks::is_ours;
use crate::error::Result;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// In every annotation key of ours, and in the name of our hook.
const WORD: &str = "runmig";
/// How else a letter of it could be written in JSON.
const ESCAPE: &str = "\\u";

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// Empty where none can be ours.
    pub annotations: BTreeMap<String, String>,
    /// Our hook is in it: an earlier create of ours left its edit there.
    pub marked: bool,
}

pub fn peek(bytes: &[u8]) -> Result<Peek> {
    let text = text(bytes)?;
    if !text.contains(WORD) && !text.contains(ESCAPE) {
        return Ok(Peek::default());
    }
    let seen: Config = serde_json::from_str(text).map_err(not_json)?;
    let poststop = seen.hooks.and_then(|hooks| hooks.poststop);
    Ok(Peek {
        annotations: seen.annotations.unwrap_or_default().0,
        marked: poststop.unwrap_or_default().iter().any(|hook| {
            let args = hook.args.as_deref().unwrap_or_default();
            is_ours(args.iter().map(AsRef::as_ref))
        }),
    })
}

#[derive(Deserialize)]
struct Config<'a> {
    annotations: Option<Annotations>,
    #[serde(borrow)]
    hooks: Option<Hooks<'a>>,
}

/// A key may stand there twice only if it says the same twice: low-level runtimes and we would each
/// take the one they like.
#[derive(Default)]
struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Annotations, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            let before = all.insert(key.clone(), value.clone());
            if before.is_some_and(|before| before != value) {
                let key: String = key.chars().take(80).collect();
                return Err(de::Error::custom(format_args!(
                    "annotation {key} contradicts itself"
                )));
            }
        }
        Ok(Annotations(all))
    }
}

#[derive(Deserialize)]
struct Hooks<'a> {
    #[serde(borrow)]
    poststop: Option<Vec<Hook<'a>>>,
}

#[derive(Deserialize)]
struct Hook<'a> {
    #[serde(borrow)]
    args: Option<Vec<Cow<'a, str>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_and_our_mark_are_all_it_sees() {
        let seen = peek(br#"{"process":{"env":["A=\u0000"]},"annotations":{"\u0072unmig.dev/slice":"1g.10gb"},"hooks":{"poststop":[{"path":"/x"},{"path":"/y","args":["runmig-hook","--lease","ab"]}]},"n":18446744073709551616}"#).unwrap();
        assert_eq!(seen.annotations["runmig.dev/slice"], "1g.10gb");
        assert!(seen.marked);
        for plain in [
            r#"{"x":"runmig"}"#,
            r#"{"annotations":null,"hooks":null,"x":"runmig"}"#,
            r#"{"hooks":{"poststop":null,"prestart":[3]},"x":"runmig"}"#,
            r#"{"hooks":{"poststop":[{"path":"/usr/bin/runmig-hook","args":["runmig-hook"]}]}}"#,
        ] {
            let seen = peek(plain.as_bytes()).unwrap();
            assert!(seen.annotations.is_empty() && !seen.marked, "{plain}");
        }
    }

    #[test]
    fn what_is_no_config_is_refused() {
        let line = peek(br#"{"annotations":{"runmig.dev/slice":1}}"#)
            .unwrap_err()
            .line();
        assert_eq!(
            line,
            "config.json is not what the OCI specification says: invalid type: integer `1`, expected a string at line 1 column 36"
        );
        assert!(peek(br#"{"a":"runmig"} x"#).is_err());
    }

    #[test]
    fn an_annotation_that_contradicts_itself_is_refused() {
        let twice =
            br#"{"annotations":{"runmig.dev/slice":"1g.10gb","runmig.dev/slice":"7g.80gb"}}"#;
        let line = peek(twice).unwrap_err().line();
        assert!(
            line.contains("annotation runmig.dev/slice contradicts itself"),
            "{line}"
        );
        let same =
            br#"{"annotations":{"runmig.dev/slice":"1g.10gb","runmig.dev/slice":"1g.10gb"}}"#;
        assert_eq!(peek(same).unwrap().annotations.len(), 1);
    }

    #[test]
    fn a_word_of_ours_is_seen_however_it_is_written() {
        let escaped =
            br#"{"annotations":{"\u0072\u0075\u006d\u0069\u0067.dev/slice":"1g.10gb","a":"b"}}"#;
        assert_eq!(peek(escaped).unwrap().annotations.len(), 2);
        // nothing of ours: whether it is a config.json is for the low-level runtime to say
        for others in [&br#"{"annotations":{"a":"b"}}"#[..], b"not JSON"] {
            assert_eq!(peek(others).unwrap(), Peek::default());
        }
    }
}
