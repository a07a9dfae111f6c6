//! A local create at the moment of an allocation: the scheduler has chosen, and the driver does not know yet.

use crate::node::{Node, eventually};
use crate::two_nodes::pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The driver stands still, until this value is dropped.
struct Standing(Vec<Pid>);

impl Standing {
    fn new(node: &Node) -> Standing {
        let driver = node.processes("/usr/local/bin/runmig-dra");
        assert!(!driver.is_empty());
        let standing = Standing(driver.into_iter().map(Pid::from_raw).collect());
        for pid in &standing.0 {
            kill(*pid, Signal::SIGSTOP).unwrap();
        }
        standing
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// Creates a pod with a claim, and a local slice when the claim is allocated.
fn meet(node: &Node, claim: &str, profile: &str, local: &str) {
    let standing = Standing::new(node);
    pod(node, claim, profile);
    node.is("condition=PodScheduled", &format!("pod/{claim}"));
    node.sleeper(local, profile);
    node.is_ready(local);
    drop(standing);
}

/// Another place of the profile is free on the GPU.
pub fn promise_moves(node: &Node) {
    meet(node, "moved", "1g.10gb", "first");
    node.is_ready("moved");
    let of = "--field-selector=reason=SliceMoved,involvedObject.name=moved";
    eventually("the pod has the event", || {
        node.get(&["events", of])["items"][0].is_object()
    });
    ["moved", "first"].iter().for_each(|pod| node.delete(pod));
}

/// No other place is free, until one of the holders goes.
pub fn promise_waits(node: &Node) {
    node.sleeper("half", "3g.40gb");
    node.is_ready("half");
    meet(node, "waits", "3g.40gb", "other");
    eventually("the pod says why it does not run", || {
        let said = node.describe("waits");
        said.contains("cannot make 3g.40gb") && said.contains("has 3g.40gb")
    });
    node.delete("other");
    node.is_ready("waits");
    ["waits", "half"].iter().for_each(|pod| node.delete(pod));
}
