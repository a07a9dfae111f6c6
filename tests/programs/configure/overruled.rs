//! Files of other tools that an engine reads too: one that it reads later can give runmig's name, or the default, to another
//! runtime. The engines are stand-ins, since their files alone decide.

use crate::configure::place::Place;
use testkit::prelude::*;

/// It becomes the default, and goes again.
#[track_caller]
fn becomes_the_default(place: &Place, more: &[&str]) {
    let before = place.files();
    let default = [more, &["--set-as-default"]].concat();
    place.configure(&default).ok();
    place.configure(&default).ok().says("nothing to change");
    let plain = place.configure(more).ok();
    plain.says("runmig no longer; hint: keep it with --set");
    place.configure(&[more, &["--remove"]].concat()).ok();
    assert_eq!(place.files(), before);
}

/// Another tool's file keeps runmig from the default alone; a plain registration works beside it.
#[track_caller]
fn keeps_the_default(place: &Place, file: &str, text: &str) {
    place.write(file, text);
    let words = format!("cannot make runmig the default: {file} says");
    place.refused(&["--set-as-default"], &words);
    place.there_and_back(|| {});
    fs::remove_file(place.path(file)).unwrap();
}

/// Another tool's file has the name, whatever the options.
#[track_caller]
fn keeps_the_name(place: &Place, file: &str, text: &str) {
    place.write(file, text);
    for more in [&[][..], &["--set-as-default"]] {
        place.refused(more, &format!("{file} gives that name to /opt/other"));
    }
    fs::remove_file(place.path(file)).unwrap();
}

#[test]
fn later_crio_file_keeps_the_default() {
    let place = Place::stub("crio", "crio version 1.36.3");
    let theirs = "[crio.runtime]\ndefault_runtime = \"nvidia\"\n[crio.runtime.runtimes.nvidia]\n\
                  runtime_path = \"/usr/bin/nvidia-container-runtime\"\n";
    for file in ["99-nvidia.toml", "99-nvidia.conf", "21-tools/kata"] {
        let file = format!("/etc/crio/crio.conf.d/{file}");
        keeps_the_default(&place, &file, theirs);
    }
    for file in ["crio.conf", "crio.conf.d/10-nvidia.toml"] {
        place.write(&format!("/etc/crio/{file}"), theirs);
    }
    becomes_the_default(&place, &[]);
    // Its own drop-in can come last.
    place.write("/etc/crio/crio.conf.d/99-nvidia.toml", theirs);
    let last = ["--drop-in", "/etc/crio/crio.conf.d/99-runmig.conf"];
    becomes_the_default(&place, &last);
    place.configure(&last).ok();
    let hint = "has one already; hint: add --drop-in";
    place.refused(&[], &format!("{} {hint} {}", last[1], last[1]));
}

#[test]
fn later_podman_file_keeps_name_and_default() {
    let name = "[engine.runtimes]\nrunmig = [\"/opt/other\", \"/opt/more\"]\n";
    let default = "[engine]\nruntime = \"crun\"\n";
    let six = [
        "/usr/share/containers/containers.conf.d/60-vendor.conf",
        "/usr/share/containers/containers.rootful.conf.d/60-vendor.conf",
        "/etc/containers/containers.rootful.conf.d/50-runmig2.conf",
    ];
    for version in ["4.3.1", "5.8.3", "6.1.3"] {
        let place = Place::stub("podman", &format!("podman version {version}"));
        for file in ["60-machine.conf", "50-runmig.conf.conf"] {
            let file = format!("/etc/containers/containers.conf.d/{file}");
            keeps_the_name(&place, &file, name);
            keeps_the_default(&place, &file, default);
        }
        for file in six {
            if version == "6.1.3" {
                keeps_the_name(&place, file, name);
                keeps_the_default(&place, file, default);
            }
        }
        let named = ["--drop-in", "/etc/containers/containers.conf.d/50-runmig"];
        let why = "since its name does not end in .conf";
        place.refused(
            &named,
            &format!("podman {version} does not read {}, {why}", named[1]),
        );
        let hides = "/etc/containers/containers.rootful.conf.d/50-runmig.conf";
        if version == "6.1.3" {
            place.write(hides, default);
            place.refused(&[], "hides its drop-in from podman 6.1.3");
            fs::remove_file(place.path(hides)).unwrap();
        } else {
            place.write(six[0], name);
            place.write(hides, name);
        }
        // These it reads earlier, or not at all.
        for file in "/usr/share/containers/containers.conf \
                 /usr/share/containers/containers.conf.d/50-runmig.conf \
                 /etc/containers/containers.conf \
                 /etc/containers/containers.conf.d/10-machine.conf \
                 /etc/containers/containers.conf.d/60-machine.conf.rpmsave \
                 /etc/containers/containers.conf.d/deeper/60-machine.conf"
            .split(' ')
        {
            place.write(file, &format!("{default}{name}"));
        }
        becomes_the_default(&place, &[]);
    }
}

#[test]
fn later_import_of_containerd_keeps_name_and_default() {
    let containerd = "[plugins.'io.containerd.cri.v1.runtime'.containerd";
    let default = format!("version = 3\n{containerd}]\ndefault_runtime_name = \"nvidia\"\n");
    let name = format!(
        "version = 3\n{containerd}.runtimes.runmig.options]\nBinaryName = \"/opt/other\"\n"
    );
    let place = Place::stub("containerd", "containerd x v2.1.5 x");
    let main = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\", \"../nvidia/*.toml\"]\n";
    place.write("/etc/containerd/config.toml", main);
    for file in ["containerd/conf.d/zz-site.toml", "nvidia/99-nvidia.toml"] {
        let file = format!("/etc/{file}");
        keeps_the_name(&place, &file, &name);
        keeps_the_default(&place, &file, &default);
    }
    // An import of an import comes after all of the main file's.
    let deep = "version = 3\nimports = [\"/etc/deep.toml\"]\n";
    place.write("/etc/containerd/conf.d/10.toml", deep);
    keeps_the_default(&place, "/etc/deep.toml", &default);
    place.write("/etc/containerd/conf.d/99-nvidia.toml", &default);
    becomes_the_default(&place, &[]);
}

/// After a removal no container without a named runtime would start.
#[test]
fn removal_names_file_with_the_default() {
    for (engine, version, file, text) in testkit::rows! {
        "podman", "podman version 5.8.3", "/etc/containers/containers.conf" => "[engine]\nruntime = \"runmig\"\n";
        "crio", "crio version 1.36.3", "/etc/crio/crio.conf.d/05-site" =>
            "[crio.runtime]\ndefault_runtime = \"runmig\"\n";
        "docker", "Docker version 29.9.3, build x", "/etc/docker/daemon.json" => "{\"default-runtime\": \"runmig\"}";
    } {
        let place = Place::stub(engine, version);
        let remove = || place.configure(&["--remove"]).ok().stdout;
        place.configure(&[]).ok();
        place.write(file, text);
        let said = remove();
        has(&said, &format!("warning: {file} still says "));
        has(
            &said,
            "cannot start a container that does not name a runtime",
        );
        fs::remove_file(place.path(file)).unwrap();
        lacks(&remove(), "warning");
    }
}

/// A registration that somebody made by hand stays.
#[test]
fn removal_names_file_with_the_name() {
    let path = "/usr/local/bin/runmig";
    for (engine, version, file, text, default) in testkit::rows! {
        "podman", "podman version 5.8.3", "/etc/containers/containers.conf",
            format!("[engine.runtimes]\nrunmig = [\"{path}\"]\n") => "[engine]\nruntime = \"runmig\"\n";
        "docker", "Docker version 29.9.3, build x", "/etc/docker/daemon.json",
            format!("{{\"runtimes\": {{\"runmig\": {{\"path\": \"{path}\", \"runtimeArgs\": [\"--debug\"]}}}}}}") =>
            "{\"default-runtime\": \"runmig\", ";
    } {
        let place = Place::stub(engine, version);
        let remove = || place.configure(&["--remove"]).ok().stdout;
        place.write(file, &text);
        let warning =
            format!("warning: {file} still gives the name runmig to {path}; hint: remove");
        has(&remove(), &warning);
        place.write(file, &format!("{default}{}", text.trim_start_matches('{')));
        let calls = format!("calls {path} for a container that does not name a runtime");
        has(&remove(), &calls);
    }
}

/// The toolkit of the GPU Operator makes its own runtime the default, in a drop-in with a low place in the order of names.
#[test]
fn works_beside_the_gpu_operator() {
    let toolkit = "/usr/local/nvidia/toolkit/nvidia-container-runtime";
    let runtime = |name: &str, suffix: &str| {
        let table = format!("[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.{name}");
        format!(
            "{table}]\nruntime_type = \"io.containerd.runc.v2\"\n\
             {table}.options]\nBinaryName = \"{toolkit}{suffix}\"\nSystemdCgroup = true\n"
        )
    };
    let theirs = format!(
        "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = true\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = \"nvidia\"\n{}{}{}",
        runtime("nvidia", ""),
        runtime("nvidia-cdi", ".cdi"),
        runtime("nvidia-legacy", ".legacy")
    );
    // The engine joins the files, so runmig hides the default whose settings its handler copied.
    let joins = "cd \"${2%/*}/conf.d\"; name=nvidia; ! grep -qs default_runtime_name runmig.toml || name=runmig
                 sed \"s/^\\(default_runtime_name = \\).*/\\1'$name'/\" 99-nvidia.toml";
    let place = Place::stub_that("containerd", "containerd x v2.1.5 x", joins);
    let main = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    place.write("/etc/containerd/config.toml", main);
    place.write("/etc/containerd/conf.d/99-nvidia.toml", &theirs);
    let ours = || place.read("/etc/containerd/conf.d/runmig.toml");
    place.there_and_back(|| {
        lacks(&ours(), "default_runtime_name");
        lacks(&ours(), "nvidia");
    });
    becomes_the_default(&place, &[]);
    for more in [&["--set-as-default"][..], &["--set-as-default"], &[]] {
        place.configure(more).ok();
        has(&ours(), "SystemdCgroup = true");
    }
    place.configure(&["--remove"]).ok();
    assert_eq!(place.read("/etc/containerd/conf.d/99-nvidia.toml"), theirs);
    let crio = format!(
        "[crio]\n[crio.runtime]\ndefault_runtime = \"nvidia\"\n[crio.runtime.runtimes.nvidia]\n\
         runtime_path = \"{toolkit}\"\nruntime_type = \"oci\"\nmonitor_path = \"/usr/libexec/crio/conmon\"\n"
    );
    let place = Place::stub("crio", "crio version 1.36.3");
    place.write("/etc/crio/crio.conf.d/99-nvidia.conf", &crio);
    place.there_and_back(|| {
        let ours = place.read("/etc/crio/crio.conf.d/20-runmig.conf");
        has(&ours, "monitor_path = \"/usr/libexec/crio/conmon\"");
        assert!(!ours.contains("nvidia"), "{ours}");
    });
}
