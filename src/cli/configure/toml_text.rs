//! Edits one value in a TOML file that others wrote: a string of an array, or the string at a key.

use super::block::{self, OURS};
use super::table::at_line;
use runmig_lease::error::{Error, Result};
use toml_edit::{Array, Decor, DocumentMut, Item, Table, Value};

/// Stands between the comment of a changed value and the old value.
const INSTEAD: &str = " in place of ";

/// Parses the file, edits it, and writes it with all other bytes as they were.
///
/// toml_edit writes every line with a line feed. So this keeps a last line without an end
/// (`containerd_1_gains_only_the_handler`) and CRLF, and refuses a file that toml_edit would lay out
/// anew, such as one whose dotted keys of one table stand apart.
fn edit(text: &str, change: impl FnOnce(&mut DocumentMut) -> Result<()>) -> Result<String> {
    let crlf = text.contains("\r\n");
    let bare = text.replace("\r\n", "\n");
    let mut document = parse(&bare)?;
    let ended = text.is_empty() || text.ends_with('\n');
    let render = |document: &DocumentMut| {
        let all = document.to_string();
        let kept = all.strip_suffix('\n').filter(|_| !ended).unwrap_or(&all);
        match crlf {
            true => kept.replace('\n', "\r\n"),
            false => kept.to_owned(),
        }
    };
    if render(&document) != text {
        return Err(Error::new("cannot edit the file and keep its layout")
            .hint("join the dotted keys of each table and end all lines in one way"));
    }
    change(&mut document)?;
    Ok(render(&document))
}

fn parse(text: &str) -> Result<DocumentMut> {
    text.parse()
        .map_err(|e: toml_edit::TomlError| at_line(text, e.span(), e.message()))
}

/// Returns the strings of the array at the top-level `key`; none where the key is missing.
pub fn strings(text: &str, key: &str) -> Result<Vec<String>> {
    let document = parse(text)?;
    let Some(item) = document.get(key) else {
        return Ok(Vec::new());
    };
    let array = item
        .as_array()
        .ok_or_else(|| Error::new(format!("{key} is not an array")))?;
    let strings = array.iter().map(|value| value.as_str().map(str::to_owned));
    strings
        .collect::<Option<_>>()
        .ok_or_else(|| Error::new(format!("{key} has a value that is not a string")))
}

/// Adds a string to the array at the top-level `key`, and the array where it is missing.
pub fn with_string(text: &str, key: &str, string: &str) -> Result<String> {
    strings(text, key)?;
    edit(text, |document| {
        match document.get_mut(key).and_then(Item::as_array_mut) {
            Some(array) => insert_first(array, string),
            None => {
                let array = Value::from_iter([string]);
                document.insert(key, Item::Value(array.decorated(" ", format!(" {OURS}"))));
            }
        }
        Ok(())
    })
}

/// Puts the string before the others, so that the comments behind them stay behind them.
fn insert_first(array: &mut Array, string: &str) {
    let first = array.get(0).map(|first| prefix(first).to_owned());
    let lines = first.as_ref().and_then(|blank| blank.rsplit_once('\n'));
    let blank = lines.map_or(" ".to_owned(), |(_, indent)| format!("\n{indent}"));
    set_decor(array, 0, |decor| decor.set_prefix(blank));
    let added = Value::from(string).decorated(first.unwrap_or_default(), "");
    array.insert_formatted(0, added);
}

/// Undoes `with_string`.
pub fn without_string(text: &str, key: &str, string: &str) -> Result<String> {
    let strings = strings(text, key)?;
    let Some(index) = strings.iter().position(|s| s == string) else {
        return Ok(text.to_owned());
    };
    edit(text, |document| {
        let value = document.get(key).and_then(Item::as_value);
        if strings.len() == 1 && value.is_some_and(|value| suffix(value).trim() == OURS) {
            document.remove(key);
            return Ok(());
        }
        let array = document.get_mut(key).and_then(Item::as_array_mut);
        array
            .map_or(Ok(()), |array| remove(array, index))
            .map_err(|e| e.hint(format!("remove {string:?} from {key} by hand")))
    })
}

fn remove(array: &mut Array, index: usize) -> Result<()> {
    let removed = array.remove(index);
    let (before, after) = (prefix(&removed), suffix(&removed));
    if array.is_empty() {
        let inside = array.trailing().as_str().unwrap_or_default();
        array.set_trailing(format!("{before}{after}{inside}"));
        array.set_trailing_comma(false);
        return Ok(());
    }
    // A comment between two strings is the administrator's.
    let between = match index {
        0 => array.get(0).map_or("", prefix),
        _ => before,
    };
    if !between.trim().is_empty() || !after.trim().is_empty() {
        return Err(Error::new(
            "cannot remove a string: comments stand beside it",
        ));
    }
    if index == 0 {
        set_decor(array, 0, |decor| decor.set_prefix(before));
    } else if index == array.len() && !array.trailing_comma() {
        set_decor(array, index - 1, |decor| decor.set_suffix(after));
    }
    Ok(())
}

fn prefix(value: &Value) -> &str {
    let raw = value.decor().prefix();
    raw.and_then(|raw| raw.as_str()).unwrap_or_default()
}

fn suffix(value: &Value) -> &str {
    let raw = value.decor().suffix();
    raw.and_then(|raw| raw.as_str()).unwrap_or_default()
}

fn set_decor(array: &mut Array, index: usize, set: impl FnOnce(&mut Decor)) {
    if let Some(value) = array.get_mut(index) {
        set(value.decor_mut());
    }
}

/// Sets the string at `keys`. A comment keeps the old value. A table without a header is appended as a block
/// that begins with `header`.
pub fn with_key(text: &str, keys: &[&str], header: &str, string: &str) -> Result<String> {
    let (key, path) = keys.split_last().expect("a key");
    let quoted = Value::from(string).to_string();
    let mut is_set = false;
    let edited = edit(text, |document| {
        let Some(table) = table_at(document, path) else {
            return Ok(());
        };
        if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
            let (before, kept) = (prefix(old).to_owned(), old.to_string());
            let comment = format!(" {OURS}{INSTEAD}{}", kept.trim_start());
            *old = Value::from(string).decorated(before, comment);
            is_set = true;
        } else if !table.is_implicit() && !table.is_dotted() {
            let value = Value::from(string).decorated(" ", format!(" {OURS}"));
            table.insert(key, Item::Value(value));
            is_set = true;
        }
        Ok(())
    })?;
    if is_set {
        return Ok(edited);
    }
    let body = format!("{header}\n{key} = {quoted}\n");
    Ok(block::with(text, key, &body))
}

fn table_at<'a>(document: &'a mut DocumentMut, path: &[&str]) -> Option<&'a mut Table> {
    let root = document.as_table_mut();
    path.iter()
        .try_fold(root, |table, key| table.get_mut(key)?.as_table_mut())
}

/// Undoes `with_key`.
pub fn without_key(text: &str, key: &str, string: &str) -> String {
    let quoted = Value::from(string).to_string();
    let text = match block::body(text, key).is_some_and(|body| body.contains(&quoted)) {
        true => block::without(text, key),
        false => text.to_owned(),
    };
    let changed = format!("{quoted} {OURS}{INSTEAD}");
    let added = format!("{key} = {quoted} {OURS}");
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.trim() != added);
    let kept: String = lines.map(|line| line.replacen(&changed, "", 1)).collect();
    // A last line without an end has taken the end of the line before it.
    match text.ends_with('\n') {
        true => kept,
        false => kept.strip_suffix('\n').unwrap_or(&kept).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::configure::table;

    fn there_and_back(text: &str) -> String {
        let more = with_string(text, "imports", "/ours").unwrap();
        let strings = strings(&more, "imports").unwrap();
        assert_eq!(strings.first().unwrap(), "/ours", "{more}");
        assert_eq!(without_string(&more, "imports", "/ours").unwrap(), text);
        more
    }

    #[test]
    fn removing_a_string_restores_the_text() {
        for (text, expected) in [
            ("", "imports = [\"/ours\"] # added by migctl configure\n"),
            (
                "# c\nversion = 2 # two\n[a]\n",
                "# c\nversion = 2 # two\nimports = [\"/ours\"] # added by migctl configure\n[a]\n",
            ),
            (
                "version = 3",
                "version = 3\nimports = [\"/ours\"] # added by migctl configure",
            ),
            ("imports = []", "imports = [\"/ours\"]"),
            ("imports = [ ] # none", "imports = [\"/ours\" ] # none"),
            (
                "imports = ['a', \"b\",]",
                "imports = [\"/ours\", 'a', \"b\",]",
            ),
            (
                "imports = [\n  'a', # c\n  'b', # d\n]\nx = 1",
                "imports = [\n  \"/ours\",\n  'a', # c\n  'b', # d\n]\nx = 1",
            ),
            (
                "imports = [ 'a',\n  'b', 'c' ]\n",
                "imports = [ \"/ours\", 'a',\n  'b', 'c' ]\n",
            ),
            (
                "imports = [\r\n  'a', # c\r\n]\r\nx = 1\r\n",
                "imports = [\r\n  \"/ours\",\r\n  'a', # c\r\n]\r\nx = 1\r\n",
            ),
            (
                "imports = [\n  # others\n  'a'\n]\n",
                "imports = [\n  # others\n  \"/ours\",\n  'a'\n]\n",
            ),
            (
                "# of a\n[a]\n",
                "imports = [\"/ours\"] # added by migctl configure\n# of a\n[a]\n",
            ),
        ] {
            assert_eq!(there_and_back(text), expected);
        }
    }

    #[test]
    fn removes_one_of_several_strings() {
        let text = "version = 3\n[x]\n";
        let one = with_string(text, "imports", "/1").unwrap();
        let two = with_string(&one, "imports", "/2").unwrap();
        let left = without_string(&two, "imports", "/1").unwrap();
        assert_eq!(strings(&left, "imports").unwrap(), ["/2"]);
        assert_eq!(without_string(&left, "imports", "/2").unwrap(), text);
    }

    #[test]
    fn removes_the_last_string_alone() {
        let text = "imports = [\n 'a',\n '/ours'\n]";
        let left = without_string(text, "imports", "/ours").unwrap();
        assert_eq!(left, "imports = [\n 'a'\n]");
    }

    #[test]
    fn refuses_what_would_change_layout() {
        for text in ["x.a = 1\ny = 1\nx.b = 1\n", "a = 1\r\nb = 1\n"] {
            let line = with_string(text, "imports", "/ours").unwrap_err().line();
            assert!(
                line.contains("cannot edit the file and keep its layout"),
                "{line}"
            );
            assert_eq!(without_string(text, "imports", "/ours").unwrap(), text);
        }
    }

    #[test]
    fn refuses_to_remove_comments() {
        let text = "imports = [\n 'a', # of a\n '/ours',\n]";
        let line = without_string(text, "imports", "/ours").unwrap_err().line();
        assert!(line.contains("comments stand beside it"), "{line}");
    }

    #[test]
    fn removed_key_restores_old_value() {
        for text in [
            "",
            "a = 1",
            "[x]\ny = 1\n",
            "[x]\n  [x.'y z']\n  b = 1\n",
            "[x.\"y z\".w]\nb = 1\n",
            "[x.\"y z\"] # c\n",
            "[x.\"y z\"]\n  key = 'old' # c\n  b = 1\n",
            "x.\"y z\".key = \"old\"",
        ] {
            let more = with_key(text, &["x", "y z", "key"], "[x.\"y z\"]", "new").unwrap();
            let value = table::parse(&more).unwrap();
            let value = table::at(&value, &["x", "y z", "key"]).unwrap();
            assert_eq!(value.as_str(), Some("new"), "{more}");
            assert_eq!(without_key(&more, "key", "new"), text, "{more}");
            assert_eq!(without_key(text, "key", "new"), text);
        }
    }

    #[test]
    fn removed_block_restores_the_text() {
        for text in ["[x]\ny = 1", "[x]\ny = 1\n", "[x]\nkey = 'old'"] {
            let more = block::with(text, "handler x", "[b]\n");
            let more = with_key(&more, &["x", "key"], "[x]", "new").unwrap();
            let less = block::without(&more, "handler x");
            assert_eq!(without_key(&less, "key", "new"), text, "{more}");
        }
    }
}
