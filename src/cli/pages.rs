//! The manual pages of migctl, from its arguments. `UPDATE=1 cargo test -p runmig --lib cli::pages` writes them into
//! `docs/man/`.

use super::{Arguments, help};
use clap::{Command, CommandFactory};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The date of all pages, which a release changes.
const DATE: &str = "2026-11-24";

/// Returns the pages by their file names: one of migctl, and one of each verb.
fn pages() -> BTreeMap<String, String> {
    let mut command = help::dress(Arguments::command());
    command.build();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs: Vec<Command> = verbs
        .filter(|verb| verb.get_name() != "help")
        .cloned()
        .collect();
    let pages = verbs.into_iter().map(|verb| {
        let name = format!("migctl-{}", verb.get_name());
        (format!("{name}.8"), page(verb, &name))
    });
    pages
        .chain([("migctl.8".to_owned(), page(command.clone(), "migctl"))])
        .collect()
}

fn page(command: Command, name: &str) -> String {
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .section("8")
        .date(DATE)
        .source("runmig")
        .manual("runmig")
        .render(&mut text)
        .unwrap();
    tidy(&String::from_utf8(text).unwrap())
}

/// Leaves out the line breaks beside an empty line, of which mandoc warns.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_empty =
        |at: Option<&&str>| at.is_some_and(|line| line.is_empty() || line.starts_with(".sp"));
    let kept = lines.iter().enumerate().filter(|(at, line)| {
        let before = at.checked_sub(1).and_then(|at| lines.get(at));
        **line != ".br" || !(is_empty(before) || is_empty(lines.get(at + 1)))
    });
    let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
    text.replace(".SH EXTRA\nExamples:\n", EXAMPLES)
        .replace(".SH EXTRA\n", ".SH NOTES\n")
        .replace("\nExamples:\n", &format!("\n{EXAMPLES}"))
}

/// The head of the examples, whose lines stay as they are.
const EXAMPLES: &str = ".SH EXAMPLES\n.nf\n";

#[test]
fn pages_match_the_arguments() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/man");
    let pages = pages();
    let stands = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    for (name, text) in &pages {
        if std::env::var_os("UPDATE").is_some() {
            fs::write(folder.join(name), text).unwrap();
        }
        let is_fresh = stands(name) == *text;
        assert!(
            is_fresh,
            "docs/man/{name} is stale: UPDATE=1 cargo test -p runmig --lib cli::pages"
        );
    }
    let files = fs::read_dir(&folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let foreign: Vec<String> = names
        .filter(|name| name.starts_with("migctl") && !pages.contains_key(name))
        .collect();
    assert!(
        foreign.is_empty(),
        "pages of verbs that are gone: {foreign:?}"
    );
}
