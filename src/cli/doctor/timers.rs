//! The timers: the one that collects, and the one that writes metrics for node_exporter.

use super::check::Check;
use super::command::{self, Surroundings};
use super::finding::Finding;
use crate::cli::configure;
use runmig_lease::error::Result;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    Check::new(
        "timers.gc",
        "runmig-gc.timer is active, and its last run succeeded",
        "systemctl enable --now runmig-gc.timer",
    ),
    Check::new(
        "timers.textfile",
        "runmig-textfile.timer is active where it is enabled, and its last run succeeded",
        "systemctl start runmig-textfile.timer",
    ),
];

pub fn findings() -> Vec<Finding> {
    if !Path::new("/run/systemd/system").is_dir() {
        let text = "this machine does not run systemd; call migctl gc by other means";
        return Finding::skip_all(CHECKS, text);
    }
    let Some(systemctl) = configure::search("systemctl") else {
        return Finding::skip_all(CHECKS, "systemctl is not on PATH");
    };
    vec![gc(&systemctl), textfile(&systemctl)]
}

/// The state of a timer and its service, as systemd tells it.
struct Timer {
    /// `active` or not.
    state: String,
    /// `enabled`, `disabled`, or empty without the unit.
    file: String,
    /// The outcome of the last run: `success`, also where none was.
    result: String,
    /// The time of the last run, empty where none was.
    last: String,
}

impl Timer {
    fn ask(systemctl: &Path, name: &str) -> Result<Timer> {
        let show = |unit: &str, property: &str| {
            let arguments = ["show", "--value", "--property", property, unit];
            command::output(systemctl, &arguments, &Surroundings::Only(&[]))
        };
        let timer = format!("{name}.timer");
        Ok(Timer {
            state: show(&timer, "ActiveState")?,
            file: show(&timer, "UnitFileState")?,
            result: show(&format!("{name}.service"), "Result")?,
            last: show(&timer, "LastTriggerUSec")?,
        })
    }

    /// Returns a warning if the last run failed.
    fn failed(&self, id: &'static str, name: &str) -> Option<Finding> {
        let has_failed = !["success", ""].contains(&self.result.as_str());
        has_failed.then(|| {
            Finding::warn(
                id,
                format!("the last run of {name}.service ended with {}", self.result),
                format!("journalctl -u {name}.service says why"),
            )
        })
    }

    fn well(&self, id: &'static str, name: &str) -> Finding {
        let text = match ["", "n/a"].contains(&self.last.as_str()) {
            true => format!("{name}.timer is active, and has not run yet"),
            false => format!(
                "{name}.timer is active, and its last run, {}, succeeded",
                self.last
            ),
        };
        Finding::ok(id, text)
    }
}

fn gc(systemctl: &Path) -> Finding {
    const ID: &str = "timers.gc";
    const NAME: &str = "runmig-gc";
    let timer = match Timer::ask(systemctl, NAME) {
        Ok(timer) => timer,
        Err(e) => return Finding::warned(ID, &e),
    };
    if timer.state != "active" {
        return Finding::warn(
            ID,
            format!(
                "{NAME}.timer is {}, so only creates and migctl gc release leases of dead containers",
                timer.state
            ),
            format!("systemctl enable --now {NAME}.timer"),
        );
    }
    let failed = timer.failed(ID, NAME);
    failed.unwrap_or_else(|| timer.well(ID, NAME))
}

fn textfile(systemctl: &Path) -> Finding {
    const ID: &str = "timers.textfile";
    const NAME: &str = "runmig-textfile";
    let timer = match Timer::ask(systemctl, NAME) {
        Ok(timer) => timer,
        Err(e) => return Finding::warned(ID, &e),
    };
    if timer.file != "enabled" && timer.state != "active" {
        let text =
            format!("{NAME}.timer is not enabled, so node_exporter gets no metrics of runmig");
        return Finding::skip(ID, text);
    }
    if timer.state != "active" {
        return Finding::warn(
            ID,
            format!("{NAME}.timer is enabled and {}", timer.state),
            format!("systemctl start {NAME}.timer"),
        );
    }
    let failed = timer.failed(ID, NAME);
    failed.unwrap_or_else(|| timer.well(ID, NAME))
}
