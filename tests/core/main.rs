//! What needs neither an engine nor containers: arguments, config.json, placement, policy, the sources themselves.

mod architecture;
mod args_parse;
mod dependencies;
mod documents;
mod fuzz_seeds;
mod geometry;
mod go_reading;
mod hardware;
mod hardware_shares;
mod install;
mod install_sim;
mod package;
mod placement;
mod policy;
mod rules;
mod spec_bundle;
mod spec_cdi;
mod spec_edit;
mod spec_properties;
mod systemd;
#[path = "../../fuzz/targets.rs"]
#[allow(dead_code)] // the fuzz targets use the rest
mod targets;

/// Returns a command that installs this build with a script.
fn installs(script: &str) -> std::process::Command {
    let built = std::path::Path::new(env!("CARGO_BIN_EXE_runmig"));
    let script = format!("{}/scripts/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = std::process::Command::new(script);
    command.arg("--from").arg(built.parent().unwrap());
    command
}
