//! The hook of a CDI device that asks runmig for a GPU. runmig takes it out, so it runs where the runtime is another one,
//! and ends the create, so that no container starts without its GPU.

use std::io::Write;

fn main() {
    let asked = std::env::args_os().nth(1).unwrap_or_default();
    let asked = asked.to_string_lossy();
    let what: String = asked
        .replacen('=', " ", 1)
        .chars()
        .filter(|c| !c.is_control())
        .take(256)
        .collect();
    // A broken standard error changes nothing.
    let _ = writeln!(
        std::io::stderr(),
        "cannot give {what}: the runtime of this container is not runmig; hint: add --runtime runmig, or make it the \
         default with migctl configure ENGINE --set-as-default"
    );
    std::process::exit(1);
}
