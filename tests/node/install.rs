//! runmig comes onto the node, and the node is what users have.

use super::machine::{IMAGE, Node, SIM, here, program};
use testkit::prelude::*;

/// Parts of the repository that the installation and the suites need.
const SOURCES: &str = "README.md CHANGELOG.md docs scripts hooks systemd containerd-config crio-config docker-config \
                       podman-config kubernetes prometheus grafana";
/// With the hook of CDI devices that ask.
const PROGRAMS: &str = "runmig runmig-slice runmig-hook runmig-claim migctl nvml-sim libnvml_sim.so libcuda_sim.so \
                        nvidia-cuda-mps-control cuda-client stub-runtime";

/// The node's CDI specification, and the library that it names.
pub const CDI: &str = "/etc/cdi/nvidia.json";
pub const LIBCUDA: &str = "/usr/lib/libcuda.so.570";

/// A command that writes the configuration of `runmig-crun` after that of runmig.
pub const CONFIGURE_CRUN: &str =
    "{ echo 'runtime = \"/usr/bin/crun\"'; cat /etc/runmig/config.toml; } >/etc/runmig/crun.toml";

/// Installs runmig as a service does, without `HOME`, and makes a machine with one A100 whose
/// instances a boot destroys, as a real one's.
pub fn prepare(node: &Node) -> Result<(), String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stage = tempfile::tempdir().expect("a temporary folder");
    let at = |path: &Path| stage.path().join(path.strip_prefix("/").unwrap());
    fs::create_dir_all(at(repository)).unwrap();
    for source in SOURCES.split(' ') {
        let mut copy = Command::new("cp");
        here(
            copy.arg("-r")
                .args([repository.join(source), at(repository)]),
        );
    }
    fs::create_dir_all(at(&program(""))).unwrap();
    let packaged = tempfile::tempdir().expect("a temporary folder");
    unpack_package(packaged.path());
    for name in PROGRAMS.split(' ').chain([testkit::REQUEST_HOOK]) {
        let packed = Some(packaged.path().join(name)).filter(|path| path.exists());
        strip(&packed.unwrap_or(program(name)), &at(&program(name)));
    }
    node.copy(stage.path(), "/")?;
    let built = program("");
    let set_up = format!(
        "set -e
         cd /
         systemd-run --quiet --pipe --wait --collect {repository}/scripts/install --from {built}
         rm -rf {SIM}
         install {built}/nvml-sim /usr/local/bin/
         {built}/nvml-sim new {SIM} --gpu A100-80GB --count 1 --mig on
         cat >/etc/systemd/system/sim.service <<'UNIT'
{unit}UNIT
         migctl configure podman
         migctl configure podman --name runmig-crun
         systemctl daemon-reload
         systemctl --quiet enable --now sim.service runmig-gc.timer
         mkdir -p /img/bin /img/dev /img/proc /img/sys /img/tmp /img/etc
         cp /bin/busybox /img/bin
         chroot /img /bin/busybox --install -s /bin
         tar -C /img -c . | podman import --quiet - {IMAGE}
         mkdir -p /etc/cdi
         echo driver >{LIBCUDA}
         echo '{cdi}' >{CDI}
         {configuration}
         {CONFIGURE_CRUN}",
        cdi = testkit::cdi::with_library(Path::new(LIBCUDA)),
        repository = repository.display(),
        built = built.display(),
        unit = unit(),
        configuration = configure(""),
    );
    let said = node.run(&set_up);
    match said.status.success() {
        true => Ok(()),
        false => Err(format!("set up the node: {}{}", said.stdout, said.stderr)),
    }
}

/// Unpacks the programs of the package, if this run has made it. Those that cargo built here are slow under emulation.
fn unpack_package(to: &Path) {
    if std::env::var_os("RUNMIG_IS_PACKAGED").is_some() {
        let tarball = testkit::packages::package(".tar.gz").expect("a package");
        let mut unpack = Command::new("tar");
        unpack.args(["--strip-components=2", "--wildcards", "-xzf"]);
        here(unpack.arg(&tarball).arg("-C").arg(to).arg("*/bin/*"));
    }
}

fn unit() -> String {
    format!(
        "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=sysinit.target\n\
         [Service]\nType=oneshot\nExecStart=/usr/local/bin/nvml-sim reboot {SIM}\n\
         [Install]\nWantedBy=sysinit.target\n"
    )
}

/// A command that writes the configuration, with more tables.
pub fn configure(more: &str) -> String {
    configure_on(SIM, "", more)
}

/// The same for a simulated machine, with more keys and more tables.
pub fn configure_on(machine: &str, keys: &str, more: &str) -> String {
    format!(
        "cat >/etc/runmig/config.toml <<'CONFIG'\n{keys}\n[driver]\n\
         library = \"{machine}/lib/libnvidia-ml.so.1\"\nroot = \"{machine}\"\n{more}CONFIG"
    )
}

/// Without what debuggers want, which is most of a development build.
pub fn strip(from: &Path, to: &Path) {
    let shown = from.display();
    assert!(
        from.exists(),
        "{shown} is not built: cargo build --workspace"
    );
    here(Command::new("strip").arg("-o").arg(to).arg(from));
}

pub fn installs_from_unit_without_home(node: &Node) {
    let programs = "runmig runmig-slice runmig-hook migctl".split(' ');
    for program in programs.chain([testkit::REQUEST_HOOK]) {
        node.ok(&format!("test -x /usr/local/bin/{program}"));
    }
    assert_eq!(node.ok("systemctl is-enabled runmig-gc.timer"), "enabled");
    assert_eq!(node.ok("systemctl is-active runmig-gc.timer"), "active");
    assert!(node.ok("migctl gpus").contains("A100"));
}

pub fn node_is_current(node: &Node) {
    assert_eq!(node.ok("cat /proc/1/comm"), "systemd");
    assert_eq!(node.ok("stat -f -c %T /sys/fs/cgroup"), "cgroup2fs");
    let own = node.ok("cat /proc/self/cgroup");
    assert!(own.starts_with("0::/") && own.lines().count() == 1, "{own}");
    let info = node.run("podman info --format json").ok().json();
    let host = &info["host"];
    assert_eq!(host["cgroupManager"], "systemd");
    assert_eq!(host["cgroupVersion"], "v2");
    assert_eq!(host["security"]["apparmorEnabled"], true);
}
