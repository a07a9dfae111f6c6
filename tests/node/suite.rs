//! A suite that this machine runs too, on the node.

use super::install::strip;
use super::machine::{Node, here};
use testkit::prelude::*;

const SUITE: &str = "e2e_runc::";
/// Takes four minutes beside nothing else.
const LIMIT: Duration = Duration::from_secs(1200);

/// All of `tests/engines/e2e_runc.rs`, compiled as here, at the path that it was compiled for.
pub fn e2e_runc(node: &Node) {
    let program = built("engines");
    let stage = tempfile::tempdir().expect("a temporary folder");
    let at = stage.path().join(program.strip_prefix("/").unwrap());
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    strip(&program, &at);
    node.copy(stage.path(), "/").unwrap();
    let list = here(Command::new(&program).args([SUITE, "--list", "--format=terse"]));
    let tests = list.stdout.lines().filter(|line| line.ends_with(": test"));
    let count = tests.count();
    assert!(count >= 39, "{}", list.stdout);
    let program = program.display();
    let run = format!("cd / && RUNMIG_REQUIRE_ALL=1 {program} {SUITE}");
    let said = node.run_within(&run, LIMIT);
    let passed = format!("test result: ok. {count} passed; 0 failed; 0 ignored;");
    has(&format!("{}\n{}", said.stdout, said.stderr), &passed);
}

/// The program of a test, which cargo builds unless it is there.
fn built(test: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--locked", "--no-run"]);
    cargo.args(["--message-format=json", "--test", test]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo");
    assert!(output.status.success(), "{output:?}");
    let messages = String::from_utf8(output.stdout).expect("UTF-8");
    let mut programs = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == test).then_some(())?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    programs
        .next_back()
        .unwrap_or_else(|| panic!("cargo built no {test}"))
}
