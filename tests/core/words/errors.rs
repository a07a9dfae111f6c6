//! Errors have a verb, and say "cannot" once.

use crate::words::{files, read};

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
    "change",
    "connect",
    "create",
    "destroy",
    "edit",
    "enable",
    "end",
    "find",
    "follow",
    "keep",
    "kill",
    "list",
    "listen",
    "lock",
    "look",
    "make",
    "open",
    "parse",
    "prepare",
    "read",
    "remove",
    "rename",
    "run",
    "serve",
    "set",
    "start",
    "sync",
    "unprepare",
    "wait",
    "write",
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
        "crates/lease/src/cdi.rs",
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
