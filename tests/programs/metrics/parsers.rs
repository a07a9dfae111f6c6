//! Parsers of others accept both formats: promtool, and the strict one of Prometheus' client for Python.

use super::*;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::process::Said;
use testkit::{prometheus, runtimes, skip};

/// Returns the Python with Prometheus' client.
fn python() -> Option<PathBuf> {
    there(
        runtimes::cache()?.join("prometheus/venv/bin/python3"),
        "test",
    )
}

/// Returns a program of Prometheus.
pub fn tool(name: &str) -> Option<PathBuf> {
    there(prometheus::program(&runtimes::cache()?, name), "test")
}

/// Returns what `scripts/setup` makes for a purpose.
pub fn there(tool: PathBuf, purpose: &str) -> Option<PathBuf> {
    if tool.exists() {
        return Some(tool);
    }
    skip(&format!(
        "{} is not there: scripts/setup {purpose}",
        tool.display()
    ));
    None
}

pub fn fed(command: &mut Command, text: &str) -> (Option<i32>, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let ended = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(said).unwrap())
}

/// promtool reads the text format alone. It warns of `modelName`, which dcgm-exporter spells so.
#[test]
fn promtool_accepts_text_format() {
    let (Some(promtool), Some(setup)) = (tool("promtool"), setup()) else {
        return;
    };
    fill(&setup);
    let text = setup
        .migctl(&["metrics", "--format", "prometheus"])
        .ok()
        .stdout;
    let (_, told) = fed(Command::new(promtool).args(["check", "metrics"]), &text);
    let told: Vec<&str> = told.lines().collect();
    let camel = "runmig_gpu_info label names should be written in 'snake_case' not 'camelCase'";
    assert!(told.iter().all(|line| *line == camel), "{told:?}");
}

const STRICT: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type, family.unit or '-', len(family.samples))
";

#[test]
fn strict_parser_accepts_openmetrics() {
    let (Some(python), Some(setup)) = (python(), setup()) else {
        return;
    };
    fill(&setup);
    let text = setup.migctl(&["metrics"]).ok().stdout;
    let parse = |text: &str| fed(Command::new(&python).args(["-c", STRICT]), text);
    let (code, told) = parse(&text);
    assert_eq!(code, Some(0), "{told}");
    for line in [
        "runmig_slice info - 7",
        "runmig_gpu_memory_bytes gauge bytes 20",
        "runmig_driver_up gauge - 1",
    ] {
        assert!(
            told.lines().any(|told| told == line),
            "{line} is not in\n{told}"
        );
    }
    // It finds faults.
    assert_ne!(parse(text.trim_end_matches("# EOF\n")).0, Some(0));
}

/// Returns everything that migctl said about an odd machine, whose exposition the strict parser accepts.
pub fn accepted(said: Said) -> Said {
    if let Some(python) = python() {
        let (code, told) = fed(Command::new(python).args(["-c", STRICT]), &said.stdout);
        assert_eq!(code, Some(0), "{told}\n{}", said.stdout);
    }
    said
}

#[test]
fn ends_quietly_with_its_reader() {
    let Some(setup) = setup() else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut migctl = setup.plain(&setup.program("migctl"));
    let ended = migctl.arg("metrics").stdout(writer).output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}
