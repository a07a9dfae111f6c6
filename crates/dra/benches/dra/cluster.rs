//! API server and etcd on loopback, the objects of a pod with a claim, and the driver's writes.

#[path = "../../tests/support/mod.rs"]
mod support;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use runmig_dra::kubelet::messages::Claim;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
pub use support::{sim, until};

/// The account of the driver.
const DRIVER: &str = "runmig-dra";

pub struct Cluster {
    plane: support::ControlPlane,
    pub client: Client,
}

/// A pod with a claim of its own.
pub struct Wanted {
    pub claim: Claim,
    pub node: String,
}

impl Cluster {
    pub async fn start(programs: &Path) -> Cluster {
        let mut plane = support::ControlPlane::new(programs);
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [DRIVER]}, {"level": "None"}],
        });
        fs::write(plane.at("audit.json"), policy.to_string()).expect("a file");
        let tokens =
            format!("secret,admin,admin,system:masters\ndriver,{DRIVER},{DRIVER},system:masters\n");
        plane.start(
            &tokens,
            &[
                "--authorization-mode=AlwaysAllow",
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                "--audit-policy-file=audit.json",
                "--audit-log-path=audit.log",
            ],
        );
        let client = support::client(&plane.kubeconfig("kubeconfig", "secret")).await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        until("the API server answers", async || {
            namespaces.get("default").await.is_ok()
        })
        .await;
        Cluster { plane, client }
    }

    /// Returns the driver's way to the API server.
    pub fn driver(&self) -> PathBuf {
        self.plane.kubeconfig("kubeconfig-driver", "driver")
    }

    pub async fn node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = object(json!({"metadata": {"name": name}}));
        let made = nodes.create(&PostParams::default(), &node).await;
        made.expect("a node");
    }

    /// Makes a pod that nothing has bound yet, and its claim with this device.
    pub async fn pod(&self, name: &str, node: &str, device: &str) -> Wanted {
        let claims: Api<ResourceClaim> = Api::default_namespaced(self.client.clone());
        let claim = object(json!({
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [
                {"name": "slice", "exactly": {"deviceClassName": "mig-1g.10gb"}},
            ]}},
        }));
        let claim = claims.create(&PostParams::default(), &claim).await;
        let pod: Pod = object(json!({
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "c", "image": "none"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            },
        }));
        let pod = self.pods().create(&PostParams::default(), &pod).await;
        let pod = pod.expect("a pod");
        let result = json!({
            "driver": "gpu.runmig.dev", "pool": format!("runmig.{node}"), "device": device, "request": "slice",
        });
        let status = json!({"status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod.uid()}],
        }});
        let patch = Patch::Merge(status);
        let allocated = claims
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        allocated.expect("a status");
        Wanted {
            claim: Claim {
                namespace: "default".to_owned(),
                uid: claim.expect("a claim").uid().expect("a uid"),
                name: name.to_owned(),
            },
            node: node.to_owned(),
        }
    }

    /// Binds a pod, as the scheduler does.
    pub async fn bind(&self, wanted: &Wanted) {
        let name = &wanted.claim.name;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": wanted.node},
        });
        let (pods, write) = (self.pods(), PostParams::default());
        let bound = pods
            .create_subresource("binding", name, &write, &binding)
            .await;
        let _: Value = bound.expect("a binding");
    }

    /// Deletes a pod and its claim.
    pub async fn delete(&self, wanted: &Wanted) {
        let claims: Api<ResourceClaim> = Api::default_namespaced(self.client.clone());
        let (name, now) = (&wanted.claim.name, DeleteParams::default().grace_period(0));
        self.pods().delete(name, &now).await.expect("a pod");
        claims.delete(name, &now).await.expect("a claim");
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Returns the driver's writes so far, by resource. The API server logs them.
    pub fn writes(&self) -> BTreeMap<String, usize> {
        let log = fs::read_to_string(self.plane.at("audit.log")).unwrap_or_default();
        let mut writes = BTreeMap::new();
        for line in log.lines() {
            // The last line may be half written.
            let Ok(call) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let is_write = ["create", "update", "patch", "delete"]
                .iter()
                .any(|v| call["verb"] == *v);
            let uri = call["requestURI"].as_str().unwrap_or_default();
            if is_write && !uri.contains("dryRun=") {
                let resource = call["objectRef"]["resource"].as_str().unwrap_or_default();
                *writes.entry(resource.to_owned()).or_default() += 1;
            }
        }
        writes
    }
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}
