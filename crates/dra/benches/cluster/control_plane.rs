//! etcd, API server, controller manager and scheduler on loopback, until they are dropped.

#[path = "../../tests/support/mod.rs"]
pub mod support;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use std::fs;
use std::path::Path;
pub use support::until;

pub struct ControlPlane {
    plane: support::ControlPlane,
    /// The API server.
    pub client: Client,
    /// The scheduler, for its metrics.
    scheduler: Client,
}

impl ControlPlane {
    pub async fn start(programs: &Path) -> ControlPlane {
        let mut plane = support::ControlPlane::new(programs);
        plane.start(
            "secret,admin,admin,system:masters",
            &[
                "--authorization-mode=AlwaysAllow",
                // No kubelet removes the taint, and no controller makes accounts.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            ],
        );
        let client = support::client(&plane.kubeconfig("kubeconfig", "secret")).await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        until("the API server answers", async || {
            namespaces.get("default").await.is_ok()
        })
        .await;
        plane.run(
            "kube-controller-manager",
            &[
                "--kubeconfig=kubeconfig",
                "--leader-elect=false",
                "--secure-port=0",
                "--controllers=resourceclaim-controller,garbage-collector-controller",
                "--kube-api-qps=500",
                "--kube-api-burst=500",
            ],
        );
        let port = plane.start_scheduler();
        let scheduler = plane.kubeconfig_for(port, "kubeconfig-scheduler", "secret");
        let plane = ControlPlane {
            scheduler: support::client(&scheduler).await,
            plane,
            client,
        };
        until("the scheduler answers", async || {
            plane.metrics().await.is_some()
        })
        .await;
        plane
    }

    /// Returns the metrics of the scheduler.
    pub async fn metrics(&self) -> Option<String> {
        let request = tonic::codegen::http::Request::get("/metrics")
            .body(Vec::new())
            .ok()?;
        self.scheduler.request_text(request).await.ok()
    }

    /// Returns the resident memory of each part, in MB.
    pub fn resident(&self) -> Vec<(&'static str, u64)> {
        let parts = { self.plane.processes.iter() }
            .map(|(program, process)| (*program, resident(process.id())));
        parts.collect()
    }
}

fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1000
}
