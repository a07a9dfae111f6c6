//! README from a node with NVIDIA's driver and the engines to the same node again, with two recipes in between: each command
//! as it stands there, up to the first output that differs.
//!
//! Three things are this test's. `scripts/install` gets programs that are built already, since the node has no Rust. The
//! configuration says where the simulated driver has its part of /proc, which a real one has in /proc itself. And since
//! the simulated driver is a folder and not a module, the CDI file brings that folder into containers too.

use super::install::{LIBCUDA, strip};
use super::machine::{Node, SIM, here, program, quote};
use testkit::pages::{self, Shown, is_as_printed};
use testkit::prelude::*;
use testkit::runtimes::{built, program as executable};

/// The repository on the node.
const AT: &str = "/root/runmig";
const LAST: &str = "Undo all of it";

/// Programs of others, with their places on the node.
fn programs() -> Option<Vec<(PathBuf, &'static str)>> {
    let nvidia_smi = testkit::repository().join("target/nvidia-clients/bin/nvidia-smi");
    let all = testkit::rows! {
        Some(nvidia_smi).filter(|file| file.exists()) => "usr/bin/nvidia-smi";
        built("nvidia-container-runtime", "nvidia-ctk") => "usr/bin/nvidia-ctk";
        // docker's own packages bring a runc as new as it.
        built("runc", "runc") => "usr/sbin/runc";
        built("docker", "dockerd") => "usr/bin/dockerd";
        built("docker", "docker-proxy") => "usr/bin/docker-proxy";
        built("docker-cli", "docker") => "usr/bin/docker";
        built("docker-cli", "docker-compose") => "usr/libexec/docker/cli-plugins/docker-compose";
    };
    let all = all.into_iter();
    all.map(|(file, place)| Some((file?, place))).collect()
}

pub fn holds_as_printed(node: &Node) {
    let Some(programs) = programs() else {
        return testkit::skip_until_full(
            "NVIDIA's clients or docker are not there; run scripts/setup full and scripts/fetch-nvidia-clients",
        );
    };
    take_runmig_away(node);
    copy(node, &programs);
    make_machine(node);

    let readme = pages::read("README.md").commands;
    let last = readme.iter().position(|shown| shown.section == LAST);
    let (first, last) = readme.split_at(last.expect("the last section"));
    for shown in first {
        follow(node, "README.md", AT, shown);
        match shown.command.as_str() {
            command if command.starts_with("nvidia-ctk ") => bring_folder_of_driver(node),
            "systemctl restart docker" => drop(node.ok("docker import /root/image.tar debian")),
            _ => {}
        }
    }
    for name in ["podman.md", "docker.md"] {
        recipe(node, name);
    }
    // By then the timer has run once.
    node.ok("systemctl start runmig-gc.service");
    for shown in last {
        follow(node, "README.md", AT, shown);
    }
    assert_eq!(node.instances(), 0);
    assert_eq!(ours(node), "");
}

/// Other cases have left what they needed.
fn take_runmig_away(node: &Node) {
    node.ok(&format!(
        "systemctl disable --quiet --now runmig-gc.timer
         systemctl disable --quiet --now sim.service
         {repository}/scripts/install --uninstall --purge
         {} -print0 | xargs -0 rm -rf
         rm -rf /etc/systemd/system/sim.service {SIM} /etc/cdi {LIBCUDA}
         systemctl daemon-reload",
        find(),
        repository = testkit::repository().display()
    ));
    assert_eq!(ours(node), "");
}

/// A command that finds all that has runmig's name, but for what the tests copied to the node.
fn find() -> String {
    let built = program("");
    let built = built.to_str().unwrap().trim_end_matches('/');
    let repository = testkit::repository().display();
    format!(
        "find / -xdev \\( -path {repository} -o -path {built} -o -path /root -o -path /var/tmp \\) -prune \
         -o -name '*runmig*'"
    )
}

fn ours(node: &Node) -> String {
    node.ok(&format!("{} -print", find()))
}

fn copy(node: &Node, programs: &[(PathBuf, &str)]) {
    let stage = tempfile::tempdir().unwrap();
    let at = |place: &str| {
        let file = stage.path().join(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        file
    };
    for (file, place) in programs {
        fs::copy(file, at(place)).unwrap();
    }
    // NVIDIA's programs share these commands.
    let hook = "#!/bin/sh\nexec nvidia-ctk hook \"$@\"\n";
    executable(&at("usr/bin/nvidia-cdi-hook"), hook);
    let ours = testkit::packages::PROGRAMS;
    for name in ours.iter().chain(&["nvml-sim", "libnvml_sim.so"]) {
        strip(&program(name), &at(&format!("root/built/{name}")));
    }
    let mut install = Command::new("bash");
    install.args(["-c", ". scripts/common && install_files \"$0\""]);
    install.arg(at("root/runmig/x").parent().unwrap());
    here(install.env("me", "test").current_dir(testkit::repository()));
    node.copy(stage.path(), "/").unwrap();
}

/// What a node of README has: an H100 with NVIDIA's driver, docker as its package has it, and an image for both engines.
fn make_machine(node: &Node) {
    node.ok(&format!(
        "set -e
         cd /root
         built/nvml-sim new {SIM} --gpu H100-80GB --mig off
         lib=/usr/lib/x86_64-linux-gnu version=$(sed -n 's/^NVRM version: .* \\([0-9.]*\\)  .*/\\1/p' {SIM}/proc/driver/nvidia/version)
         echo driver >{SIM}/lib/libcuda.so.1
         for name in nvidia-ml cuda; do
             mv {SIM}/lib/lib$name.so.1 {SIM}/lib/lib$name.so.$version
             ln -s lib$name.so.$version {SIM}/lib/lib$name.so.1
             ln -sf {SIM}/lib/lib$name.so.1 $lib/
         done
         ldconfig
         cp -a {SIM}/dev/nvidia* /dev/
         mkdir -p /etc/runmig
         printf '[driver]\\nroot = \"{SIM}\"\\n' >/etc/runmig/config.toml
         cat >/etc/systemd/system/docker.service <<'UNIT'
{DOCKER}UNIT
         systemctl daemon-reload
         mkdir -p image/bin image/dev image/proc image/sys image/tmp image/etc
         cp /bin/busybox image/bin
         chroot image /bin/busybox --install -s /bin
         cp --parents -L $(ldd /usr/bin/nvidia-smi {SIM}/lib/libnvidia-ml.so.1 | grep -o '/[^ :]*') image/
         tar -C image -cf image.tar .
         podman import --quiet image.tar debian"
    ));
}

const DOCKER: &str = "\
[Unit]
After=containerd.service
Wants=containerd.service
[Service]
Type=notify
ExecStart=/usr/bin/dockerd --containerd=/run/containerd/containerd.sock
Delegate=yes
KillMode=process
";

fn bring_folder_of_driver(node: &Node) {
    let mount = format!(
        "    mounts:\\n        - hostPath: {SIM}\\n          containerPath: {SIM}\\n          options: [rbind, rw]"
    );
    node.ok(&format!(
        "sed -i 's|^    mounts:|{mount}|' /etc/cdi/nvidia.yaml && grep -q 'hostPath: {SIM}$' /etc/cdi/nvidia.yaml"
    ));
}

fn recipe(node: &Node, name: &str) {
    const WORK: &str = "/root/recipe";
    let page = pages::read(&format!("docs/recipes/{name}"));
    let before = node.leases();
    node.ok(&format!("rm -rf {WORK} && mkdir {WORK}"));
    for (file, text) in &page.files {
        node.ok(&format!("printf %s {} >{WORK}/{file}", quote(text)));
    }
    for shown in &page.commands {
        follow(node, name, WORK, shown);
    }
    assert_eq!(node.leases(), before);
}

/// Runs a command of a page. README's outputs are those of a terminal.
#[track_caller]
fn follow(node: &Node, page: &str, folder: &str, shown: &Shown) {
    let command = match shown.command.as_str() {
        "scripts/install" => "scripts/install --from /root/built".to_owned(),
        command => command.replace(" IMAGE ", " debian "),
    };
    let said = node.run(&format!("cd {folder}\n{{ {command}\n}} 2>&1"));
    assert!(
        said.status.success() && is_as_printed(&shown.output, &said.stdout),
        "{page}: {}\nprinted:\n{}\nsaid ({}):\n{}{}",
        shown.command,
        shown.output,
        said.status,
        said.stdout,
        said.stderr
    );
}
