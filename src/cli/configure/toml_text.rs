//! Additions to a TOML file that somebody else wrote: its text is kept to the byte, and what is
//! added can be found again.

use crate::error::{Error, Result};
use std::ops::Range;
use toml::Table;
use toml::de::{DeTable, DeValue};

const OURS: &str = "# added by migctl configure";

pub fn parse(text: &str) -> Result<Table> {
    toml::from_str(text).map_err(|e| at_line(text, &e))
}

fn at_line(text: &str, e: &toml::de::Error) -> Error {
    let line = e
        .span()
        .map_or(0, |span| text[..span.start].matches('\n').count())
        + 1;
    Error::new(format!("line {line}: {}", e.message().trim_end()))
}

/// Whether both mean the same; comments and layout mean nothing.
pub fn same(a: &str, b: &str) -> bool {
    matches!((parse(a), parse(b)), (Ok(a), Ok(b)) if a == b)
}

/// What stands at `keys`, tables in tables.
pub fn at<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a toml::Value> {
    let (first, rest) = keys.split_first()?;
    let value = table.get(*first)?;
    match rest {
        [] => Some(value),
        rest => at(value.as_table()?, rest),
    }
}

/// A value in one line, as what comes after `key =`.
pub fn value(value: &toml::Value) -> String {
    value.to_string()
}

fn begin(label: &str) -> String {
    format!("{OURS}: {label}\n")
}

fn end(label: &str) -> String {
    format!("# end of what migctl configure added: {label}\n")
}

/// At the end of the file, between two comments. The newline before makes a blank line, or ends
/// a last line that had no end; it goes with the block.
pub fn with_block(text: &str, label: &str, body: &str) -> String {
    format!("{text}\n{}{body}{}", begin(label), end(label))
}

pub fn block<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let body = text.split_once(&begin(label))?.1;
    Some(body.split_once(&end(label))?.0)
}

pub fn without_block(text: &str, label: &str) -> String {
    let (begin, end) = (begin(label), end(label));
    let Some((before, rest)) = text.split_once(&begin) else {
        return text.to_owned();
    };
    let Some((_, after)) = rest.split_once(&end) else {
        return text.to_owned();
    };
    let before = before.strip_suffix('\n').unwrap_or(before);
    format!("{before}{after}")
}

/// What blocks are called that begin with this word.
pub fn labels<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(OURS)?.strip_prefix(": "))
        .filter(move |label| label.starts_with(word))
}

/// The strings of an array at the top of the file, and where they and it stand.
struct Array {
    whole: Range<usize>,
    items: Vec<(String, Range<usize>)>,
}

fn array(text: &str, key: &str) -> Result<Option<Array>> {
    let table = DeTable::parse(text).map_err(|e| at_line(text, &e))?;
    let Some(value) = table.get_ref().get(key) else {
        return Ok(None);
    };
    let DeValue::Array(items) = value.get_ref() else {
        return Err(Error::new(format!("{key} is no array")));
    };
    let item = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(s) => Ok((s.to_string(), item.span())),
        _ => Err(Error::new(format!(
            "{key} holds something else than strings"
        ))),
    };
    Ok(Some(Array {
        whole: value.span(),
        items: items.iter().map(item).collect::<Result<_>>()?,
    }))
}

pub fn strings(text: &str, key: &str) -> Result<Vec<String>> {
    let array = array(text, key)?;
    Ok(array.map_or(Vec::new(), |a| {
        a.items.into_iter().map(|(s, _)| s).collect()
    }))
}

/// `key` at the top, with one string more; made below `version` where there is none.
pub fn with_string(text: &str, key: &str, string: &str) -> Result<String> {
    let quoted = toml::Value::from(string).to_string();
    let (at, added) = match array(text, key)? {
        None => {
            let at = after_version(text)?;
            let line = format!("{key} = [{quoted}] {OURS}");
            // A last line that had no end is not given one.
            match at > 0 && !text[..at].ends_with('\n') {
                true => (at, format!("\n{line}")),
                false => (at, format!("{line}\n")),
            }
        }
        // Before the others: the comments behind them stay theirs.
        Some(Array { whole, items }) => match items.first() {
            None => (whole.start + 1, quoted),
            Some((_, first)) => {
                let line = text[..first.start].rfind('\n').map_or(0, |n| n + 1);
                let indent = &text[line..first.start];
                let own_line = line > whole.start && indent.trim().is_empty();
                let blank = if own_line {
                    format!("\n{indent}")
                } else {
                    " ".to_owned()
                };
                (first.start, format!("{quoted},{blank}"))
            }
        },
    };
    Ok(format!("{}{added}{}", &text[..at], &text[at..]))
}

/// The beginning of the line below `version`, else of the file.
fn after_version(text: &str) -> Result<usize> {
    let table = DeTable::parse(text).map_err(|e| at_line(text, &e))?;
    let Some(version) = table.get_ref().get("version") else {
        return Ok(0);
    };
    let end = version.span().end;
    Ok(text[end..].find('\n').map_or(text.len(), |n| end + n + 1))
}

/// Undoes `with_string`.
pub fn without_string(text: &str, key: &str, string: &str) -> Result<String> {
    let Some(Array { whole, items }) = array(text, key)? else {
        return Ok(text.to_owned());
    };
    let Some(index) = items.iter().position(|(s, _)| s == string) else {
        return Ok(text.to_owned());
    };
    let own = &items[index].1;
    let cut = if items.len() == 1 {
        let from = text[..whole.start].rfind('\n').map_or(0, |n| n + 1);
        let to = text[whole.end..]
            .find('\n')
            .map_or(text.len(), |n| whole.end + n + 1);
        match text[whole.end..to].trim() == OURS {
            true if text[..to].ends_with('\n') => from..to,
            true => from.saturating_sub(1)..to,
            false => own.clone(),
        }
    } else if index > 0 {
        items[index - 1].1.end..own.end
    } else {
        own.start..items[1].1.start
    };
    // Between two strings there is a comma, and what people wrote: that is not ours to take.
    let taken = format!(
        "{}{}",
        &text[cut.start..own.start.max(cut.start)],
        &text[own.end.min(cut.end)..cut.end]
    );
    if items.len() > 1 && taken.trim() != "," {
        return Err(Error::new(format!("{key} has comments around {string:?}"))
            .hint("take it out of there by hand"));
    }
    Ok(format!("{}{}", &text[..cut.start], &text[cut.end..]))
}

/// `key = string` in a table that the file may have or not, with a value or without; what was there
/// is kept in a comment.
pub fn with_key(text: &str, keys: &[&str], header: &str, string: &str) -> Result<String> {
    let (key, table) = keys.split_last().expect("a key");
    let quoted = toml::Value::from(string).to_string();
    if let Some(span) = span(text, keys)? {
        let (before, old, after) = (&text[..span.start], &text[span.clone()], &text[span.end..]);
        return Ok(format!("{before}{quoted} {OURS}{INSTEAD}{old}{after}"));
    }
    let line = format!("{key} = {quoted} {OURS}\n");
    let is_header = |line: &str| {
        line.starts_with('[')
            && parse(line).is_ok_and(|t| at(&t, table).is_some_and(is_empty_table))
    };
    let mut end = 0;
    for each in text.split_inclusive('\n') {
        end += each.len();
        if is_header(each.trim()) {
            let newline = if each.ends_with('\n') { "" } else { "\n" };
            return Ok(format!("{}{newline}{line}{}", &text[..end], &text[end..]));
        }
    }
    Ok(with_block(
        text,
        key,
        &format!("{header}\n{key} = {quoted}\n"),
    ))
}

const INSTEAD: &str = " in place of ";

fn is_empty_table(value: &toml::Value) -> bool {
    value.as_table().is_some_and(Table::is_empty)
}

/// Undoes `with_key`.
pub fn without_key(text: &str, key: &str, string: &str) -> String {
    let quoted = toml::Value::from(string).to_string();
    let text = match block(text, key).is_some_and(|body| body.contains(&quoted)) {
        true => without_block(text, key),
        false => text.to_owned(),
    };
    let changed = format!("{quoted} {OURS}{INSTEAD}");
    let added = format!("{key} = {quoted} {OURS}");
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.trim() != added);
    lines.map(|line| line.replacen(&changed, "", 1)).collect()
}

fn span(text: &str, keys: &[&str]) -> Result<Option<Range<usize>>> {
    let root = DeTable::parse(text).map_err(|e| at_line(text, &e))?;
    let (last, tables) = keys.split_last().expect("a key");
    let mut table = root.get_ref();
    for key in tables {
        match table.get(*key).map(|value| value.get_ref()) {
            Some(DeValue::Table(inner)) => table = inner,
            _ => return Ok(None),
        }
    }
    Ok(table.get(*last).map(|value| value.span()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(text: &str) -> String {
        let more = with_string(text, "imports", "/ours").unwrap();
        let strings = strings(&more, "imports").unwrap();
        assert_eq!(strings.first().unwrap(), "/ours", "{more}");
        assert_eq!(without_string(&more, "imports", "/ours").unwrap(), text);
        more
    }

    #[test]
    fn a_string_more_and_everything_else_to_the_byte() {
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
        ] {
            assert_eq!(there_and_back(text), expected);
        }
    }

    #[test]
    fn the_first_of_several_goes_alone() {
        let text = "version = 3\n[x]\n";
        let one = with_string(text, "imports", "/1").unwrap();
        let two = with_string(&one, "imports", "/2").unwrap();
        let left = without_string(&two, "imports", "/1").unwrap();
        assert_eq!(strings(&left, "imports").unwrap(), ["/2"]);
        assert_eq!(without_string(&left, "imports", "/2").unwrap(), text);
    }

    #[test]
    fn what_people_wrote_is_not_taken() {
        let text = "imports = [\n 'a', # of a\n '/ours',\n]";
        let line = without_string(text, "imports", "/ours").unwrap_err().line();
        assert!(line.contains("has comments around"), "{line}");
    }

    #[test]
    fn a_block_comes_and_goes() {
        for text in ["", "a = 1\n", "a = 1", "a = 1\n\n"] {
            let one = with_block(text, "handler x", "[b]\n");
            let two = with_block(&one, "handler xy", "[c]\n");
            assert_eq!(
                labels(&two, "handler ").collect::<Vec<_>>(),
                ["handler x", "handler xy"]
            );
            assert_eq!(block(&two, "handler xy"), Some("[c]\n"));
            assert_eq!(without_block(&two, "handler xy"), one);
            let other = without_block(&two, "handler x");
            assert_eq!(without_block(&other, "handler xy"), text);
            assert_eq!(without_block(text, "handler x"), text);
        }
    }

    #[test]
    fn a_key_comes_and_what_was_there_comes_back() {
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
            let value = parse(&more).unwrap();
            let value = at(&value, &["x", "y z", "key"]).unwrap();
            assert_eq!(value.as_str(), Some("new"), "{more}");
            assert_eq!(without_key(&more, "key", "new"), text, "{more}");
            assert_eq!(without_key(text, "key", "new"), text);
        }
    }
}
