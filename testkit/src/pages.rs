//! Pages of the documentation. The tests follow them: each file and each command, as it stands there.

use std::fs;

pub struct Page {
    /// The files, by name: blocks such as ```` ```yaml compose.yaml ````.
    pub files: Vec<(String, String)>,
    pub commands: Vec<Shown>,
}

/// A command of a block `console`.
pub struct Shown {
    /// The heading above it.
    pub section: String,
    /// Whether the page shows it behind `#`, as a command of root that changes the system, and not behind `$`.
    pub is_roots: bool,
    pub command: String,
    /// What the page prints below it.
    pub output: String,
}

/// Reads a page by its path in the repository.
pub fn read(file: &str) -> Page {
    let text = fs::read_to_string(crate::repository().join(file)).unwrap();
    let mut page = Page {
        files: Vec::new(),
        commands: Vec::new(),
    };
    let mut section = String::new();
    let mut block = None;
    for line in text.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(info)) => block = Some((info.to_owned(), String::new())),
            (Some(_), Some(_)) => {
                let (info, text) = block.take().unwrap();
                match info.split_once(' ') {
                    Some((_, name)) => page.files.push((name.to_owned(), text)),
                    None => page.commands.extend(commands(&section, &info, &text)),
                }
            }
            (Some((_, text)), None) => text.extend([line, "\n"]),
            (None, None) => {
                if let Some((_, heading)) = line.split_once("# ").filter(|_| line.starts_with('#'))
                {
                    heading.clone_into(&mut section);
                }
            }
        }
    }
    let has_any = !page.commands.is_empty() || !page.files.is_empty();
    assert!(has_any, "{file}");
    page
}

fn commands(section: &str, info: &str, text: &str) -> Vec<Shown> {
    assert_eq!(info, "console", "{text}");
    let mut all: Vec<Shown> = Vec::new();
    for line in text.lines() {
        let roots = line.strip_prefix("# ");
        match (roots.or(line.strip_prefix("$ ")), all.last_mut()) {
            (Some(command), _) => all.push(Shown {
                section: section.to_owned(),
                is_roots: roots.is_some(),
                command: command.to_owned(),
                output: String::new(),
            }),
            (None, Some(shown)) => shown.output.extend([line, "\n"]),
            (None, None) => panic!("{line}: output of no command"),
        }
    }
    all
}

/// Whether an output is what a page prints. `…` alone on a line stands for any lines, and within a line for any text. A UUID,
/// an id of 12 or 64 hexadecimal digits and an age equal others of their kind. All else must be equal, but for
/// spaces at a line's end.
pub fn is_as_printed(printed: &str, said: &str) -> bool {
    let lines = |text: &str| text.lines().map(normal).collect::<Vec<_>>();
    lines_fit(&lines(printed), &lines(said))
}

fn lines_fit(printed: &[String], said: &[String]) -> bool {
    match printed.split_first() {
        None => said.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=said.len()).any(|skipped| lines_fit(rest, &said[skipped..]))
        }
        Some((first, rest)) => said
            .split_first()
            .is_some_and(|(line, more)| line_fits(first, line) && lines_fit(rest, more)),
    }
}

fn line_fits(printed: &str, said: &str) -> bool {
    let Some((start, rest)) = printed.split_once('…') else {
        return printed == said;
    };
    let Some(said) = said.strip_prefix(start) else {
        return false;
    };
    let mut ends = said.char_indices().map(|(at, _)| at).chain([said.len()]);
    ends.any(|at| line_fits(rest, &said[at..]))
}

/// Puts a word for each UUID, id and age.
fn normal(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut text = String::new();
    let mut rest = line.trim_end();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        text.push_str(&kind(word));
        let other = after.find(is_part).unwrap_or(after.len());
        text.push_str(&after[..other]);
        rest = &after[other..];
    }
    text
}

fn kind(word: &str) -> String {
    let is_hex = |text: &str| text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let (prefix, id) = match word.split_at_checked(4) {
        Some((prefix @ ("GPU-" | "MIG-"), id)) => (prefix, id),
        _ => ("", word),
    };
    let groups: Vec<&str> = id.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    if lengths == [8, 4, 4, 4, 12] && groups.iter().all(|group| is_hex(group)) {
        return format!("{prefix}UUID");
    }
    let number = word.trim_end_matches(['s', 'm', 'h', 'd']);
    match word.len() {
        12 | 64 if is_hex(word) => "ID".to_owned(),
        length if length == number.len() + 1 && number.parse::<u32>().is_ok() => "AGE".to_owned(),
        _ => word.to_owned(),
    }
}
