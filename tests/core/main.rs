//! What needs neither an engine nor containers: arguments, config.json, placement, policy, the sources themselves.

mod architecture;
mod args_parse;
mod dependencies;
mod documents;
mod fuzz_seeds;
mod geometry;
mod go_reading;
mod layout_plan;
mod leases;
mod placement;
mod policy;
mod rules;
mod spec_bundle;
mod spec_cdi;
mod spec_edit;
mod spec_properties;
#[path = "../../fuzz/targets.rs"]
#[allow(dead_code)] // the fuzz targets use the rest
mod targets;

use runmig::spec::{Grant, HookCommand};
use runmig_lease::cdi::Edits;
use runmig_lease::model::{DeviceNode, NvidiaNumbers};

/// What an edit puts into a config.json: these devices, and a hook.
fn grant<'a>(
    uuids: &'a [&'a str],
    nodes: &'a [DeviceNode],
    driver: &'a Edits,
    numbers: &'a NvidiaNumbers,
) -> Grant<'a> {
    let hook = HookCommand {
        path: "/h/runmig-hook".into(),
        leases: vec!["4f2a".into()],
        args: vec![],
        limits: false,
    };
    Grant {
        door: None,
        uuids,
        nodes,
        hook,
        driver,
        numbers,
        share: None,
    }
}

fn device(path: &str, major: u32, minor: u32) -> DeviceNode {
    DeviceNode {
        path: path.into(),
        major,
        minor,
        mode: 0o666,
    }
}

/// Returns an index below the end; 0 of nothing.
fn below(dice: &mut testkit::random::Random, end: usize) -> usize {
    dice.below(end.max(1) as u64) as usize
}
