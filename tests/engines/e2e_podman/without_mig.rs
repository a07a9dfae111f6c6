//! Whole GPUs and shares from podman's command line.

use testkit::bundle::{SHOW, nodes, visible};
use testkit::cuda::{HAS_SOCKET, SOCKETS};
use testkit::podman::on_each;
use testkit::process::lives;
use testkit::{Low, Machine, Setup};

const ASK: &str = "--annotation=runmig.dev/gpu=1";
const ASK_SHARE: &str = "--annotation=runmig.dev/share=8Gi";

fn one_gpu(low: Low) -> Option<Setup> {
    Setup::on(low, Machine::with(&["--gpu", "L4"]))
}

#[test]
fn run_gets_and_releases_gpu() {
    on_each(one_gpu, |setup, podman| {
        let said = podman.run("run", &["--rm", ASK], SHOW).ok();
        let uuid = setup.machine.gpu_uuid(0);
        assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
        assert!(
            nodes(&said.stdout).contains_key("nvidia0"),
            "{}",
            said.stdout
        );
        setup.nothing_is_left();
        podman.passed("a whole GPU");
    });
}

#[test]
fn second_container_is_refused() {
    on_each(one_gpu, |setup, podman| {
        let first = podman
            .run("run", &["--detach", ASK], "exec sleep 1000")
            .ok();
        let id = testkit::podman::id(&first);
        assert_eq!(setup.the_lease()["container"], id);
        let second = podman.run("run", &["--rm", ASK], "true");
        assert!(!second.status.success());
        let words = format!("GPU 0: container {id} has it");
        assert!(second.stderr.contains(&words), "{second:?}");
        podman.remove(id).ok();
        setup.nothing_is_left();
    });
}

#[test]
fn containers_share_gpu() {
    on_each(one_gpu, |setup, podman| {
        podman.configure_runmig("sharing.enforcement = [\"none\"]");
        let first = podman
            .run("run", &["--detach", ASK_SHARE], "exec sleep 1000")
            .ok();
        let id = testkit::podman::id(&first);
        let said = podman
            .run("run", &["--rm", ASK_SHARE], &format!("{SHOW}; env"))
            .ok();
        let uuid = setup.machine.gpu_uuid(0);
        assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
        assert!(
            said.stdout.contains("RUNMIG_GPU_MEMORY=8589934592"),
            "{said:?}"
        );
        let third = podman.run(
            "run",
            &["--rm", "--annotation=runmig.dev/share=20Gi"],
            "true",
        );
        assert!(!third.status.success());
        let words = format!("is free beside container {id}");
        assert!(third.stderr.contains(&words), "{third:?}");
        assert_eq!(setup.the_lease()["kind"], "share");
        podman.remove(id).ok();
        setup.nothing_is_left();
        podman.passed("a share at none");
    });
}

#[test]
fn container_gets_mps_daemon() {
    let with_mps = |low| Setup::on(low, Machine::with(&["--gpu", "L4", "--mps"]));
    on_each(with_mps, |setup, podman| {
        let first = podman
            .run("run", &["--detach", ASK_SHARE], "exec sleep 1000")
            .ok();
        let id = testkit::podman::id(&first);
        let lease = setup.the_lease();
        assert_eq!(lease["enforcement"], "mps");
        let daemon = i32::try_from(lease["daemon"]["pid"].as_i64().unwrap()).unwrap();
        // The end of a second container, with its conmon, is not the end of the first one's daemon.
        let said = podman.run("run", &["--rm", ASK_SHARE], SOCKETS).ok();
        assert!(said.stdout.contains(HAS_SOCKET), "{said:?}");
        assert!(lives(daemon));
        assert_eq!(setup.the_lease()["daemon"]["alive"], true);
        podman.remove(id).ok();
        assert!(!lives(daemon));
        setup.nothing_is_left();
        podman.passed("a share at mps");
    });
}
