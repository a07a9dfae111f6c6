//! Other programs and units, and the driver for Kubernetes.

use super::breaking::{breaks, breaks_inside, repairs_inside};
use super::programs::etc;
use super::support::Setup;
use super::support::process::copy_program;
use super::{Diagnosis, setup};
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

/// Starts a process with this command name, which ends in the end.
fn start(setup: &Setup, name: &str) -> Child {
    let program = setup.path(name);
    fs::copy("/bin/sleep", &program).unwrap();
    Command::new(&program).arg("600").spawn().unwrap()
}

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
        let running = RefCell::new(None);
        let end = || {
            let mut child: Child = running.borrow_mut().take().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        };
        let (text, repair) = breaks(
            &setup,
            "conflicts",
            "warn",
            "conflicts.other-programs",
            || *running.borrow_mut() = Some(start(&setup, name)),
            end,
        );
        assert!(text.starts_with(&format!("{name} runs")), "{text}");
        assert!(!repair.is_empty());
    }
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
        return super::support::skip("runmig-dra is not built: cargo build --workspace");
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
