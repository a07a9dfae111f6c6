//! Checks the words of documents, comments and errors against CONTRIBUTING.md, rules 2 and 6.
//!
//! A sentence that begins with a relative clause ("Who waits …", "Of several …") names its actor
//! late, and its reader has to parse it twice. An error without a verb ("cut off") does not tell its
//! reader the failure. Both rules look only at words, so they miss much, but they need few exceptions
//! for texts that follow the style.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that begin no sentence, except a question.
const BANNED: &[&str] = &[
    "what", "whatever", "who", "whoever", "whom", "whose", "of", "where", "wherever",
];

/// Sentences that may begin so: file, beginning, reason.
const ALLOWED: &[(&str, &str, &str)] = &[];

/// Folders of text by others, or of bytes: seeds, downloads, builds.
const FOREIGN: &[&str] = &[
    "target",
    ".git",
    "fuzz/seeds",
    "fuzz/corpus",
    "fuzz/artifacts",
];

/// Finite verbs. A message with one of them is a statement: "the lease has no instance".
const VERBS: &[&str] = &[
    "are",
    "asks",
    "belongs",
    "can",
    "cannot",
    "changed",
    "contradict",
    "contradicts",
    "could",
    "did",
    "differ",
    "differs",
    "does",
    "ended",
    "exists",
    "failed",
    "fails",
    "gives",
    "had",
    "has",
    "have",
    "holds",
    "imports",
    "is",
    "keep",
    "keeps",
    "limits",
    "lives",
    "makes",
    "may",
    "means",
    "must",
    "names",
    "needs",
    "reads",
    "runs",
    "says",
    "stays",
    "use",
    "was",
    "were",
    "would",
    "wrote",
];

/// Verbs of an attempt, as the first word. The message names the step that failed: "read FILE".
const ATTEMPTS: &[&str] = &[
    "change", "create", "destroy", "edit", "find", "follow", "keep", "list", "lock", "look",
    "make", "open", "parse", "read", "remove", "rename", "run", "start", "sync", "wait", "write",
];

/// Messages without a verb: file, beginning, reason.
const VERBLESS: &[(&str, &str, &str)] = &[
    (
        "src/cli/configure/table.rs",
        "line {",
        "names the place, and its cause is a statement",
    ),
    (
        "crates/lease/src/request.rs",
        "annotation {",
        "names the object, and its cause is a statement",
    ),
    (
        "src/spec/cdi.rs",
        "CDI specification {",
        "names the object, and its cause is a statement",
    ),
    (
        "crates/lease/src/trust.rs",
        "no such file",
        "repeats the kernel's words",
    ),
];

#[test]
fn sentences_begin_with_their_subject() {
    let wrong: Vec<String> = files()
        .iter()
        .flat_map(|file| {
            let name = file.to_str().unwrap().to_owned();
            let sentences = sentences(&name, &read(file));
            sentences.into_iter().filter_map(move |(line, sentence)| {
                let allowed = |(place, start, _): &(&str, &str, &str)| {
                    *place == name && sentence.starts_with(start)
                };
                let wrong = begins_badly(&sentence) && !ALLOWED.iter().any(allowed);
                wrong.then(|| format!("{name}:{line}: {sentence}"))
            })
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} sentences begin with a relative clause (CONTRIBUTING.md, rule 2):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn errors_have_a_verb() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in files() {
        let name = file.to_str().unwrap();
        if !name.ends_with(".rs")
            || !["src/", "crates/", "hooks/"]
                .iter()
                .any(|d| name.starts_with(d))
        {
            continue;
        }
        for (line, message) in messages(&read(&file)) {
            count += 1;
            let allowed = |(place, start, _): &(&str, &str, &str)| {
                *place == name && message.starts_with(start)
            };
            if !has_verb(&message) && !VERBLESS.iter().any(allowed) {
                wrong.push(format!("{name}:{line}: {message:?}"));
            }
        }
    }
    assert!(count > 100, "only {count} messages are found");
    assert!(
        wrong.is_empty(),
        "{} errors have no verb (CONTRIBUTING.md, rule 6):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The line of an error adds the word, once.
#[test]
fn no_context_says_cannot() {
    let wrong: Vec<String> = files()
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "rs") && !file.starts_with("tests"))
        .flat_map(|file| {
            let say = |at: usize| format!("{}:{at}", file.display());
            contexts_with_cannot(&read(file)).into_iter().map(say)
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "contexts begin with cannot:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn finds_planted_contexts() {
    let code = "f().context(|| \"read a\")?;\ng().context(|| {\n    let b = 1;\n    \
        format!(\"cannot {b}\")\n})?;\nlet why = || \"cannot\";\nlet what = || format!(\"cannot c\");\n";
    assert_eq!(contexts_with_cannot(code), [2, 6]);
}

/// Returns the lines of contexts whose first text begins with `cannot`.
fn contexts_with_cannot(code: &str) -> Vec<usize> {
    let starts = [".context(||", "let what = ||", "let look = ||"];
    let mut found: Vec<usize> = starts
        .iter()
        .flat_map(|start| code.match_indices(start))
        .filter(|(at, _)| {
            let text = code[*at..].split('"').nth(1);
            text.is_some_and(|text| text.starts_with("cannot "))
        })
        .map(|(at, _)| code[..at].lines().count())
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn finds_planted_relative_clauses() {
    let text = "# Whose is it\n\nA list:\n\n- Who waits takes\n  a number. It is fair.\n- What is free? All.\n\n\
        Fine. Of two, the first (so). `code` counts.\n\n| a | what b |\n\n```\nWhat is code\n```\n";
    let found: Vec<(usize, String)> = sentences("a.md", text)
        .into_iter()
        .filter(|(_, sentence)| begins_badly(sentence))
        .collect();
    let expected = [
        (1, "Whose is it"),
        (5, "Who waits takes a number."),
        (9, "Of two, the first (so)."),
        (11, "what b"),
    ];
    assert_eq!(found, expected.map(|(line, s)| (line, s.to_owned())));
    let code = "/// Reads. Of those\n/// the last.\nfn f() {} // Who\n//! What\n";
    let found: Vec<String> = sentences("a.rs", code)
        .into_iter()
        .filter(|(_, sentence)| begins_badly(sentence))
        .map(|(_, sentence)| sentence)
        .collect();
    assert_eq!(found, ["Of those the last.", "What"]);
}

#[test]
fn finds_planted_errors_without_verb() {
    let code = r##"
        Error::new("cut off");
        Error::new(format!("{} is a \
            link", x));
        Error::new(what);
        f().context(|| format!("{path} (1)"))?;
        f().context(|| format!("read {path}"))?;
        Error::new(format!("{is}: too many"));
        Error::new(r#"no "{key}""#).hint("read it");
    "##;
    let found: Vec<String> = messages(code)
        .into_iter()
        .filter(|(_, message)| !has_verb(message))
        .map(|(_, message)| message)
        .collect();
    assert_eq!(found, ["cut off", "{is}: too many", "no \"{key}\""]);
}

fn begins_badly(sentence: &str) -> bool {
    let first = sentence.split(|c: char| !c.is_alphabetic()).next().unwrap();
    BANNED.contains(&first.to_lowercase().as_str()) && !sentence.ends_with('?')
}

/// Judges the text outside of placeholders. A message of placeholders alone has its words elsewhere.
fn has_verb(message: &str) -> bool {
    let text: String = message
        .split('{')
        .map(|part| part.split_once('}').map_or(part, |(_, rest)| rest))
        .collect();
    let mut words = text
        .split(|c: char| !c.is_alphabetic())
        .filter(|w| !w.is_empty())
        .peekable();
    words.peek().is_none_or(|first| ATTEMPTS.contains(first)) || words.any(|w| VERBS.contains(&w))
}

/// Returns the sentences of documents and comments, each with the line of its paragraph.
fn sentences(file: &str, text: &str) -> Vec<(usize, String)> {
    paragraphs(file, text)
        .into_iter()
        .flat_map(|(line, paragraph)| split(&paragraph).into_iter().map(move |s| (line, s)))
        .collect()
}

/// Splits where a full stop, exclamation or question mark precedes a capital letter.
fn split(paragraph: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut words = paragraph.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let sentence = found.last_mut().unwrap();
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        let ends = word
            .trim_end_matches(['"', '\'', ')'])
            .ends_with(['.', '!', '?']);
        let next = words.peek().and_then(|next| next.chars().next());
        if ends && next.is_some_and(|c| c.is_uppercase() || c == '`') {
            found.push(String::new());
        }
    }
    found
}

/// Returns headings, list items, cells of tables, and runs of other lines, without fenced code.
fn paragraphs(file: &str, text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut kind, mut is_open, mut in_code) = ("", false, false);
    for (at, line) in text.lines().enumerate() {
        let (this, content) = comment(file, line);
        if this != kind || content.is_empty() {
            is_open = false;
            kind = this;
        }
        if content.starts_with("```") {
            in_code = !in_code;
            is_open = false;
        } else if this.is_empty() || in_code || content.is_empty() {
            continue;
        } else if let Some(row) = content.strip_prefix('|') {
            let cells = row.trim_end_matches('|').split(" | ");
            found.extend(cells.map(|cell| (at + 1, plain(cell))));
            is_open = false;
        } else if let Some(item) = item(content) {
            found.push((at + 1, plain(item)));
            is_open = true;
        } else if is_open {
            let paragraph = &mut found.last_mut().unwrap().1;
            paragraph.push(' ');
            paragraph.push_str(&plain(content));
        } else {
            found.push((at + 1, plain(content)));
            is_open = true;
        }
    }
    found
}

/// Returns the kind of comment (empty for none) and its content. A document is one comment.
fn comment<'a>(file: &str, line: &'a str) -> (&'static str, &'a str) {
    let line = line.trim();
    let kinds: &[&'static str] = match file {
        _ if file.ends_with(".md") => return ("md", line),
        _ if file.ends_with(".rs") => &["///", "//!", "//"],
        _ if line.starts_with("#!") => &[],
        _ => &["#"],
    };
    let kind = kinds.iter().find(|kind| line.starts_with(**kind));
    kind.map_or(("", ""), |kind| (kind, line[kind.len()..].trim()))
}

/// The content of a heading or list item.
fn item(content: &str) -> Option<&str> {
    let mark = content.split(' ').next().unwrap();
    let number = mark.strip_suffix('.').unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let is_mark = is_number || mark == "-" || mark == "*" || mark.trim_matches('#').is_empty();
    is_mark.then(|| content[mark.len()..].trim())
}

/// Without the marks of bold text.
fn plain(text: &str) -> String {
    text.trim().replace("**", "")
}

/// Returns the first string in each call that makes an error, with its line.
fn messages(code: &str) -> Vec<(usize, String)> {
    let code = code.split("\n#[cfg(test)]").next().unwrap();
    let mut found = Vec::new();
    for mark in ["Error::new(", ".context("] {
        for (at, _) in code.match_indices(mark) {
            let start = at + mark.len();
            if let Some(message) = string(&code[start..]) {
                found.push((code[..at].lines().count(), message));
            }
        }
    }
    found
}

/// Returns the first string before the end of the call, unescaped as far as words need it.
fn string(arguments: &str) -> Option<String> {
    let mut depth = 0;
    for (at, c) in arguments.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return None,
            ')' => depth -= 1,
            '"' => {
                let raw = arguments[..at].ends_with("r#");
                let rest = &arguments[at + 1..];
                let end = if raw { rest.find("\"#")? } else { end(rest)? };
                let lines = rest[..end].split("\\\n").map(str::trim_start);
                return Some(lines.collect());
            }
            _ => {}
        }
    }
    None
}

/// The first quote that no backslash precedes.
fn end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end.then_some(at)
    })
}

/// The documents, sources and scripts of the repository, relative to it.
fn files() -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![PathBuf::new()], Vec::new());
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(root().join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            let skipped = FOREIGN.iter().any(|folder| path.starts_with(folder));
            let kind = entry.file_type().unwrap();
            if skipped || kind.is_symlink() {
                continue;
            } else if kind.is_dir() {
                open.push(path);
            } else if is_ours(&path) {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 100, "only {} files are found", found.len());
    found.sort();
    found
}

fn is_ours(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => extension == "rs" || extension == "md",
        None => fs::read(root().join(path)).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
