//! Other programs and units, and the driver for Kubernetes.

use super::breaking::{breaks_inside, repairs_inside};
use super::programs::etc;
use super::{Diagnosis, setup};
use std::fs;
use std::path::Path;
use testkit::Setup;
use testkit::process::copy_program;
use testkit::runtimes::script;

#[test]
fn names_each_other_program() {
    let Some(setup) = setup() else { return };
    for name in [
        "nvidia-mig-manager",
        "nvidia-mig-parted",
        "nvidia-device-plugin",
        "gpu-kubelet-plugin",
        "instaslice-daemonset",
        "vgpu-device-plugin",
        "nv-hostengine",
        "dcgm-exporter",
    ] {
        let running = process(&setup, name);
        let (text, repair) = breaks_inside(
            &setup,
            "conflicts",
            "warn",
            "conflicts.other-programs",
            ["", &running],
        );
        assert!(text.starts_with(&format!("{name} runs")), "{text}");
        assert!(!repair.is_empty());
    }
}

/// Its answer to a SIGHUP depends on its version.
#[test]
fn tells_version_of_exporter() {
    let Some(setup) = setup() else { return };
    let running = process(&setup, "dcgm-exporter");
    let folder = setup.path("exporter");
    fs::create_dir(&folder).unwrap();
    let version = "DCGM Exporter version 4.8.2";
    script(&folder.join("dcgm-exporter"), &format!("echo {version}"));
    let path = format!("PATH={}:$PATH; export PATH", folder.display());
    let seen = Diagnosis::inside(
        &setup,
        &format!("{running}\n{path}"),
        &["--only=conflicts.other-programs"],
    );
    let (text, _) = seen.of_id("conflicts.other-programs");
    assert!(text.contains(&format!(", {version}): it lists")), "{text}");
    // Its program may be in a container alone.
    let seen = Diagnosis::inside(&setup, &running, &["--only=conflicts.other-programs"]);
    let (text, _) = seen.of_id("conflicts.other-programs");
    assert!(
        text.starts_with("dcgm-exporter runs (process ") && !text.contains("version"),
        "{text}"
    );
}

/// A script that starts a process with this command name, whose pid is then `$pid`.
pub fn process(setup: &Setup, name: &str) -> String {
    let program = setup.path(name);
    if !program.exists() {
        copy_program("/bin/sleep".as_ref(), &program);
    }
    // The kernel keeps 15 characters of the name.
    let short = &name[..name.len().min(15)];
    format!(
        "{} 600 </dev/null >/dev/null 2>&1 & pid=$!
         timeout 60 sh -c \"until grep -qx {short} /proc/$pid/comm; do sleep 0.01; done\"",
        program.display()
    )
}

#[test]
fn names_enabled_unit() {
    let Some(setup) = setup() else { return };
    let (good, bad) = (etc(&setup), etc(&setup));
    let link = "multi-user.target.wants/nvidia-mig-manager.service";
    let bad = format!(
        "{bad}
         mkdir -p /etc/systemd/system/multi-user.target.wants
         ln -s /lib/systemd/system/nvidia-mig-manager.service /etc/systemd/system/{link}"
    );
    let worlds = [good.as_str(), bad.as_str()];
    let (text, repair) = breaks_inside(&setup, "conflicts", "warn", "conflicts.units", worlds);
    assert!(text.contains(link), "{text}");
    assert_eq!(repair, "systemctl disable nvidia-mig-manager.service");
    // systemctl works on the files where no systemd runs.
    if Path::new("/usr/bin/systemctl").exists() {
        let again = [
            etc(&setup),
            bad.replace(&etc_folder(&bad), &format!("{}-2", etc_folder(&bad))),
        ];
        repairs_inside(&setup, "conflicts", [&again[0], &again[1]], &repair);
    }
}

fn etc_folder(script: &str) -> String {
    script.split_whitespace().nth(1).unwrap().to_owned()
}

/// runmig-dra itself says what it lacks.
#[test]
fn tells_findings_of_kubernetes_driver() {
    let Some(setup) = setup() else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_runmig")).with_file_name("runmig-dra");
    if !program.exists() {
        return testkit::skip("runmig-dra is not built: cargo build --workspace");
    }
    copy_program(&program, &setup.program("runmig-dra"));
    let kubelet = setup.path("kubelet");
    let good = fs::read_to_string(setup.config()).unwrap();
    let configured = format!(
        "{good}[kubernetes]\nkubelet_dir = \"{}\"\n",
        kubelet.display()
    );
    fs::write(setup.config(), configured).unwrap();
    let look = || Diagnosis::of(&setup, &["--only=kubernetes"]);
    let before = look();
    assert_eq!(before.ids("skip").len(), 1, "{:?}", before.items);
    fs::create_dir(&kubelet).unwrap();
    let seen = look();
    let texts: Vec<&str> = { seen.items.iter() }
        .filter(|item| item["status"] == "fail")
        .map(|item| item["text"].as_str().unwrap())
        .collect();
    // It has no cluster here, and each of its lines is a finding.
    assert!(
        texts.iter().any(|text| text.contains("API")),
        "{:?}",
        seen.items
    );
    assert!(seen.items.len() > texts.len(), "{:?}", seen.items);
    assert_eq!(seen.code, Some(1));
}
