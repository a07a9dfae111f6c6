//! A cluster whose API server checks rights, as a real cluster's does, and writes an audit log of the driver's account.

use crate::cluster::Cluster;
use testkit::prelude::*;

const ACCOUNT: &str = "system:serviceaccount:runmig:runmig-dra";

pub struct Servers {
    pub cluster: Cluster,
    audit: TempDir,
}

impl Servers {
    /// None if a part is not built, or for users other than root.
    pub async fn start() -> Option<Servers> {
        let audit = tempfile::tempdir().unwrap();
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
        });
        let [file, log] = ["policy.json", "log"].map(|name| audit.path().join(name));
        fs::write(&file, policy.to_string()).unwrap();
        let flags = [
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            &format!("--audit-policy-file={}", file.display()),
            &format!("--audit-log-path={}", log.display()),
        ];
        let cluster = Cluster::without_driver(&flags).await?;
        Some(Servers { cluster, audit })
    }

    /// The requests of the driver's account, a JSON object on each line.
    pub fn audit_log(&self) -> String {
        fs::read_to_string(self.audit.path().join("log")).unwrap()
    }

    /// Writes a kubeconfig with a token, and returns its path.
    pub fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let name = format!("kubeconfig-{name}");
        self.cluster.plane.kubeconfig(&name, token)
    }

    /// kubectl as the cluster's administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = self.cluster.plane.program("kubectl");
        command.env("KUBECONFIG", self.cluster.at("kubeconfig"));
        said(command.args(arguments)).ok().stdout
    }
}
