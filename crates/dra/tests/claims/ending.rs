//! The end of the driver by a signal, as in a rollover: calls at work get an answer.

use crate::cluster::{Cluster, POOL, until};
use crate::health;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nvml_sim::fault::{self, Rule};

const CREATE: &str = "nvmlDeviceCreateGpuInstanceWithPlacement";

/// Prepares a claim while the driver gets a signal at a call of the GPU driver that takes this time. Returns the error
/// of the answer.
async fn ended_within(
    cluster: &mut Cluster,
    device: &str,
    (name, takes_ms): (&str, u64),
) -> String {
    let machine = cluster.at("machine");
    let rule = Rule {
        takes_ms,
        ..Rule::every(CREATE)
    };
    fault::add(&machine, rule).unwrap();
    let claim = cluster.claim(name, device, POOL).await;
    let mut healths = health::watch(cluster).await;
    let pid = cluster.driver.as_ref().unwrap().0.id();
    let (answer, ()) = tokio::join!(cluster.prepare(&claim), async {
        until("the GPU driver is at work", async || {
            fault::list(&machine).unwrap()[0].seen > 0
        })
        .await;
        kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGTERM).unwrap();
        // The stream ends, and is not cut off.
        while health::next(&mut healths).await.is_some() {}
    });
    let mut driver = cluster.driver.take().unwrap();
    until("the driver has ended", async || {
        driver.0.try_wait().unwrap().is_some()
    })
    .await;
    assert!(driver.0.wait().unwrap().success());
    let registry = cluster.at("kubelet/plugins_registry");
    assert_eq!(std::fs::read_dir(registry).unwrap().count(), 0);

    fault::clear(&machine).unwrap();
    cluster.start_driver();
    let next = cluster.prepared(&claim).await;
    if answer.error.is_empty() {
        assert_eq!(next, answer);
    }
    assert_eq!(cluster.starts().len(), 1);
    cluster.unprepare(&claim).await;
    cluster.is_empty();
    answer.error
}

/// A busy machine may make the short call a long one.
/// Failure: a signal ends the driver during a call of the kubelet
pub async fn signal_leaves_no_call_unanswered(cluster: &mut Cluster, device: &str) {
    for (name, takes_ms) in [("ends-late", 600_000), ("ends-soon", 500)] {
        let error = ended_within(cluster, device, (name, takes_ms)).await;
        let words = format!(
            "cannot prepare claim default/{name}: this process of runmig-dra ends, and the next one continues the work; \
             hint: wait, since the kubelet asks again"
        );
        let is_answered = name == "ends-soon" && error.is_empty();
        assert!(is_answered || error == words, "{name}: {error}");
    }
}
