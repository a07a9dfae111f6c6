//! The kernel, systemd, the engines, the driver's files for containers, and other programs.

use super::breaking::{breaks, breaks_inside, etc, ids, process, repairs_inside};
use super::{Diagnosis, setup};
use testkit::cdi;
use testkit::prelude::*;

#[test]
fn names_missing_rights() {
    let setup = setup();
    let mut other = setup.plain("setpriv".as_ref());
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let only = ["--only=host.rights"];
    let seen = Diagnosis::by(other.arg(setup.program("migctl")), &only);
    seen.has("fail", ["host.rights"]);
    assert_eq!(seen.of_id("host.rights").1, "sudo migctl doctor");
    Diagnosis::of(&setup, &only).has("ok", ["host.rights"]);
}

#[test]
fn names_unreadable_boot_id() {
    let setup = setup();
    let file = setup.machine.dir().join("proc/sys/kernel/random/boot_id");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let kept = fs::read(&file).ok();
    let broken = || fs::write(&file, "").unwrap();
    let repaired = || match &kept {
        Some(kept) => fs::write(&file, kept).unwrap(),
        None => fs::remove_file(&file).unwrap(),
    };
    let (text, _) = breaks(&setup, "fail", "host.boot", broken, repaired);
    has(&text, file.to_str().unwrap());
}

#[test]
fn names_missing_cgroups() {
    let setup = setup();
    let worlds = ["", "mount -t tmpfs none /sys/fs/cgroup"];
    let (text, _) = breaks_inside(&setup, "fail", "host.cgroups", worlds);
    begins_with(&text, "no devices controller");
    // The repair, as a command.
    let repair = "mount -t cgroup2 none /sys/fs/cgroup";
    repairs_inside(&setup, "host.cgroups", worlds, repair);
}

#[test]
fn names_enforcing_selinux() {
    let setup = setup();
    let with = |enforces: &str| {
        let there = setup.path(&format!("fs-{enforces}"));
        let there = there.display();
        format!(
            "mkdir -p {there}/cgroup {there}/selinux
             mount --rbind /sys/fs/cgroup {there}/cgroup
             echo {enforces} >{there}/selinux/enforce
             mount --rbind {there} /sys/fs"
        )
    };
    let worlds = [with("0"), with("1")];
    let (_, repair) = breaks_inside(&setup, "warn", "host.confinement", worlds);
    begins_with(&repair, "setsebool -P container_use_xserver_devices=true");
}

/// As snap confines docker.
#[test]
fn names_confined_engine() {
    let setup = setup();
    let engine = process(&setup, "dockerd");
    let with = |profile: &str, n: u32| {
        let there = setup.path(&format!("modules-{n}"));
        let there = there.display();
        format!(
            "{engine}
             mkdir -p {there}/apparmor/parameters
             echo Y >{there}/apparmor/parameters/enabled
             echo '{profile}' >{there}/profile
             mount --bind {there}/profile /proc/$pid/attr/current
             mount --bind {there} /sys/module"
        )
    };
    let confined = with("snap.docker.dockerd (enforce)", 1);
    let worlds = [with("unconfined", 0), confined];
    let (text, _) = breaks_inside(&setup, "warn", "host.confinement", worlds);
    has(&text, "by the profile snap.docker.dockerd");
}

/// systemd that does not answer is unknown, and not well.
#[test]
fn unanswered_systemd_is_not_well() {
    let setup = setup();
    let run = setup.path("run");
    fs::create_dir_all(run.join("systemd/system")).unwrap();
    let booted = format!("mount --bind {} /run", run.display());
    for (world, status) in [(&*booted, "warn"), ("mount -t tmpfs none /run", "skip")] {
        let seen = Diagnosis::inside(&setup, world, &["--only=host.gc"]);
        seen.has(status, ["host.gc"]);
    }
}

/// A create refuses in the same words, which tests/core/spec_cdi has.
#[test]
fn names_missing_driver_files() {
    let setup = setup();
    setup.configure_files("auto", "");
    let file = setup.path("libcuda.so.1");
    fs::write(&file, "").unwrap();
    let with = |specification: &Value| {
        let etc = etc(&setup);
        format!("{etc}\nmkdir /etc/cdi\ncat >/etc/cdi/nvidia.json <<'END'\n{specification}\nEND")
    };
    let present = || with(&cdi::with_library(&file));
    let id = "engines.files";
    let breaks = |status, bad: String| breaks_inside(&setup, status, id, [present(), bad]);
    let gone = with(&cdi::with_library(Path::new("/nowhere/libcuda.so.535")));
    let (text, repair) = breaks("fail", gone);
    has(&text, "/nowhere/libcuda.so.535 is missing");
    has(&repair, "nvidia-ctk cdi generate");
    let (text, repair) = breaks("fail", etc(&setup));
    begins_with(&text, "cannot find a CDI specification");
    has(&repair, "nvidia-ctk cdi generate");
    let socket = json!({"hostPath": "/run/nvidia-persistenced/socket", "containerPath": "/s"});
    let mounts = json!({"mounts": [cdi::libcuda(&file), socket]});
    let without = with(&cdi::specification("nvidia.com/gpu", &mounts));
    let (text, _) = breaks("warn", without);
    has(&text, "/run/nvidia-persistenced/socket");
    let other = format!("{}\necho '{{' >/etc/cdi/other.yaml", present());
    has(&breaks("warn", other).0, "/etc/cdi/other.yaml");
}

/// A script that registers runmig with containerd in an `/etc` of its own. None where the machine lacks it.
fn registered(setup: &Setup) -> Option<String> {
    let usual = Some(Path::new("/usr/bin/containerd").to_owned()).filter(|path| path.exists());
    let Some(found) = usual.or_else(|| built("containerd", "containerd")) else {
        skip("containerd is not there; run scripts/setup");
        return None;
    };
    let (etc, folder) = (etc(setup), found.parent()?.display().to_string());
    Some(format!(
        "{etc}
         PATH=$(dirname \"$0\"):{folder}:$PATH; export PATH
         migctl configure containerd >/dev/null"
    ))
}

#[test]
fn names_stale_registration() {
    let setup = setup();
    for option in ["", " --set-as-default"] {
        let repair = format!("migctl configure containerd{option}");
        let two = [(); 2].map(|()| registered(&setup));
        let two = two.map(|world| Some(format!("{}\n{repair} >/dev/null", world?)));
        let [Some(good), Some(bad)] = two else { return };
        let stale = "cp -r $(dirname $0) $(dirname $0)-old
            sed -i 's,/bin/runmig,/bin-old/runmig,' $(grep -rl bin/runmig /etc/containerd)";
        let worlds = [good, format!("{bad}\n{stale}")];
        let (text, told) = breaks_inside(&setup, "warn", "engines.registered", worlds);
        has(&text, "is not that of this runmig");
        assert_eq!(told, repair);
    }
}

/// A script that puts a stand-in for an engine, which says this, first on PATH, gives it an `/etc` of its own, and goes on.
fn with_engine(setup: &Setup, program: &str, said: &str, more: &str) -> String {
    let folder = setup.path(&format!("says-{}", unique()));
    fs::create_dir(&folder).unwrap();
    let reads = "for file; do [ ! -f \"$file\" ] || exec cat \"$file\"; done";
    let body = format!("[ \"$1\" != --version ] || exec echo {said}\n{reads}");
    script(&folder.join(program), &body);
    let (etc, folder) = (etc(setup), folder.display());
    format!("{etc}\nPATH=$(dirname \"$0\"):{folder}:$PATH; export PATH\n{more}")
}

/// The same with docker.
fn with_docker(setup: &Setup, more: &str) -> String {
    with_engine(setup, "dockerd", "Docker version 29.9.3, build x", more)
}

/// As NVIDIA's toolkit and the GPU Operator leave their files: runmig's name works beside them, and the default does not.
#[test]
fn names_overruled_registration() {
    let setup = setup();
    let id = "engines.registered";
    for (engine, said, file, theirs) in testkit::rows! {
        "crio", "crio version 1.36.3", "/etc/crio/crio.conf.d/99-nvidia.toml" =>
            "[crio.runtime]\ndefault_runtime = \"nvidia\"\n";
        "podman", "podman version 4.3.1", "/etc/containers/containers.conf.d/99-nvidia.conf" =>
            "[engine]\nruntime = \"nvidia\"\n";
    } {
        let world = |more: &str, default: &str| {
            let registers = format!("migctl configure {engine} {default} >/dev/null\n{more}");
            with_engine(&setup, engine, said, &registers)
        };
        let writes = format!("mkdir -p $(dirname {file})\ncat >{file} <<'END'\n{theirs}END");
        let default = "--set-as-default";
        let worlds = [world("", default), world(&writes, default)];
        let (text, repair) = breaks_inside(&setup, "warn", id, worlds);
        has(&text, &format!("{file} says "));
        has(&repair, "remove that line");
        let beside = Diagnosis::inside(&setup, &world(&writes, ""), &["--only=engines.registered"]);
        assert_eq!(beside.ids("warn"), ids([]), "{:?}", beside.items);
    }
}

/// As a removal leaves them beside a file of somebody else.
#[test]
fn names_default_without_a_program() {
    let setup = setup();
    let world = |text: &str, flags: &str| {
        let unit = format!("[Service]\\nExecStart=/usr/bin/dockerd {flags}");
        let files = format!(
            "mkdir -p /etc/docker /etc/systemd/system\necho '{text}' >/etc/docker/daemon.json\n\
             printf '{unit}\\n' >/etc/systemd/system/docker.service"
        );
        with_docker(&setup, &files)
    };
    let flags = "--add-runtime runmig-2g=/usr/bin/runmig-2g --default-runtime runmig-2g";
    let in_file = world("{\"default-runtime\": \"runmig-2g\"}", "");
    let by_flag = world("{}", "--default-runtime runmig-2g");
    for worlds in [[world("{}", ""), in_file], [world("{}", flags), by_flag]] {
        let (text, repair) = breaks_inside(&setup, "warn", "engines.registered", worlds);
        has(&text, "its default, runmig-2g, is not registered");
        has(&repair, "migctl configure docker --name runmig-2g");
    }
}

/// As an administrator's own line, a removed folder and a removed file of a request leave them.
#[test]
fn names_runmigs_that_are_gone() {
    let setup = setup();
    let world = |path: &str, more: &str| {
        let text = format!("{{\"runtimes\": {{\"a\": {{\"path\": \"'{path}'\"}}}}}}");
        let files = format!(
            "mkdir -p /etc/docker /etc/runmig\necho '{text}' >/etc/docker/daemon.json
             ln -sf runmig $(dirname $0)/runmig-9g\necho '[request]\nslice = \"1g.10gb\"' >/etc/runmig/9g.toml\n{more}"
        );
        with_docker(&setup, &files)
    };
    let (own, link) = ("$(dirname $0)/runmig", "$(dirname $0)/runmig-9g");
    for (path, more, words) in testkit::rows! {
        "/opt/gone/runmig", "" => "/etc/docker/daemon.json calls /opt/gone/runmig: no such file or directory";
        link, "rm /etc/runmig/9g.toml" => "/etc/runmig/9g.toml";
        link, "echo no >/etc/runmig/9g.toml" => "/etc/runmig/9g.toml";
    } {
        let good = if path == link { link } else { own };
        let worlds = [world(good, ""), world(path, more)];
        let (text, repair) = breaks_inside(&setup, "fail", "engines.programs", worlds);
        has(&text, words);
        has(&repair, "migctl configure ENGINE --name NAME");
    }
}

/// root runs no engine's program that users can write to.
#[test]
fn names_engine_that_others_can_write() {
    let setup = setup();
    let worlds = ["", "chmod 777 $(command -v dockerd)"].map(|more| with_docker(&setup, more));
    let (text, repair) = breaks_inside(&setup, "warn", "engines.registered", worlds);
    let why = "dockerd --version: users other than root can write to it (mode 0777)";
    has(&text, why);
    assert_eq!(repair, "chmod go-w it");
}

/// An engine that drops a CDI device starts its container without the GPU.
#[test]
fn names_engines_without_cdi_devices() {
    let setup = setup();
    let id = "engines.registered";
    let world = |engine: &str, said: &str, file: &str, text: &str, devices: bool| {
        let files = format!(
            "mkdir -p $(dirname {file}) && cat >{file} <<'END'\n{text}END
             migctl configure {engine} >/dev/null\n! {devices} || migctl configure cdi >/dev/null"
        );
        with_engine(&setup, engine, said, &files)
    };
    let toml = "/etc/containerd/config.toml";
    let two = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let off = format!("{two}[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n");
    for (said, text) in [
        ("containerd x v2.1.5 x", off.as_str()),
        ("containerd x 1.6.20 x", "version = 2\n"),
    ] {
        let worlds = [false, true].map(|devices| world("containerd", said, toml, text, devices));
        let (text, _) = breaks_inside(&setup, "warn", id, worlds);
        has(&text, "without the CDI devices");
    }
    let good = || world("containerd", "containerd x v2.1.5 x", toml, two, true);
    let breaks = "sed -i 's,/bin/runmig-request,/old/bin/runmig-request,' /etc/cdi/runmig-gpu.yaml";
    let stale = format!("{}\n{breaks}", good());
    let (text, repair) = breaks_inside(&setup, "warn", id, [&good(), &stale]);
    has(&text, "/etc/cdi/runmig-gpu.yaml");
    assert_eq!(repair, "migctl configure cdi");
}

/// As an administrator writes it by hand, or as it was before the file had a request.
#[test]
fn names_default_that_asks_for_all() {
    let setup = setup();
    let id = "engines.default";
    let small = "[engine]\nruntime = \"runmig-1g\"\n";
    let by_name = "{\"default-runtime\": \"small\", \"runtimes\": {\"small\": {\"path\": \"/usr/bin/runmig-1g\"}}}";
    let crio = "[crio.runtime]\ndefault_runtime = \"runmig-1g\"\n";
    for (program, said, file, text) in testkit::rows! {
        "podman", "podman version 5.8.3", "/etc/containers/containers.conf" => small;
        "dockerd", "Docker version 29.9.3, build x", "/etc/docker/daemon.json" => by_name;
        "crio", "crio version 1.36.3", "/etc/crio/crio.conf.d/99-mine.conf" => crio;
    } {
        let world = |request: &str| {
            let files = format!(
                "mkdir -p $(dirname {file}) /etc/runmig
                 cat >{file} <<'END'\n{text}\nEND
                 cat >/etc/runmig/1g.toml <<'END'\n{request}\nEND"
            );
            with_engine(&setup, program, said, &files)
        };
        // A link without a request may be the default.
        let worlds = [world(""), world("[request]\nslice = \"1g.10gb\"")];
        let (text, _) = breaks_inside(&setup, "fail", id, worlds);
        let engine = program.trim_end_matches('d');
        let gives = "gives each container that names no runtime the request of /etc/runmig/1g.toml";
        assert_eq!(text, format!("{engine} {gives}"));
    }
}

/// A request that cannot be read stops every container of its runtime.
#[test]
fn names_wrong_request() {
    let setup = setup();
    let world = |request: &str| {
        let etc = etc(&setup);
        format!("{etc}\nmkdir -p /etc/runmig\necho '{request}' >/etc/runmig/1g.toml")
    };
    for (wrong, words) in testkit::rows! {
        "request.slice = \"huge\"" => "request.slice: \"huge\" is neither";
        "request.gpus = 1" => "unknown key gpus";
    } {
        let worlds = [world("request.gpu = 1"), world(wrong)];
        let (text, _) = breaks_inside(&setup, "fail", "configuration.files", worlds);
        has(&text, "/etc/runmig/1g.toml");
        has(&text, words);
    }
}

#[test]
fn names_podman_that_restores_images() {
    let setup = setup();
    let world =
        |version: &str| with_engine(&setup, "podman", &format!("podman version {version}"), "");
    for version in ["4.4.0", "4.9.4-rhel", "5.8.7", "6.0.0-rc1", "6.1.2"] {
        let worlds = [world("6.1.3"), world(version)];
        let (text, _) = breaks_inside(&setup, "warn", "engines.podman", worlds);
        has(&text, "CVE-2026-94603");
    }
    for version in ["4.3.1", "5.8.8", "6.2.0"] {
        let seen = Diagnosis::inside(&setup, &world(version), &["--only=engines.podman"]);
        seen.has("ok", ["engines.podman"]);
    }
}

/// docker 29.5 writes time namespaces, which Debian's runc does not know.
#[test]
fn names_runc_too_old_for_docker() {
    let setup = setup();
    let runc = said(Command::new(&setup.runtime).arg("--version")).ok();
    if !runc.stdout.starts_with("runc version 1.1.") {
        return skip("this machine has no runc 1.1");
    }
    // The machine's own daemon.json may turn them off.
    let world = |version: &str, more: &str| {
        let said = format!("'Docker version {version}, build 98f1464'");
        with_engine(&setup, "dockerd", &said, more)
    };
    for version in ["29.5.0", "30.0.0-rc.1"] {
        let worlds = [world("29.4.3", ""), world(version, "")];
        let (text, repair) = breaks_inside(&setup, "warn", "programs.runtime", worlds);
        let why = "docker gives containers time namespaces, which runc version 1.1.";
        has(&text, why);
        begins_with(&repair, "install runc 1.2");
    }
    let told = "mkdir -p /etc/docker; echo '{\"features\": {\"time-namespaces\": false}}' >/etc/docker/daemon.json";
    let seen = Diagnosis::inside(&setup, &world("29.5.0", told), &["--only=programs.runtime"]);
    seen.has("ok", ["programs.runtime"]);
}

#[test]
fn names_engine_older_than_its_files() {
    let setup = setup();
    let engine = process(&setup, "containerd");
    let with = |time: &str| {
        let registered = registered(&setup)?;
        let touch = format!("find /etc/containerd -type f -exec touch -d '{time}' '{{}}' ';'");
        Some(format!("{registered}\n{engine}\n{touch}"))
    };
    let (Some(good), Some(bad)) = (with("1 hour ago"), with("1 minute")) else {
        return;
    };
    let (text, repair) = breaks_inside(&setup, "warn", "engines.registered", [&good, &bad]);
    has(&text, "has run since before /etc/containerd");
    has(&repair, "restart containerd");
}

/// An engine in a container, or with folders that its unit hides.
#[test]
fn names_engine_that_misses_the_hook() {
    let setup = setup();
    let engine = process(&setup, "containerd");
    let (bin, program) = (setup.path("bin"), setup.path("containerd"));
    let (bin, program) = (bin.display(), program.display());
    let hides = format!("unshare --mount sh -c 'mount -t tmpfs none {bin}; exec {program} 600'");
    let hidden = engine.replacen(&format!("{program} 600"), &hides, 1);
    assert_ne!(engine, hidden);
    let with = |engine: &str| {
        let touch = "find /etc/containerd -type f -exec touch -d '1 hour ago' '{}' ';'";
        Some(format!("{}\n{touch}\n{engine}", registered(&setup)?))
    };
    let (Some(good), Some(bad)) = (with(&engine), with(&hidden)) else {
        return;
    };
    let (text, repair) = breaks_inside(&setup, "fail", "engines.hook", [&good, &bad]);
    begins_with(&text, "containerd (process ");
    ends_with(&text, "/bin/runmig-hook");
    ends_with(&repair, "systemctl cat containerd");
}

#[test]
fn names_each_other_program() {
    let setup = setup();
    for name in "nvidia-mig-manager nvidia-mig-parted nvidia-device-plugin gpu-kubelet-plugin \
             instaslice-daemonset vgpu-device-plugin nv-hostengine"
        .split(' ')
    {
        let running = process(&setup, name);
        let (text, _) = breaks_inside(&setup, "warn", "conflicts.programs", ["", &running]);
        begins_with(&text, &format!("{name} runs"));
    }
    let link = "/etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service";
    let links = format!("mkdir -p $(dirname {link}); ln -s /lib/x {link}");
    let worlds = ["", &links].map(|more| format!("{}\n{more}", etc(&setup)));
    let (text, repair) = breaks_inside(&setup, "warn", "conflicts.programs", worlds);
    has(&text, link);
    assert_eq!(repair, "systemctl disable nvidia-mig-manager.service");
}

/// runmig-dra's findings join the others; without it, its absence is one.
#[test]
fn joins_findings_of_kubernetes_driver() {
    let setup = setup();
    let program = Path::new(env!("CARGO_BIN_EXE_runmig")).with_file_name("runmig-dra");
    if !program.exists() {
        return skip("runmig-dra is not built: cargo build --workspace");
    }
    let only = ["--only=host.boot", "--kubernetes"];
    let seen = Diagnosis::of(&setup, &only);
    seen.has("fail", ["kubernetes.driver"]);
    copy_program(&program, &setup.program("runmig-dra"));
    let seen = Diagnosis::of(&setup, &only);
    // It has no cluster here.
    let fails = seen.ids("fail");
    assert!(fails.contains("kubernetes.api"), "{fails:?}");
    let (all, both) = (seen.all_ids(), ids(["kubernetes.gpus", "host.boot"]));
    assert!(all.is_superset(&both), "{all:?}");
    assert_eq!(seen.code, Some(1));
}
