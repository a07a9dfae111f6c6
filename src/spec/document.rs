//! Parses config.json as a tree that keeps everything: order, unknown fields, numbers of any size, and
//! layout.

use super::reading;
use runmig_lease::error::{Context, Error, Result};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};
use std::path::Path;

/// The largest config.json that runmig reads, in bytes. Engines write some 20 KiB.
pub const LIMIT: u64 = 16 * 1024 * 1024;

pub struct Document {
    pub root: Map<String, Value>,
    layout: Layout,
}

/// The layout of a file. Engines write one line; `runc spec` and people indent.
struct Layout {
    indent: Option<Vec<u8>>,
    newline_at_end: bool,
}

impl Document {
    /// Parses config.json. It refuses a file that low-level runtimes could read differently.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let text = text(bytes)?;
        let root: Value = serde_json::from_str(text).map_err(not_json)?;
        reading::check(bytes)?;
        let Value::Object(root) = root else {
            return Err(Error::new("config.json is not a JSON object"));
        };
        Ok(Document {
            root,
            layout: Layout::of(text),
        })
    }

    /// Returns the value under keys, each in the object of the one before.
    fn at(&self, keys: &[&str]) -> Option<&Value> {
        let (first, rest) = keys.split_first()?;
        { rest.iter() }.try_fold(self.root.get(*first)?, |object, key| object.get(key))
    }

    pub fn text(&self, keys: &[&str]) -> Option<&str> {
        self.at(keys)?.as_str()
    }

    /// Returns the list under keys. A missing one is empty, and so is anything else.
    pub fn list(&self, keys: &[&str]) -> &[Value] {
        let list = self.at(keys).and_then(Value::as_array);
        list.map_or(&[], Vec::as_slice)
    }

    pub fn list_mut(&mut self, keys: &[&str]) -> Option<&mut Vec<Value>> {
        let (first, rest) = keys.split_first()?;
        let first = self.root.get_mut(*first)?;
        let found = { rest.iter() }.try_fold(first, |object, key| object.get_mut(key));
        found?.as_array_mut()
    }

    pub fn mounts(&self) -> &[Value] {
        self.list(&["mounts"])
    }

    /// Returns the paths of `linux.maskedPaths`. A low-level runtime passes over an empty one.
    pub fn masked_paths(&self) -> impl Iterator<Item = &str> {
        let paths = self.list(&["linux", "maskedPaths"]).iter();
        paths
            .filter_map(Value::as_str)
            .filter(|path| !path.is_empty())
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let what = || "write config.json as JSON";
        let mut out = match &self.layout.indent {
            None => serde_json::to_vec(&self.root).context(what)?,
            Some(indent) => {
                let mut out = Vec::new();
                let pretty = PrettyFormatter::with_indent(indent);
                let mut serializer = Serializer::with_formatter(&mut out, pretty);
                self.root.serialize(&mut serializer).context(what)?;
                out
            }
        };
        if self.layout.newline_at_end {
            out.push(b'\n');
        }
        Ok(out)
    }
}

impl Layout {
    fn of(text: &str) -> Self {
        let inside = text.trim_start().strip_prefix('{').unwrap_or_default();
        let blank = &inside[..inside.len() - inside.trim_start().len()];
        Layout {
            indent: blank
                .rsplit_once('\n')
                .map(|(_, indent)| indent.as_bytes().to_vec()),
            newline_at_end: text.ends_with('\n'),
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    if bytes.len() as u64 > LIMIT {
        let why = format!("config.json is longer than {LIMIT} bytes");
        return Err(Error::new(why).hint("make it shorter"));
    }
    std::str::from_utf8(bytes).because(|| "config.json is not UTF-8")
}

pub fn not_json(e: serde_json::Error) -> Error {
    if e.to_string().starts_with("recursion limit exceeded") {
        return Error::new("config.json is nested more than 127 levels deep").hint("nest it less");
    }
    let what = match e.classify() {
        serde_json::error::Category::Eof if e.line() <= 1 && e.column() == 0 => {
            "config.json is empty"
        }
        serde_json::error::Category::Eof => "config.json is cut off",
        serde_json::error::Category::Data => "config.json is not what the OCI specification says",
        _ => "config.json is not JSON",
    };
    Error::new(what).caused_by(e)
}

/// Returns the value of a key. Like runc, it takes null for absent.
pub fn get<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

/// Returns the text under a key. Errors call the map `at`.
pub fn string<'a>(map: &'a Map<String, Value>, key: &str, at: &str) -> Result<Option<&'a str>> {
    let wrong = || wrong_kind(&format!("{at}.{key}"), "string");
    get(map, key)
        .map(|value| value.as_str().ok_or_else(wrong))
        .transpose()
}

pub fn get_mut<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Value> {
    map.get_mut(key).filter(|value| !value.is_null())
}

/// Returns the object under a key, and creates it if it is missing.
pub fn object<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
    at: &str,
) -> Result<&'a mut Map<String, Value>> {
    let value = map.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value
        .as_object_mut()
        .ok_or_else(|| wrong_kind(at, "object"))
}

/// Returns the array under a key, and creates it if it is missing.
pub fn array<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
    at: &str,
) -> Result<&'a mut Vec<Value>> {
    let value = map.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().ok_or_else(|| wrong_kind(at, "array"))
}

/// Keeps the values for which `keep` says so, each with its place in the list.
///
/// # Errors
/// The first error of `keep`. The rest of the list is lost then.
pub fn try_retain(
    list: &mut Vec<Value>,
    mut keep: impl FnMut(usize, &Value) -> Result<bool>,
) -> Result<()> {
    for (at, value) in std::mem::take(list).into_iter().enumerate() {
        if keep(at, &value)? {
            list.push(value);
        }
    }
    Ok(())
}

/// Returns a part of config.json that was made with the types of its specification.
pub fn part(made: oci_spec::Result<impl Serialize>) -> Result<Value> {
    let what = || "make a part of config.json";
    serde_json::to_value(made.context(what)?).context(what)
}

/// Returns a path for JSON, which is text.
pub fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::new(format!("path {path:?} is not UTF-8")).hint("use a path that is valid UTF-8")
    })
}

pub fn wrong_kind(at: &str, kind: &str) -> Error {
    let article = if kind.starts_with(['a', 'o']) {
        "an"
    } else {
        "a"
    };
    Error::new(format!("{at} in config.json is not {article} {kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(text: &str) -> String {
        let document = Document::parse(text.as_bytes()).unwrap();
        String::from_utf8(document.to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn keeps_content_and_layout() {
        for text in [
            r#"{"z":18446744073709551616,"a":1e+400,"b":-0.10,"c":{"unknown":[null,true]},"":"é\n"}"#,
            "{\n\t\"b\": 1,\n\t\"a\": [\n\t\t2\n\t],\n\t\"c\": {}\n}",
            "{\n    \"b\": 1\n}\n",
            "{}",
        ] {
            assert_eq!(through(text), text);
        }
    }

    fn refused(text: &[u8]) -> String {
        Document::parse(text).err().unwrap().line()
    }

    #[test]
    fn bad_input_is_named() {
        assert_eq!(
            refused(b""),
            "config.json is empty: EOF while parsing a value at line 1 column 0"
        );
        assert_eq!(
            refused(b"{\n\"a\": [1,"),
            "config.json is cut off: EOF while parsing a value at line 2 column 8"
        );
        assert_eq!(
            refused(b"not json"),
            "config.json is not JSON: expected ident at line 1 column 2"
        );
        assert_eq!(refused(b"[]"), "config.json is not a JSON object");
        assert!(refused(b"{\"a\":\"\xff\"}").starts_with("config.json is not UTF-8: "));
        assert_eq!(
            refused("[".repeat(100_000).as_bytes()),
            "config.json is nested more than 127 levels deep; hint: nest it less"
        );
        assert!(refused(br#"{"$serde_json::private::Number":"1"}"#).contains("cannot be carried"));
    }
}
