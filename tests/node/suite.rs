//! A suite that this machine runs too, on the node.

use super::install::strip;
use super::machine::{Node, here};
use testkit::prelude::*;

/// What systemd and cgroup v2 have a part in. The others are left to `scripts/test --exhaustive`, which takes five minutes for all.
const TESTS: [&str; 5] = [
    "e2e_runc::cgroups::",
    "e2e_runc::updating::",
    "e2e_runc::life::create_start_delete",
    "e2e_runc::foreground::gets_and_releases_its_slice",
    "e2e_runc::foreground::passes_sockets_of_service_manager",
];
const LIMIT: Duration = Duration::from_secs(1200);

/// Tests of `tests/engines/e2e_runc.rs`, compiled as here, at the path that it was compiled for.
pub fn e2e_runc(node: &Node) {
    let is_exhaustive = std::env::var("RUNMIG_TIER").is_ok_and(|tier| tier == "exhaustive");
    let (tests, least) = match is_exhaustive {
        true => (&["e2e_runc::"][..], 39),
        false => (&TESTS[..], 11),
    };
    let program = built("engines");
    let stage = tempfile::tempdir().expect("a temporary folder");
    let at = stage.path().join(program.strip_prefix("/").unwrap());
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    strip(&program, &at);
    node.copy(stage.path(), "/").unwrap();
    let mut list = Command::new(&program);
    let list = here(list.args(tests).args(["--list", "--format=terse"])).stdout;
    let count = list.lines().filter(|line| line.ends_with(": test")).count();
    assert!(count >= least, "{list}");
    let (program, tests) = (program.display(), tests.join(" "));
    let run = format!("cd / && RUNMIG_REQUIRE_ALL=1 {program} {tests}");
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
