//! Every row of docs/failure-modes.md names a test that there is.

use std::fs;

/// The places of a name: `seats/late` is a file or folder of one of the programs.
const FOLDERS: [&str; 7] = [
    "tests",
    "tests/core",
    "tests/programs",
    "tests/engines",
    "tests/matrices",
    "testkit/src",
    "crates",
];

#[test]
fn every_row_names_existing_tests() {
    let root = testkit::repository();
    let text = fs::read_to_string(root.join("docs/failure-modes.md")).unwrap();
    let mut named = 0;
    for row in text
        .lines()
        .filter(|l| l.starts_with("| ") && !l.contains("---"))
    {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        if last == "test" {
            continue;
        }
        let words: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        let [file, tests @ ..] = words.as_slice() else {
            panic!("no test: {row}");
        };
        let file = file.trim_start_matches("../");
        let forms = [
            format!("{file}.rs"),
            format!("{file}/mod.rs"),
            file.replace("/main", "/mod") + ".rs",
        ];
        let places = FOLDERS
            .iter()
            .flat_map(|folder| forms.iter().map(move |form| root.join(folder).join(form)));
        let source = places
            .chain([root.join(format!("{file}.rs"))])
            .find_map(|file| fs::read_to_string(file).ok());
        let source = source.unwrap_or_else(|| panic!("no file of this name: {row}"));
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            let name = test.rsplit("::").next().unwrap();
            let defined = [format!("fn {name}("), format!("    {name}: \"")];
            assert!(
                defined.iter().any(|d| source.contains(d)),
                "there is no {test} in {file}"
            );
            named += 1;
        }
    }
    assert!(named > 30, "only {named} tests are named");
}
