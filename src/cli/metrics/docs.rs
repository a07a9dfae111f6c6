//! The table of families in docs/metrics.md. `UPDATE=1 cargo test -p runmig --lib cli::metrics` writes it.

use super::family::Definition;
use super::table::ALL;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- families: UPDATE=1 cargo test -p runmig --lib cli::metrics -->\n";
const END: &str = "<!-- end of families -->\n";

fn row(family: &Definition) -> String {
    let labels: Vec<String> = family
        .labels
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    format!(
        "| `{}` | {} | {} | {} | {} |\n",
        family.name,
        family.kind.word(),
        family.unit.word(),
        labels.join(", "),
        family.help
    )
}

#[test]
fn document_lists_every_family() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    let rows: String = ALL.iter().map(|family| row(family)).collect();
    let wanted = format!(
        "| family | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n{rows}"
    );
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        table, wanted,
        "stale: UPDATE=1 cargo test -p runmig --lib cli::metrics"
    );
}
