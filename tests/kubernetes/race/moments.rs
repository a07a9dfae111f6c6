//! A local create at the moment of an allocation: the scheduler has chosen, and the driver does not know yet.

use super::Race;
use super::local::Engine;
use super::podman::Podman;
use super::pods::{Kind, Pods, State};
use crate::node::{Node, eventually};
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

/// Creates a pod with a claim, and a local slice when the claim is allocated. Returns the pod's name.
fn meet(race: &Race, podman: &Podman, pods: &mut Pods, profile: &str, local: &str) -> String {
    let standing = Standing::new(race.node);
    let pod = pods.create(Kind::Claim, profile);
    race.node
        .is("condition=PodScheduled", &format!("pod/{pod}"));
    podman.run(local, profile).unwrap();
    drop(standing);
    pod
}

/// Another place of the profile is free on the GPU.
pub fn promise_moves(race: &Race, podman: &Podman, pods: &mut Pods) {
    let node = race.node;
    let pod = meet(race, podman, pods, "1g.10gb", "moves");
    node.is_ready(&pod);
    let of = format!("--field-selector=reason=SliceMoved,involvedObject.name={pod}");
    eventually("the pod has the event", || {
        node.get(&["events", &of])["items"][0].is_object()
    });
    podman.remove("moves");
    pods.delete(&[&pod]);
    eventually("both are gone", || node.leases().is_empty());
}

/// No other place is free. The kubelet tries again during the race.
pub fn promise_waits(race: &Race, podman: &Podman, pods: &mut Pods) {
    podman.run("half", "3g.40gb").unwrap();
    let name = meet(race, podman, pods, "3g.40gb", "waits");
    let names_holder =
        |why: &str| why.contains("cannot make 3g.40gb") && why.contains("has 3g.40gb");
    eventually("the pod says why it does not run", || {
        let all = pods.all();
        let pod = all.iter().find(|pod| pod.name == name).unwrap();
        matches!(&pod.state, State::Refused(_, why) if names_holder(why))
    });
    podman.remove("half");
    podman.remove("waits");
}
