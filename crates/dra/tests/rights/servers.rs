//! A real API server with its etcd that checks rights, as a cluster's does, and writes an audit log of the driver's
//! account.

#[path = "../support/mod.rs"]
mod support;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use support::ControlPlane;
pub use support::{programs, sim, until};
use testkit::prelude::*;

pub const ACCOUNT: &str = "system:serviceaccount:runmig:runmig-dra";

pub struct Servers {
    plane: ControlPlane,
    driver: Option<Child>,
}

impl Servers {
    /// None if a part is not built, or for users other than root.
    pub async fn start() -> Option<Servers> {
        let mut plane = ControlPlane::new(&programs()?);
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
        });
        fs::write(plane.at("audit.json"), policy.to_string()).unwrap();
        plane.start(
            "secret,admin,admin,system:masters",
            &[
                "--allow-privileged=true",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--audit-policy-file=audit.json",
                "--audit-log-path=audit.log",
            ],
        );
        plane.kubeconfig("kubeconfig", "secret");
        let servers = Servers {
            plane,
            driver: None,
        };
        until("the API server answers", async || {
            servers.try_kubectl(&["get", "--raw=/readyz"]).is_ok()
        })
        .await;
        Some(servers)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.plane.at(name)
    }

    /// Writes a kubeconfig with a token, and returns its path.
    pub fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        self.plane.kubeconfig(&format!("kubeconfig-{name}"), token)
    }

    /// kubectl as the cluster's administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let said = self.try_kubectl(arguments);
        said.unwrap_or_else(|e| panic!("kubectl {arguments:?}: {e}"))
    }

    fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.plane.program("kubectl");
        command
            .args(arguments)
            .env("KUBECONFIG", self.at("kubeconfig"));
        let output = command.output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    pub fn apply(&self, manifest: &Value) {
        let file = self.at("manifest.json");
        fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
    }

    /// The ResourceSlices, with the rights of a kubeconfig's account.
    pub async fn slices(&self, kubeconfig: &Path) -> Api<ResourceSlice> {
        Api::all(support::client(kubeconfig).await)
    }

    pub fn start_driver(&mut self, node: &str, kubeconfig: &Path) {
        self.plane.make_node();
        let driver = Command::new(env!("CARGO_BIN_EXE_runmig-dra"));
        let mut driver = self.plane.as_driver(driver, node, kubeconfig, "driver.log");
        self.driver = Some(driver.spawn().unwrap());
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(driver) = &mut self.driver {
            let _ = driver.kill();
            let _ = driver.wait();
        }
    }
}
