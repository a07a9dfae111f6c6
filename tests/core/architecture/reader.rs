//! Reads Rust source as far as the rules need it: files, the paths in them, comments and quotes left out.

use testkit::prelude::*;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Rust files below these folders, relative to the repository.
pub fn sources(folders: &[&str]) -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    let mut found = Vec::new();
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(root().join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty());
    found.sort();
    found
}

/// The files of the same room that a file's paths lead to.
pub fn room_imports(
    room: &str,
    name: &str,
    code: &str,
    files: &BTreeMap<String, PathBuf>,
) -> BTreeSet<String> {
    let own: Vec<&str> = name.split('/').filter(|part| *part != "mod").collect();
    let parent = own[..own.len().saturating_sub(1)].to_vec();
    let (_, in_crate) = room.split_once("src").unwrap();
    let from_crate = format!("crate{}::", in_crate.replace('/', "::"));
    let mut starts = vec![(from_crate, Vec::new()), ("self::".to_owned(), own.clone())];
    if !own.is_empty() {
        starts.push(("super::".to_owned(), parent));
    }
    // A module names its children without a prefix.
    let children: Vec<String> = words_after(code, "mod ").collect();
    for child in &children {
        starts.push((format!("{child}::"), [&own[..], &[child]].concat()));
    }
    let mut found = BTreeSet::new();
    for (start, base) in &starts {
        for (at, _) in code.match_indices(start.as_str()) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || "_$:".contains(c)) {
                continue;
            }
            for path in branches(&code[at + start.len()..]) {
                let path: Vec<&str> = base.iter().copied().chain(path.split("::")).collect();
                found.insert(file_of(&path, files));
            }
        }
    }
    found
}

/// The file that holds what a path names: the longest part of it that is one.
fn file_of(path: &[&str], files: &BTreeMap<String, PathBuf>) -> String {
    let names = (0..=path.len()).rev().flat_map(|n| {
        let name = path[..n].join("/");
        let module = format!("{name}/mod");
        [name, module.trim_start_matches('/').to_owned()]
    });
    let mut known = names.filter(|name| files.contains_key(name));
    known.next().expect("every room has a mod.rs")
}

/// All paths of a use tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn branches(text: &str) -> Vec<String> {
    if let Some(group) = text.strip_prefix('{') {
        return items(group).into_iter().flat_map(branches).collect();
    }
    let Some(word) = word_at(text) else {
        return Vec::new();
    };
    match text[word.len()..].strip_prefix("::") {
        Some(rest) => {
            let rest = branches(rest).into_iter();
            rest.map(|rest| format!("{word}::{rest}")).collect()
        }
        None => vec![word],
    }
}

/// The top modules that paths from the crate's root lead to, groups included.
pub fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for start in ["crate::", "runmig::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
                continue;
            }
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(heads(group)),
                None => found.extend(word_at(rest)),
            }
        }
    }
    found
}

/// The first word of each item of a group: `a::{b, c}, d}` gives a and d.
fn heads(group: &str) -> Vec<String> {
    items(group).into_iter().filter_map(word_at).collect()
}

/// Each item of a group, from where it begins: `a::{b, c}, d}` gives two.
fn items(group: &str) -> Vec<&str> {
    let (mut depth, mut at_head, mut found) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_head = true,
            c if c.is_whitespace() => {}
            _ if at_head => {
                at_head = false;
                found.push(&group[at..]);
            }
            _ => {}
        }
    }
    found
}

fn word_at(text: &str) -> Option<String> {
    let word: String = text
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!word.is_empty()).then_some(word)
}

pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

pub fn words_after<'a>(code: &'a str, mark: &'a str) -> impl Iterator<Item = String> + 'a {
    code.match_indices(mark)
        .filter_map(move |(at, _)| word_at(&code[at + mark.len()..]))
}

pub fn code(file: &Path) -> String {
    strip(&fs::read_to_string(root().join(file)).unwrap())
}

/// Without comments and without what stands in quotes.
pub fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = hashes + 2;
            rest[inside..]
                .find(&end)
                .map_or(rest.len(), |at| inside + at + end.len())
        } else if c == '"' {
            quoted(rest, '"').unwrap_or(rest.len())
        } else if c == '\'' {
            // a lifetime has no second quote where a character's would be
            quoted(rest, '\'')
                .filter(|end| *end <= 12 && is_char(&rest[1..*end - 1]))
                .unwrap_or(0)
        } else {
            0
        };
        if skip == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.push(' ');
            rest = &rest[skip..];
        }
    }
    out
}

/// `r"`, `r#"`: how many marks there are.
fn raw_string(text: &str) -> Option<usize> {
    let marks = text.strip_prefix('r')?;
    let hashes = marks.len() - marks.trim_start_matches('#').len();
    marks[hashes..].starts_with('"').then_some(hashes)
}

/// Returns the end of a quoted text, the closing quote included.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_char(inside: &str) -> bool {
    inside.starts_with('\\') || inside.chars().count() == 1
}

#[test]
fn reader_agrees_with_the_compiler() {
    let text = r##"
        use crate::{lease::{Leases, Patience}, spec}; // crate::cli
        /* use crate::runtime; */
        fn f<'a>(x: &'a str) { let _ = ("crate::hook", r#"crate::log"#, '"', crate::gpu::nvml::open); }
        use runmig::store;
    "##;
    let seen: Vec<String> = imports(&strip(text)).into_iter().collect();
    assert_eq!(seen, ["gpu", "lease", "spec", "store"]);
}

#[test]
fn reads_imports_inside_rooms() {
    let files = ["mod", "plan", "choose", "defrag/mod", "defrag/search"];
    let files = files.map(|name| (name.to_owned(), PathBuf::new())).into();
    let seen = |name: &str, text: &str| -> Vec<String> {
        let seen = room_imports("crates/lease/src/placement", name, &strip(text), &files);
        seen.into_iter().collect()
    };
    for (file, text, imports) in testkit::rows! {
        "plan", "use super::{choose::{self, choose}, Plan}; use crate::model::Gpu; // super::plan" =>
            &["choose", "mod"][..];
        "defrag/search", "use crate::placement::{plan, defrag::search::{a, b}}; fn f() { super::g() }" =>
            &["defrag/mod", "defrag/search", "plan"];
        "defrag/mod", "mod search; pub use search::a;" => &["defrag/search"];
    } {
        assert_eq!(seen(file, text), imports, "{text}");
    }
}
