//! The cases that pass with each engine. `scripts/engine-table` writes the table of docs/tested-engines.md
//! from these records alone.

use std::fs;

/// The rows, in their order; the script reads them here.
const CASES: [&str; 33] = [
    "a slice by annotation",
    "a pod of two with different slices",
    "none",
    "per-container key",
    "container annotation",
    "a slice by device",
    "a slice by the runtime's request",
    "a share at none",
    "a share at none: exec, update, restart",
    "a share at none: the engine is killed",
    "a share at mps",
    "a share at mps: exec, update, restart",
    "a share at mps: the engine is killed",
    "a share at driver",
    "a share at driver: exec, update, restart",
    "a share at driver: the engine is killed",
    "a whole GPU",
    "a whole GPU: exec, update, restart",
    "a whole GPU: the engine is killed",
    "exec",
    "logs",
    "stop, start again",
    "restart",
    "update",
    "pause",
    "remove",
    "a job that ends by itself",
    "the engine is restarted",
    "the engine is killed",
    "the machine is rebooted",
    "no room: the user reads why",
    "a wrong request: the user reads why",
    "on crun",
];

/// `engine` with its version, as `podman 5.8.3`; `case` in the words of the table's row. Called at
/// the end of the test that has seen it. The table is that of `--full`, so older engines are not in it.
#[track_caller]
pub fn passed(engine: &str, case: &str) {
    assert!(CASES.contains(&case), "not a row of the table: {case}");
    if crate::runtimes::cache().is_some_and(|cache| cache.ends_with("older")) {
        return;
    }
    let dir = crate::programs()
        .with_file_name("tmp")
        .join("engine-table")
        .join(engine);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(case), "").unwrap();
}
