//! The levels of shares that this machine has.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use runmig_lease::process;
use runmig_lease::store::InstanceState;

pub const CHECKS: &[Check] = &[
    Check::new(
        "sharing.level",
        "the levels at which shares may hold, and why not the others",
        "install what the level needs",
    ),
    Check::new(
        "sharing.any-level",
        "shares may hold at a level",
        "install nvidia-cuda-mps-control, or permit another level",
    ),
    Check::new(
        "sharing.daemons",
        "the MPS daemon of every share lives",
        "migctl gc",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let Ok(config) = &host.config else {
        return Finding::skip_all(CHECKS, "the configuration cannot be read");
    };
    let levels = runmig_lease::levels(config);
    let one = |(level, obstacle): &(_, Option<String>)| match obstacle {
        None => Finding::ok("sharing.level", format!("shares may hold at {level}")),
        Some(why) => Finding::skip("sharing.level", format!("no share holds at {level}: {why}")),
    };
    let mut findings: Vec<Finding> = levels.iter().map(one).collect();
    findings.push(
        match levels.iter().any(|(_, obstacle)| obstacle.is_none()) {
            true => Finding::ok("sharing.any-level", "shares may hold at a level"),
            false => Finding::warn(
                "sharing.any-level",
                "this machine has no permitted level, so it refuses every share",
                "install nvidia-cuda-mps-control, or permit another level with sharing.enforcement",
            ),
        },
    );
    findings.extend(daemons(host));
    findings
}

fn daemons(host: &Host) -> Vec<Finding> {
    const ID: &str = "sharing.daemons";
    let inventory = match host.seen() {
        Ok(seen) => &seen.inventory,
        Err(why) => return vec![Finding::skip(ID, why)],
    };
    if inventory.is_blind() {
        let why = "the ledger cannot be read, see state.records";
        return vec![Finding::skip(ID, why)];
    }
    let ready = { inventory.leases.iter() }.filter(|held| {
        held.instance.resource.daemon().is_some() && held.instance.state == InstanceState::Ready
    });
    let ended = ready.clone().filter(|held| {
        let process = held.instance.resource.daemon().and_then(|d| d.process);
        process.is_none_or(|process| !process::is_alive(&process))
    });
    let ended: Vec<Finding> = ended
        .map(|held| {
            Finding::fail(
                ID,
                format!(
                    "the {} of {} has ended",
                    held.instance.resource,
                    held.lease.holder.title()
                ),
                "migctl gc starts it again",
            )
        })
        .collect();
    match (ended.is_empty(), ready.count()) {
        (false, _) => ended,
        (true, 0) => vec![Finding::skip(ID, "no share has an MPS daemon")],
        (true, n) => vec![Finding::ok(ID, format!("{n} MPS daemons live"))],
    }
}
