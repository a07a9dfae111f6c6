//! The hook, in the environment that a low-level runtime gives it: none.

use super::command;
use super::finding::Finding;
use super::host::Host;
use runmig_lease::programs::HOOK;

pub fn findings(host: &Host) -> Vec<Finding> {
    let hook = host.folder.join(HOOK);
    vec![match command::output(&hook, &["--version"], &[]) {
        Ok(_) => Finding::ok(
            "runs",
            format!("{} runs without an environment", hook.display()),
        ),
        Err(e) => Finding::failed("runs", &e),
    }]
}
