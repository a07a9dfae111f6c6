//! The timer that collects.

use super::command;
use super::finding::Finding;
use crate::cli::configure;
use std::path::Path;

const TIMER: &str = "runmig-gc.timer";
const SERVICE: &str = "runmig-gc.service";

pub fn findings() -> Vec<Finding> {
    if !Path::new("/run/systemd/system").is_dir() {
        let text = "this machine does not run systemd; call migctl gc by other means";
        return vec![Finding::skip("gc", text)];
    }
    let Some(systemctl) = configure::search("systemctl") else {
        return vec![Finding::skip("gc", "systemctl is not on PATH")];
    };
    let show = |unit: &str, property: &str| {
        command::output(
            &systemctl,
            &["show", "--value", "--property", property, unit],
            &[],
        )
    };
    let enable = format!("systemctl enable --now {TIMER}");
    vec![
        match (show(TIMER, "ActiveState"), show(SERVICE, "Result")) {
            (Err(e), _) | (_, Err(e)) => Finding::failed("gc", &e),
            (Ok(state), _) if state != "active" => Finding::warn(
                "gc",
                format!(
                    "{TIMER} is {state}, so only creates and migctl gc release leases of dead containers"
                ),
                enable,
            ),
            (Ok(_), Ok(result)) if result != "success" => Finding::warn(
                "gc",
                format!("the last run of {SERVICE} ended with {result}"),
                format!("journalctl -u {SERVICE} says why"),
            ),
            _ => Finding::ok(
                "gc",
                format!("{TIMER} is active, and its last run succeeded"),
            ),
        },
    ]
}
