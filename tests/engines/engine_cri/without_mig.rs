//! Shares and whole GPUs from the engines of Kubernetes.

use crate::engine_cri::{passed, shows};
use serde_json::Value;
use testkit::bundle::{nodes, visible};
use testkit::cri::Cri;
use testkit::process::until;

crate::on_every_engine! { @ containerd_1 Containerd1, one_l4: shares_gpu, gives_whole_gpu }
crate::on_every_engine! { @ containerd_2 Containerd2, one_l4: shares_gpu, gives_whole_gpu }
crate::on_every_engine! { @ cri_o Crio, one_l4: shares_gpu, gives_whole_gpu }

/// Checks that a container sees the GPU, and returns its lease.
#[track_caller]
fn sees_gpu(cri: &Cri, id: &str) -> Value {
    until("it printed", || cri.logs(id).contains("VISIBLE="));
    let logs = cri.logs(id);
    let uuid = cri.setup.machine.gpu_uuid(0);
    assert_eq!(visible(&logs), Some(uuid.as_str()));
    assert!(nodes(&logs).contains_key("nvidia0"), "{logs}");
    let leases = cri.setup.leases();
    let lease = leases.iter().find(|lease| lease["container"] == id);
    lease
        .unwrap_or_else(|| panic!("no lease of {id}: {leases:?}"))
        .clone()
}

fn shares_gpu(cri: &mut Cri) {
    let pod = cri.pod(&[("share.runmig.dev/web", "8Gi"), ("runmig.dev/share", "1/4")]);
    let (web, db) = (
        cri.run(&pod, "web", &shows()),
        cri.run(&pod, "db", &shows()),
    );
    for (id, request) in [(&web, "share of 8Gi"), (&db, "share of 1/4")] {
        let lease = sees_gpu(cri, id);
        assert_eq!(
            (&lease["kind"], &lease["state"]),
            (&"share".into(), &"ready".into())
        );
        assert_eq!(lease["request"], request);
    }
    let late = cri.pod(&[("runmig.dev/share", "12Gi")]);
    let refused = cri.try_run(&late, "late", &shows(), &[]).unwrap_err();
    assert!(refused.contains("no GPU has room for it"), "{refused}");
    cri.remove_all();
    cri.setup.nothing_is_left();
    passed(cri, "a share at none");
}

fn gives_whole_gpu(cri: &mut Cri) {
    let pod = cri.pod(&[("gpu.runmig.dev/web", "1")]);
    let web = cri.run(&pod, "web", &shows());
    assert_eq!(sees_gpu(cri, &web)["kind"], "gpu");
    let late = cri.pod(&[("runmig.dev/gpu", "1")]);
    let refused = cri.try_run(&late, "late", &shows(), &[]).unwrap_err();
    assert!(
        refused.contains(&format!("container {web} has it")),
        "{refused}"
    );
    cri.remove_all();
    cri.setup.nothing_is_left();
    passed(cri, "a whole GPU");
}
