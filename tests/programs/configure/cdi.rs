//! Folders of CDI specifications that an engine names.

use crate::configure::place::Place;
use testkit::prelude::*;

/// The last line of a registration names what runmig does not read, until its own configuration has it.
#[test]
fn names_folders_that_runmig_does_not_read() {
    let place = Place::stub("podman", "podman version 5.8.3");
    let says = |more: &[&str]| place.configure(more).ok().stdout;
    let names = |file: &str, dirs: &str| {
        let text = format!("[engine]\ncdi_spec_dirs = [{dirs}]\n");
        place.write(&format!("/etc/containers/{file}"), &text);
    };
    names("containers.conf", "\"/etc/cdi\", \"/run/cdi\"");
    lacks(&says(&[]), "cdi_dirs");
    names("containers.conf.d/10.conf", "\"/opt/cdi\", \"/etc/cdi\"");
    let line = "write into /etc/runmig/config.toml: cdi_dirs = [\"/opt/cdi\"]";
    has(&says(&[]), line);
    place.write("/etc/runmig/config.toml", "cdi_dirs = [\"/opt/cdi\"]\n");
    lacks(&says(&[]), "cdi_dirs");
    lacks(&says(&["--remove"]), "cdi_dirs");
}

#[test]
fn reads_files_of_each_engine() {
    for (engine, version, file, text) in testkit::rows! {
        "containerd", "containerd github.com/containerd/containerd/v2 v2.1.5 x", "/etc/containerd/config.toml" =>
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = [\"/srv/cdi\"]\n";
        "crio", "crio version 1.36.3", "/etc/crio/crio.conf" => "[crio.runtime]\ncdi_spec_dirs = [\"/srv/cdi\"]\n";
        "docker", "Docker version 29.0.0, build x", "/etc/docker/daemon.json" => "{\"cdi-spec-dirs\": [\"/srv/cdi\"]}\n";
    } {
        let place = Place::stub(engine, version);
        place.write(file, text);
        let said = place.configure(&[]).ok().stdout;
        has(&said, "cdi_dirs = [\"/srv/cdi\"]");
    }
}
