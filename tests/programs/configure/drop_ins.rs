//! CRI-O and podman: a file of our own, which the engine then speaks of.

use crate::configure::place::{Place, RUNMIG};
use testkit::prelude::*;

// docs/engines.md: migctl configure crio
// docs/engines.md: migctl configure crio --remove
#[test]
fn crio_handler_has_the_nodes_monitor() {
    let Some((place, crio)) = crio() else { return };
    let runtimes = || crio_says(&place, &crio)["runtimes"].clone();
    place.there_and_back(|| assert_eq!(runtimes()["runmig"]["runtime_path"], RUNMIG.into()));
    place.write(
        "/etc/crio/crio.conf.d/10-crio.conf",
        "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\n\
         runtime_path = \"/usr/libexec/crio/crun\"\nmonitor_path = \"/usr/libexec/crio/conmon\"\n\
         monitor_cgroup = \"pod\"\nallowed_annotations = [\"io.containers.trace-syscall\"]\n",
    );
    place.there_and_back(|| {
        let runtimes = runtimes();
        let (runmig, crun) = (&runtimes["runmig"], &runtimes["crun"]);
        assert_eq!(crun["runtime_path"], "/usr/libexec/crio/crun".into());
        for key in ["monitor_path", "monitor_cgroup", "allowed_annotations"] {
            assert_eq!(runmig[key], crun[key], "{key}");
        }
        assert_eq!(runmig["runtime_path"], RUNMIG.into());
        assert_eq!(runmig["runtime_root"], "/run/runmig-oci".into());
    });
}

/// CRI-O reads every file in the folder, so a handler in any of them is in the way, and what the
/// last of them says of the default one is what holds.
#[test]
fn crio_files_are_all_read() {
    for name in [".hidden", "plain", "old.conf~", "deeper/still/x.conf"] {
        let Some((place, crio)) = crio() else { return };
        let runmig = || crio_says(&place, &crio)["runtimes"]["runmig"].clone();
        let name = format!("/etc/crio/crio.conf.d/{name}");
        let default = "[crio.runtime]\ndefault_runtime = \"mine\"\n[crio.runtime.runtimes.mine]\n\
                       runtime_path = \"/usr/bin/mine\"\nmonitor_cgroup = \"pod\"\n";
        place.write(&name, default);
        place.there_and_back(|| {
            assert_eq!(runmig()["monitor_cgroup"], "pod".into(), "{name}");
        });
        let handler = "[crio.runtime.runtimes.runmig]\nruntime_path = \"/usr/bin/mine\"\n";
        place.write(&name, handler);
        assert_eq!(runmig()["runtime_path"], "/usr/bin/mine".into());
        let words = format!("cannot add the handler runmig: {name} has one");
        place.refused(&[], &words);
        place.write(&name, "no = [\n");
        place.refused(&[], &format!("read {name}: line "));
    }
}

/// A place for the configuration of CRI-O, and its program.
fn crio() -> Option<(Place, PathBuf)> {
    let program = built("cri-o", "crio");
    if program.is_none() {
        skip_until_full("CRI-O is not there; run scripts/engines cri-o");
    }
    let program = program?;
    Some((Place::new().of("crio", &program), program))
}

/// What CRI-O says of its runtimes.
#[track_caller]
fn crio_says(place: &Place, program: &Path) -> toml::Value {
    let mut command = Command::new(program);
    command
        .arg("--config-dir")
        .arg(place.path("/etc/crio/crio.conf.d"));
    let text = said(command.args(["--config=", "config"])).ok().stdout;
    let table: toml::Table = toml::from_str(&text).unwrap();
    table["crio"]["runtime"].clone()
}

#[test]
fn crio_default_is_set() {
    let Some((place, crio)) = crio() else { return };
    place.configure(&["--set-as-default"]).ok();
    assert_eq!(crio_says(&place, &crio)["default_runtime"], "runmig".into());
}

/// podman in a mount namespace in which /etc/containers is the place's.
fn info(place: &Place, program: &Path, runtime: &str) -> String {
    let containers = place.path("/etc/containers");
    let script = "mount --bind \"$1\" /etc/containers && exec \"$2\" --root=\"$3/root\" \
                  --runroot=\"$3/run\" --tmpdir=\"$3/tmp\" --storage-driver=vfs $4 \
                  --cgroup-manager=cgroupfs info --format '{{.Host.OCIRuntime.Path}}'";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(containers).arg(program);
    command.arg(place.path("/podman")).arg(runtime);
    let info = said(command.env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1"));
    info.ok().stdout
}

#[test]
fn podman_knows_the_runtime_by_name() {
    let podmans = [on_path("podman"), built("podman", "podman")];
    if podmans.iter().any(Option::is_none) {
        skip_until_full("there are not both podmans; run scripts/setup and scripts/engines podman");
    }
    for program in podmans.into_iter().flatten() {
        let place = Place::new().of("podman", &program);
        // The settings that podman cannot do without.
        let policy = "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}";
        place.write("/etc/containers/policy.json", policy);
        // podman 5 looks for it, and has no network to make.
        let helpers = place.path("/helpers");
        fs::create_dir(&helpers).unwrap();
        symlink("/bin/true", helpers.join("netavark")).unwrap();
        place.write(
            "/etc/containers/containers.conf.d/10-machine.conf",
            &format!("[engine]\nhelper_binaries_dir = [{helpers:?}]\n"),
        );
        let runmig = place.path(RUNMIG).display().to_string();
        let drop_in = "/etc/containers/containers.conf.d/50-runmig.conf";
        place.there_and_back(|| {
            let text = place.read(drop_in);
            // The runtime is asked for its version, so it has to be there.
            place.write(drop_in, &text.replace(RUNMIG, &runmig));
            assert_eq!(info(&place, &program, "--runtime=runmig").trim(), runmig);
            place.write(drop_in, &text);
        });
        place.configure(&["--set-as-default"]).ok();
        place.write(drop_in, &place.read(drop_in).replace(RUNMIG, &runmig));
        assert_eq!(info(&place, &program, "").trim(), runmig);
    }
}
