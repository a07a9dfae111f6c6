//! Folders of CDI specifications that an engine names.

use crate::configure::place::Place;
use testkit::prelude::*;

/// The last line of a registration names what runmig does not read, until its own configuration has it.
#[test]
fn names_folders_that_runmig_does_not_read() {
    let Some(podman) = on_path("podman") else {
        return skip("podman is not there");
    };
    let program = podman.display().to_string();
    let place = Place::new();
    let configure = || {
        let said = place.configure(&["podman", "--executable", &program]);
        said.ok().stdout
    };
    place.write(
        "/etc/containers/containers.conf",
        "[engine]\ncdi_spec_dirs = [\"/etc/cdi\", \"/run/cdi\"]\n",
    );
    assert!(!configure().contains("cdi_dirs"));
    place.write(
        "/etc/containers/containers.conf.d/10.conf",
        "[engine]\ncdi_spec_dirs = [\"/opt/cdi\", \"/etc/cdi\"]\n",
    );
    let said = configure();
    let line = "write into /etc/runmig/config.toml: cdi_dirs = [\"/opt/cdi\"]";
    has(&said, line);
    place.write("/etc/runmig/config.toml", "cdi_dirs = [\"/opt/cdi\"]\n");
    assert!(!configure().contains("cdi_dirs"));
    let removed = place.configure(&["podman", "--executable", &program, "--remove"]);
    assert!(!removed.ok().stdout.contains("cdi_dirs"));
}

#[test]
fn reads_files_of_each_engine() {
    for (engine, file, text) in testkit::rows! {
        "containerd", "/etc/containerd/config.toml" =>
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = [\"/srv/cdi\"]\n";
        "crio", "/etc/crio/crio.conf" => "[crio.runtime]\ncdi_spec_dirs = [\"/srv/cdi\"]\n";
        "docker", "/etc/docker/daemon.json" => "{\"cdi-spec-dirs\": [\"/srv/cdi\"]}\n";
    } {
        let place = Place::new();
        // A program that tells a version and its configuration, whichever engines this machine has.
        let program = place.path("/usr/bin/engine");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        let version = match engine {
            "containerd" => "containerd github.com/containerd/containerd/v2 v2.1.5 x",
            "crio" => "crio version 1.36.3",
            _ => "Docker version 29.0.0, build x",
        };
        let script = format!(
            "#!/bin/sh\ncase $* in --version) echo '{version}' ;; *) cat {} ;; esac\n",
            place.path(file).display()
        );
        fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        place.write(file, text);
        let program = program.display().to_string();
        let said = place.configure(&[engine, "--executable", &program]).ok();
        let line = "cdi_dirs = [\"/srv/cdi\"]";
        assert!(said.stdout.contains(line), "{engine}: {}", said.stdout);
    }
}
