//! Names of tests tell the behaviour in at most six words, and begin with its verb or its actor.

use crate::words::{files, read};

/// Words that begin no name: with them the name has neither verb nor actor in front.
const BANNED: &[&str] = &[
    "a", "all", "an", "and", "for", "if", "in", "is", "it", "its", "of", "on", "or", "that", "the",
    "there", "this", "those", "to", "what", "whatever", "when", "where", "who", "whose", "with",
    "without",
];

const MOST_WORDS: usize = 6;

#[test]
fn test_names_tell_the_behaviour() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for file in files() {
        if file.extension().is_some_and(|e| e == "rs") {
            let text = read(&file);
            let names = names(&text);
            count += names.len();
            let bad = names.into_iter().filter(|name| is_bad(name));
            wrong.extend(bad.map(|name| format!("{}: {name}", file.display())));
        }
    }
    assert!(count > 700, "only {count} tests are found");
    assert!(
        wrong.is_empty(),
        "{} test names break CONTRIBUTING.md, rule 8:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn finds_planted_test_names() {
    let code = "#[test]\nfn it_works() {}\n#[test]\n#[ignore]\nfn works() {}\nfn a_helper() {}\n\
        mod x {\n    #[test]\n    fn reads_one_two_three_four_five_six() {}\n}\n";
    let found: Vec<&str> = names(code)
        .into_iter()
        .filter(|name| is_bad(name))
        .collect();
    assert_eq!(found, ["it_works", "reads_one_two_three_four_five_six"]);
}

fn is_bad(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    words.len() > MOST_WORDS || BANNED.contains(&words[0])
}

/// Returns the names of the functions below `#[test]`.
fn names(code: &str) -> Vec<&str> {
    code.split("#[test]\n")
        .skip(1)
        .filter_map(|text| text.split_once("fn ")?.1.split(['(', '<']).next())
        .collect()
}
