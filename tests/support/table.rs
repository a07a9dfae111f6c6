//! What was seen to work with which engine: the README's table is made of this, and of nothing else.

use std::fs;
use std::path::Path;

/// `engine` with its version, as `podman 5.8.3`; `case` in the words of the table's row. Called at
/// the end of the test that has seen it.
pub fn passed(engine: &str, case: &str) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("engine-table")
        .join(engine);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(case), "").unwrap();
}
