//! Shares at `mps`: an MPS daemon for each container, with its limit.

mod daemon;
mod holding;
mod images;
mod programs;
mod real_program;
mod records;

use testkit::cuda::{self, Client};
use testkit::prelude::*;

const SHARE: &str = "runmig.dev/share";
/// The memory that a CUDA context takes of a share on an L4, in MiB.
const CONTEXT: u64 = 250;

/// A machine with these GPUs, MPS and no MIG.
fn machine(gpus: &[&str]) -> Machine {
    let each = gpus.iter().flat_map(|gpu| ["--gpu", gpu]);
    let all: Vec<&str> = each.chain(["--mig", "off", "--mps"]).collect();
    Machine::with(&all)
}

fn on(low: Low) -> Setup {
    Setup::on(low, machine(&["L4"]))
}

fn asking(setup: &Setup, size: &str) -> Bundle {
    let bundle = setup.bundle("exec sleep 1000");
    bundle.annotate(SHARE, size);
    bundle
}

/// Starts a container with a share whose client takes commands. Returns its id, its bundle and the client.
fn client(setup: &Setup, size: &str) -> (String, Bundle, Client) {
    let (id, bundle) = (unique(), asking(setup, size));
    let mut client = Client::run(setup, &bundle, &id);
    free(&mut client);
    until("the share is ready", || {
        setup.lease(&id)["state"] == "ready"
    });
    (id, bundle, client)
}

/// Returns the free memory that a client sees, in MiB.
#[track_caller]
fn free(client: &mut Client) -> u64 {
    let said = client.say("info");
    let last = said.rsplit(' ').next().and_then(|word| word.parse().ok());
    last.unwrap_or_else(|| panic!("{said}"))
}

#[track_caller]
fn daemon_pid(setup: &Setup, id: &str) -> i32 {
    testkit::sharing::daemon(&setup.lease(id)).expect("a daemon")
}
