//! Shares at `mps` from the engines of Kubernetes.

use crate::engine_cri::{passed, stays};
use testkit::cri::Cri;
use testkit::cuda::{HAS_SOCKET, SOCKETS};
use testkit::process::until;

crate::on_every_engine! { @ containerd_1 Containerd1, one_l4_with_mps: starts_mps_daemon }
crate::on_every_engine! { @ containerd_2 Containerd2, one_l4_with_mps: starts_mps_daemon }
crate::on_every_engine! { @ cri_o Crio, one_l4_with_mps: starts_mps_daemon }

fn starts_mps_daemon(cri: &mut Cri) {
    let pod = cri.pod(&[("runmig.dev/share", "8Gi")]);
    let script = stays(SOCKETS);
    let ids = [cri.run(&pod, "web", &script), cri.run(&pod, "db", &script)];
    for id in &ids {
        until("it printed", || cri.logs(id).contains("SOCKETS"));
        assert!(cri.logs(id).contains(HAS_SOCKET), "{}", cri.logs(id));
    }
    let leases = cri.setup.leases();
    assert_eq!(leases.len(), 2);
    for lease in leases {
        assert_eq!(
            (&lease["enforcement"], &lease["daemon"]["alive"]),
            (&"mps".into(), &true.into())
        );
    }
    cri.remove_all();
    cri.setup.nothing_is_left();
    passed(cri, "a share at mps");
}
