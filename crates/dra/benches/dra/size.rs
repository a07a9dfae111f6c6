//! The size of the program.

use super::figures::Figure;
use std::path::Path;
use std::process::Command;

/// Returns the size without symbols.
pub fn run(shipped: Option<&Path>) -> Vec<Figure> {
    let program = shipped.unwrap_or(Path::new(env!("CARGO_BIN_EXE_runmig-dra")));
    let dir = tempfile::tempdir().expect("a folder");
    let stripped = dir.path().join("runmig-dra");
    let mut strip = Command::new("strip");
    let done = strip.arg("-o").arg(&stripped).arg(program).status();
    assert!(done.expect("strip").success());
    let size = stripped.metadata().expect("a file").len();
    vec![Figure::new(
        "stripped program",
        size as f64 / 1e6,
        8.0,
        "MB",
    )]
}
