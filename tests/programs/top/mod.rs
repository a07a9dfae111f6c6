//! migctl list with its choices and its watch, and migctl top on a real terminal.

mod choices;
mod live;
mod watch;

use runmig_lease::store::Claim;
use testkit::claims;
use testkit::prelude::*;

/// A machine with a GPU in MIG mode and two without MIG.
fn setup() -> Setup {
    let none = "sharing.enforcement = [\"none\"]";
    Setup::with("--gpu A100-80GB --gpu L4 --count 2", none)
}

/// Creates a container in a pod of a namespace, and returns its id.
fn create(setup: &Setup, namespace: &str, asked: &[(&str, &str)]) -> String {
    setup.in_pod(namespace, "pod", "main", asked)
}

/// Gives a claim of the namespace `team` a small slice.
fn claim(setup: &Setup, name: &str, start: u32) {
    let claim = Claim {
        uid: format!("uid-{name}"),
        namespace: "team".to_owned(),
        name: name.to_owned(),
        device: format!("device-{name}"),
        ..Claim::default()
    };
    let at = claims::place(&setup.machine.gpu_uuid(0), "1g.10gb", start, 1);
    claims::prepare(&setup.config(), claim, &at);
}
