//! Sentences name their actor first: none begins with a relative clause.

use crate::words::{files, read};

/// Words that begin no sentence, except a question.
const BANNED: &[&str] = &[
    "what", "whatever", "who", "whoever", "whom", "whose", "of", "where", "wherever",
];

/// Sentences that may begin so: file, beginning, reason.
const ALLOWED: &[(&str, &str, &str)] = &[];

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

fn begins_badly(sentence: &str) -> bool {
    let first = sentence.split(|c: char| !c.is_alphabetic()).next().unwrap();
    BANNED.contains(&first.to_lowercase().as_str()) && !sentence.ends_with('?')
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
