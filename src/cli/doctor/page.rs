//! The table of checks in docs/migctl.md.

use super::group::GROUPS;
use std::fs;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migctl.md");
const HEAD: &str = "| check | holds where all is well | remedy in general |\n| --- | --- | --- |\n";

fn table() -> String {
    let rows = GROUPS.iter().flat_map(|group| group.checks).map(|check| {
        let cells = (check.id, check.meaning, check.remedy);
        format!("| `{}` | {} | {} |\n", cells.0, cells.1, cells.2)
    });
    HEAD.to_owned() + &rows.collect::<String>()
}

#[test]
fn document_lists_every_check() {
    let text = fs::read_to_string(FILE).unwrap();
    let (before, rest) = text.split_once(HEAD).expect("docs/migctl.md has the table");
    let rows = rest
        .split_inclusive('\n')
        .take_while(|line| line.starts_with("| `"));
    let end: usize = rows.map(str::len).sum();
    let fresh = format!("{before}{}{}", table(), &rest[end..]);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(FILE, &fresh).unwrap();
        return;
    }
    assert!(
        text == fresh,
        "docs/migctl.md is stale: UPDATE=1 cargo test -p runmig --lib cli::doctor"
    );
}

#[test]
fn ids_begin_with_their_group() {
    for group in GROUPS {
        let own = format!("{}.", group.name);
        let foreign = group
            .checks
            .iter()
            .find(|check| !check.id.starts_with(&own));
        assert!(foreign.is_none(), "{}", foreign.unwrap().id);
    }
}
