//! The programs of Prometheus, of which promtool reads every exposition.

use testkit::prelude::*;
use testkit::{prometheus, runtimes};

/// Returns a program of Prometheus.
pub fn tool(name: &str) -> Option<PathBuf> {
    there(prometheus::program(&runtimes::cache()?, name), "full")
}

/// Returns what `scripts/setup` makes for a purpose.
pub fn there(tool: PathBuf, purpose: &str) -> Option<PathBuf> {
    if tool.exists() {
        return Some(tool);
    }
    let missing = tool.display();
    skip_until_full(&format!("{missing} is not there: scripts/setup {purpose}"));
    None
}

/// Returns all that promtool says about a text.
fn told_by_promtool(promtool: PathBuf, text: &str) -> String {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    io::Seek::rewind(&mut file).unwrap();
    let mut check = Command::new(promtool);
    let told = going(check.args(["check", "metrics"]).stdin(file)).end();
    told.stdout + &told.stderr
}

/// Returns everything that migctl said, after promtool has accepted it. It warns of `modelName`, which dcgm-exporter spells
/// so.
#[track_caller]
pub fn accepted(said: Said) -> Said {
    if let Some(promtool) = tool("promtool") {
        let told = told_by_promtool(promtool, &said.stdout);
        let camel = "runmig_gpu_info label names should be written in 'snake_case' not 'camelCase'";
        let others: Vec<&str> = told.lines().filter(|line| *line != camel).collect();
        assert!(others.is_empty(), "{others:?}\n{}", said.stdout);
    }
    said
}

#[test]
fn promtool_finds_faults() {
    if let Some(promtool) = tool("promtool") {
        let told = told_by_promtool(promtool, "runmig_driver_up yes\n");
        has(&told, "error");
    }
}
