//! The levels of shares that this machine has.

use super::finding::Finding;
use super::host::Host;

pub fn findings(host: &Host) -> Vec<Finding> {
    let Ok(config) = &host.config else {
        return vec![Finding::skip("level", "the configuration cannot be read")];
    };
    let levels = runmig_lease::levels(config);
    let one = |(level, obstacle): &(_, Option<String>)| match obstacle {
        None => Finding::ok("level", format!("shares may hold at {level}")),
        Some(why) => Finding::skip("level", format!("no share holds at {level}: {why}")),
    };
    let mut findings: Vec<Finding> = levels.iter().map(one).collect();
    if levels.iter().all(|(_, obstacle)| obstacle.is_some()) {
        findings.push(Finding::warn(
            "any-level",
            "this machine has no permitted level, so it refuses every share",
            "install nvidia-cuda-mps-control, or permit another level with sharing.enforcement",
        ));
    }
    findings
}
