//! Every row of docs/failure-modes.md names a test that there is.

use std::fs;
use std::path::Path;

#[test]
fn every_row_names_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
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
        let file = root.join(format!("tests/{file}.rs"));
        let source = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{row}: {e}"));
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            let name = test.rsplit("::").next().unwrap();
            let defined = [format!("fn {name}("), format!("    {name}: \"")];
            assert!(
                defined.iter().any(|d| source.contains(d)),
                "there is no {test} in {}",
                file.display()
            );
            named += 1;
        }
    }
    assert!(named > 30, "only {named} tests are named");
}
