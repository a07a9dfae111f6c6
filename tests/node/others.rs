//! Engines that other tools have set up: docker and containerd by NVIDIA's toolkit, as the GPU Operator does it too, and podman by
//! an administrator. It runs after `readme`, which leaves engines, NVIDIA's tools and a machine, and nothing of runmig.

use super::machine::{Node, SIM};
use testkit::prelude::*;

/// The files of the engines, with their hashes.
const FILES: &str =
    "find /etc/docker /etc/containerd /etc/containers -type f | sort | xargs sha256sum";
const ASK: &str = "--runtime runmig --annotation runmig.dev/slice=1g.10gb";

pub fn engines_keep_what_others_set(node: &Node) {
    let Some(toolkit) = built("nvidia-container-runtime", "nvidia-container-runtime") else {
        return testkit::skip_until_full("no NVIDIA toolkit; run scripts/engines");
    };
    if !node.run("test -d /root/built").status.success() {
        return testkit::skip_until_full("no node as readme leaves it");
    }
    let stage = tempfile::tempdir().unwrap();
    fs::copy(&toolkit, stage.path().join("nvidia-container-runtime")).unwrap();
    node.copy(stage.path(), "/usr/bin").unwrap();
    node.ok(&format!(
        "set -e
         mkdir -p /etc/runmig
         printf '[driver]\\nroot = \"{SIM}\"\\n' >/etc/runmig/config.toml
         /root/runmig/scripts/install --from /root/built
         nvidia-smi -i 0 -mig 1
         nvidia-ctk runtime configure --runtime=docker --set-as-default
         nvidia-ctk runtime configure --runtime=containerd --set-as-default
         mkdir -p /etc/containers/containers.conf.d
         cat >/etc/containers/containers.conf.d/99-nvidia.conf <<'CONF'
[engine]
runtime = \"crun\"
[engine.runtimes]
nvidia = [\"/usr/bin/nvidia-container-runtime\"]
CONF
         systemctl restart docker containerd"
    ));
    let before = node.ok(FILES);
    let default = "docker info --format '{{.DefaultRuntime}}'
         containerd config dump | grep default_runtime_name
         podman info --format '{{.Host.OCIRuntime.Name}}'";
    let defaults = node.ok(default);
    assert!(defaults.contains("nvidia"), "{defaults}");

    // containerd 1.7 takes the CRI plugin from the toolkit's file alone.
    let refused = node.run("migctl configure containerd").exits(1).stderr;
    let hint = "hint: add the handler to that file with ";
    let (_, option) = refused.split_once(hint).unwrap();
    let containerd = format!("containerd {}", option.trim());
    let engines = ["docker", &containerd, "podman"];
    for engine in engines {
        node.ok(&format!("migctl configure {engine}"));
    }
    node.ok("systemctl restart docker containerd");
    assert_eq!(node.ok(default), defaults);
    let handler = node.ok("containerd config dump | grep -A20 'runtimes.runmig'");
    assert!(handler.contains("/usr/local/bin/runmig"), "{handler}");
    let podman = ASK.replace("--annotation", "run --rm --network=none --annotation");
    for run in [
        format!("docker run --rm {ASK} debian"),
        format!("podman {podman} debian"),
    ] {
        let devices = node.ok(&format!("{run} nvidia-smi -L"));
        assert_eq!(devices.matches("MIG 1g.10gb").count(), 1, "{devices}");
    }
    node.ok("docker run --rm debian true && podman run --rm --network=none debian true");
    let doctor = node.run("migctl doctor");
    assert!(doctor.status.success(), "{}", doctor.stdout);

    for engine in engines {
        node.ok(&format!("migctl configure {engine} --remove"));
    }
    node.ok("systemctl restart docker containerd");
    assert_eq!(node.ok(FILES), before);
    assert_eq!(node.ok(default), defaults);
    assert_eq!(node.instances(), 0);
}
