//! k3s and RKE2: the main file is made anew at each start, from a template that is not TOML.

use crate::configure::place::{Place, RUNMIG};
use testkit::prelude::*;

const K3S: &str = "/var/lib/rancher/k3s";
const RKE2: &str = "/var/lib/rancher/rke2";
const BASE: &str = "{{ template \"base\" . }}\n\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\n  \
                    runtime_type = \"io.containerd.kata.v2\"\n";

/// The files of containerd below a data folder.
fn files(data: &str, name: &str) -> String {
    format!("{data}/agent/etc/containerd/{name}")
}

fn generated(data: &str) -> String {
    format!(
        "version = 3\nimports = [\"{}/*.toml\"]\nroot = \"{data}/agent/containerd\"\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
         runtime_type = \"io.containerd.runc.v2\"\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n",
        files(data, "config-v3.toml.d")
    )
}

/// runmig's drop-in is the only change.
#[track_caller]
fn adds_a_drop_in(place: &Place, data: &str, more: &[&str]) {
    let drop_in = files(data, "config-v3.toml.d/runmig.toml");
    let said = place.configure(&[]).ok().stdout;
    let text = place.read(&drop_in);
    let name = format!("BinaryName = \"{RUNMIG}\"");
    for part in ["\nversion = 3\n", &name].iter().chain(more) {
        has(&text, part);
    }
    assert_eq!(said.matches("created ").count(), 1, "{said}");
    lacks(&said, "changed ");
    place.configure(&[]).ok().says("nothing to change");
    place.configure(&["--remove"]).ok();
    assert!(!place.path(&drop_in).exists());
}

#[test]
fn template_gets_a_drop_in() {
    for data in [K3S, RKE2, "/srv/k3s-data"] {
        let template = files(data, "config-v3.toml.tmpl");
        let place = Place::new().calls(&["containerd", "--engine-config", &template]);
        place.write(&template, BASE);
        adds_a_drop_in(&place, data, &[]);
        assert_eq!(place.read(&template), BASE);
        place.write(&files(data, "config-v3.toml"), &generated(data));
        adds_a_drop_in(&place, data, &["SystemdCgroup = true"]);
        let drop_ins = files(data, "config-v3.toml.d");
        let own = format!("version = 3\nimports = [\"{drop_ins}/*.toml\"]\n");
        let beside = "imports = ['config-v3.toml.d/*.toml']\n";
        for text in [
            own.as_str(),
            beside,
            &format!("{{{{/* a */}}}}\n{own}{{{{- /* b */ -}}}}\n"),
            "{{- template `base` . -}}\n",
            "{{ template  \"base\" . }}",
        ] {
            place.write(&template, text);
            adds_a_drop_in(&place, data, &[]);
        }
        for other in [
            "imports = ['other.d/*.toml', '/srv/config-v3.toml.d/*.toml']\n",
            "{{/* {{ template \"base\" . }} */}}\nversion = 3\n",
            "{{- /* a */ -}}\n{{/* template \"base\" . */}}\nversion = 3\n",
            &format!("# {beside}"),
            "version = 3\n{{ if .Debug }}oom_score = 1{{ end }}\n",
        ] {
            place.write(&template, other);
            place.refused(&[], "neither takes over the base nor imports");
        }
    }
}

#[test]
fn finds_the_only_containerd() {
    for (data, restart, agent) in [
        (K3S, "systemctl restart k3s\n", "k3s-agent"),
        (RKE2, "systemctl restart rke2-server\n", "rke2-agent"),
    ] {
        let place = Place::new().calls(&["containerd"]);
        place.write(&files(data, "config-v3.toml"), &generated(data));
        adds_a_drop_in(&place, data, &[]);
        place.configure(&["--set-as-default"]).ok().says(restart);
        let text = place.read(&files(data, "config-v3.toml.d/runmig.toml"));
        has(&text, "default_runtime_name = \"runmig\"");
        let unit = format!("/etc/systemd/system/multi-user.target.wants/{agent}.service");
        place.write(&unit, "");
        let said = place.configure(&["--remove"]).ok().stdout;
        has(&said, &format!("systemctl restart {agent}\n"));
    }
}

/// containerd 1 would lose every other setting of the CRI plugin.
#[test]
fn containerd_1_gets_no_drop_in() {
    let template = files(K3S, "config.toml.tmpl");
    let place = Place::new().calls(&["containerd", "--engine-config", &template]);
    place.write(&template, "{{ template \"base\" . }}\n");
    let refused = |words: &str| drop(place.refused(&[], words));
    refused("containerd 1 takes the CRI plugin from one file alone");
    let program = place.path(K3S).join("data/0123abcd/bin/containerd");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let says = |version: &str| script(&program, &format!("echo containerd x {version} x"));
    says("v1.7.27-k3s1");
    refused("containerd 1 takes the CRI plugin from one file alone");
    says("v2.1.5-k3s1");
    place.configure(&[]).ok();
    let drop_in = files(K3S, "config.toml.d/runmig.toml");
    assert!(place.read(&drop_in).contains("\nversion = 2\n"));
    place.write(&files(K3S, "config.toml"), "version = 9\n");
    refused("migctl does not know version = 9 of containerd's files");
}
