//! The values of a YAML or JSON text, bounded: an alias counts as all that it stands for.

use crate::error::{Context, Error, Result};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// More than any layout has, and little enough to hold.
const MAX_NODES: usize = 100_000;
/// The bytes of all texts. A file is smaller, but an alias repeats a text.
const MAX_TEXT: usize = 4 * 1024 * 1024;

/// A value. Mappings keep the order of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Whole(i64),
    /// A number that is not whole, or too large.
    Number,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Parses a text.
    ///
    /// # Errors
    /// Text that is no YAML, a key that stands twice, and more than 100,000 values or 4 MiB of texts.
    pub(super) fn parse(text: &str) -> Result<Node> {
        let left = Left {
            nodes: Cell::new(MAX_NODES),
            text: Cell::new(MAX_TEXT),
        };
        // The parser takes a byte order mark for a document of its own.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let deserializer = serde_yaml_ng::Deserializer::from_str(text);
        Seed(&left)
            .deserialize(deserializer)
            .context(|| "read it as YAML")
    }

    /// Names the kind of value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Node::Null => "nothing",
            Node::Bool(_) => "true or false",
            Node::Whole(_) | Node::Number => "a number",
            Node::Text(_) => "a text",
            Node::List(_) => "a list",
            Node::Map(_) => "a mapping",
        }
    }

    /// Returns the keys of a mapping with their values.
    pub(super) fn map(&self) -> Result<&[(String, Node)]> {
        match self {
            Node::Map(entries) => Ok(entries),
            other => Err(Error::new(format!("it is {}, not a mapping", other.kind()))),
        }
    }

    /// Returns the items of a list.
    pub(super) fn list(&self) -> Result<&[Node]> {
        match self {
            Node::List(items) => Ok(items),
            other => Err(Error::new(format!("it is {}, not a list", other.kind()))),
        }
    }

    /// Returns the text of a key. YAML 1.1 takes numbers and truth values as keys too.
    fn key(self) -> Option<String> {
        match self {
            Node::Text(text) => Some(text),
            Node::Whole(number) => Some(number.to_string()),
            Node::Bool(value) => Some(value.to_string()),
            _ => None,
        }
    }
}

/// The values and texts that may still come.
struct Left {
    nodes: Cell<usize>,
    text: Cell<usize>,
}

/// Reads a value, and counts it off the rest.
struct Seed<'a>(&'a Left);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Node, D::Error> {
        let why = || format!("it has more than {MAX_NODES} values, aliases included");
        let left = self.0.nodes.get().checked_sub(1);
        let left = left.ok_or_else(|| de::Error::custom(why()))?;
        self.0.nodes.set(left);
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_unit<E>(self) -> std::result::Result<Node, E> {
        Ok(Node::Null)
    }

    /// An empty text.
    fn visit_none<E>(self) -> std::result::Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Node, E> {
        Ok(Node::Whole(value))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Node, E> {
        Ok(i64::try_from(value).map_or(Node::Number, Node::Whole))
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Node, E> {
        Ok(Node::Number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Node, E> {
        let why = || format!("it has more than {MAX_TEXT} bytes of texts, aliases included");
        let left = self.0.text.get().checked_sub(text.len());
        let left = left.ok_or_else(|| E::custom(why()))?;
        self.0.text.set(left);
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> std::result::Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(Seed(self.0))? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> std::result::Result<Node, A::Error> {
        let mut entries = Vec::<(String, Node)>::new();
        let mut keys = std::collections::BTreeSet::new();
        while let Some(key) = from.next_key_seed(Seed(self.0))? {
            let Some(key) = key.key() else {
                return Err(de::Error::custom("a key is not text"));
            };
            let value = from.next_value_seed(Seed(self.0))?;
            if !keys.insert(key.clone()) {
                return Err(de::Error::custom(format!("the key {key:?} stands twice")));
            }
            entries.push((key, value));
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_texts_behind_aliases() {
        let aliases = vec!["*a"; 100].join(", ");
        let text = format!("a: &a {}\nb: [{aliases}]", "x".repeat(50_000));
        let line = Node::parse(&text).unwrap_err().line();
        assert!(line.contains("more than 4194304 bytes of texts"), "{line}");
    }

    /// Editors of other systems begin a file with it.
    #[test]
    fn skips_byte_order_mark() {
        for text in [
            "version: v1\nmig-configs: {}\n",
            "{\"a\": [1, 2]}",
            "# c\n---\na: b\n",
        ] {
            let marked = Node::parse(&format!("\u{feff}{text}")).unwrap();
            let plain = Node::parse(text).unwrap();
            assert_eq!(format!("{marked:?}"), format!("{plain:?}"), "{text}");
        }
    }

    #[test]
    fn refuses_repeated_key() {
        let line = Node::parse("a: 1\n'a': 2").unwrap_err().line();
        assert!(line.contains("the key \"a\" stands twice"), "{line}");
    }

    #[test]
    fn takes_truth_values_as_keys_and_nothing_as_nothing() {
        let entries = |text: &str| Node::parse(text).unwrap().map().map(<[_]>::to_vec);
        let all = entries("true: 1\n2:\n").unwrap();
        assert_eq!(
            all,
            [
                ("true".to_owned(), Node::Whole(1)),
                ("2".to_owned(), Node::Null)
            ]
        );
        assert_eq!(Node::parse("").unwrap(), Node::Null);
        let line = Node::parse("!tag a").unwrap_err().line();
        assert!(line.contains("expected a value without a tag"), "{line}");
    }
}
