//! The driver's files in a container: from which CDI specification, and what happens if they are not there.

use testkit::cdi::{libcuda, specification, with_library};
use testkit::prelude::*;

const CAT: &str =
    "cat /usr/lib/libcuda.so.1; echo; echo DEVICE=$DEVICE CUDA=${CUDA_VISIBLE_DEVICES-none}";

struct World {
    setup: Setup,
    cdi: PathBuf,
    library: PathBuf,
}

/// Two A100 and a folder of CDI files beside the usual ones.
fn world() -> World {
    let setup = Setup::of(Low::Runc);
    let (cdi, library) = (setup.path("cdi"), setup.path("libcuda.so.570"));
    fs::create_dir(&cdi).unwrap();
    fs::write(&library, "the driver's\n").unwrap();
    setup.configure_files("auto", &format!("cdi_dirs = [{cdi:?}]"));
    setup.sim("trace", &["on"]);
    World {
        setup,
        cdi,
        library,
    }
}

impl World {
    fn write(&self, specification: &Value) -> PathBuf {
        let file = self.cdi.join("nvidia.json");
        fs::write(&file, specification.to_string()).unwrap();
        file
    }

    #[track_caller]
    fn prints(&self) -> String {
        self.setup.run(&self.setup.asking("1g.10gb", CAT)).stdout
    }

    /// Returns the line of a create that is refused before anything is made.
    #[track_caller]
    fn refused(&self) -> String {
        let made = || {
            let trace = self.setup.sim("trace", &["show"]);
            trace.matches("CreateGpuInstance").count()
        };
        let before = made();
        let line = self.setup.refused(&self.setup.asking("1g.10gb", "true"));
        assert_eq!(made(), before);
        self.setup.nothing_is_left();
        line
    }

    fn log(&self) -> String {
        fs::read_to_string(self.setup.state().join("runmig.log")).unwrap_or_default()
    }
}

/// Failure: no CDI specification brings libcuda, as at a boot before `nvidia-cdi-refresh.service`
#[test]
fn refuses_container_without_libcuda() {
    let world = world();
    let remedy = "hint: run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
    let line = world.refused();
    has(
        &line,
        "cannot find a CDI specification of nvidia.com/gpu or ",
    );
    has(&line, remedy);
    let file = world.write(&specification("nvidia.com/gpu", &json!({"env": ["A=b"]})));
    let line = world.refused();
    let file = file.display();
    has(
        &line,
        &format!("cannot find libcuda in CDI specification {file}"),
    );
    has(&line, remedy);
    // The user's own mount is as good, and a container that asks for nothing needs none.
    let bundle = world.setup.asking("1g.10gb", CAT);
    let options = ["bind", "ro"];
    bundle.mount([bind(&world.library, "/usr/lib/libcuda.so.1", &options)]);
    has(&world.setup.run(&bundle).stdout, "the driver's");
    world.setup.run(&world.setup.bundle("true"));
    world.setup.configure("");
    world.setup.run(&world.setup.asking("1g.10gb", "true"));
    world.write(&with_library(&world.library));
    let more = format!("cdi_dirs = [{:?}]", world.cdi);
    world.setup.configure_files("auto", &more);
    has(&world.prints(), "the driver's\n");
    world.setup.nothing_is_left();
}

/// Failure: a file system from which a CDI specification takes files does not answer
#[test]
fn names_file_system_that_does_not_answer() {
    let world = world();
    let mut fuse = match testkit::fuse::Fuse::apart() {
        Ok(fuse) => fuse,
        Err(why) => return skip(why),
    };
    let hung = world.setup.path("hung");
    fs::create_dir(&hung).unwrap();
    fuse.cover(&hung);
    let link = world.setup.path("link");
    symlink(&hung, &link).unwrap();
    let mount = |at: &Path| json!({"hostPath": at.join("a.so"), "containerPath": "/usr/lib/a.so"});
    let hook = |at: &Path| json!({"hookName": "createContainer", "path": at.join("tool")});
    fuse.hang();
    for (key, one, at) in [
        ("mounts", mount(&hung), hung.join("a.so")),
        ("mounts", mount(&link), link.join("a.so")),
        ("hooks", hook(&hung), hung.join("tool")),
    ] {
        let mut edits = json!({"mounts": [libcuda(&world.library)], "hooks": []});
        edits[key].as_array_mut().unwrap().push(one);
        let file = world.write(&specification("nvidia.com/gpu", &edits));
        let line = world.refused();
        let (file, at) = (file.display(), at.display());
        let words = format!(
            "cannot use CDI specification {file}: the file system of {at} does not answer; hint: bring"
        );
        has(&line, &words);
    }
    assert!(fuse.asked() > 0);
    fuse.nobody_was_stuck();
}

#[test]
fn leaves_out_missing_sockets() {
    let world = world();
    let sockets = [
        "run/nvidia-persistenced/socket",
        "run/nvidia-fabricmanager/socket",
        "nvidia-mps",
    ];
    let mount = |name: &&str| json!({"hostPath": world.setup.path(name), "containerPath": format!("/{name}")});
    let mut mounts: Vec<Value> = sockets.iter().map(mount).collect();
    mounts.push(libcuda(&world.library));
    world.write(&specification("nvidia.com/gpu", &json!({"mounts": mounts})));
    has(&world.prints(), "the driver's");
    for name in sockets {
        let socket = world.setup.path(name);
        let told = format!("containers do not get {}, which", socket.display());
        has(&world.log(), &told);
    }
}

/// Failure: a hook of the CDI specification fails in a container
#[test]
fn skips_named_hooks() {
    let world = world();
    let hook = json!({"hookName": "createContainer", "path": "/bin/false", "args": ["nvidia-ctk", "hook", "chmod"]});
    let edits = json!({"mounts": [libcuda(&world.library)], "hooks": [hook]});
    world.write(&specification("nvidia.com/gpu", &edits));
    let bundle = world.setup.asking("1g.10gb", "true");
    let failed = world.setup.try_run(&bundle);
    assert!(!failed.status.success(), "{failed:?}");
    world.setup.nothing_is_left();
    for name in ["chmod", "false"] {
        let cdi = &world.cdi;
        let more = format!("cdi_dirs = [{cdi:?}]\ndriver_hooks_skip = [{name:?}]");
        world.setup.configure_files("auto", &more);
        has(&world.prints(), "the driver's");
    }
}

/// docker's `--gpus` adds a hook which fails on purpose where NVIDIA's toolkit is in CDI mode.
/// Failure: docker's `--gpus` adds NVIDIA's prestart hook, which fails beside a request
/// Failure: `CUDA_VISIBLE_DEVICES` of an image or a compose file names a device that the container does not have
#[test]
fn program_sees_its_device() {
    let setup = Setup::of(Low::Runc);
    let log = || fs::read_to_string(setup.state().join("runmig.log")).unwrap();
    let hook = setup.path("nvidia-container-runtime-hook");
    script(&hook, "exit 1");
    let seen = |value: &str| {
        let bundle = setup.asking("1g.10gb", "echo CUDA=${CUDA_VISIBLE_DEVICES-none}");
        bundle.set_env(&[&format!("CUDA_VISIBLE_DEVICES={value}")]);
        bundle.edit(|config| config["hooks"]["prestart"] = json!([{"path": hook}]));
        setup.run(&bundle).stdout
    };
    has(&seen("0"), "CUDA=0\n");
    has(&log(), &format!("removed hook {}", hook.display()));
    for value in ["1", "0,7", "", "-1", "MIG-GPU-5/1/0"] {
        has(&seen(value), "CUDA=none\n");
        has(&log(), &format!("removed CUDA_VISIBLE_DEVICES={value}:"));
    }
}

/// Writes what sysfs has of each GPU's card and render node: `226:N` and `226:128+N`.
fn draw(setup: &Setup) {
    let gpus = setup.machine.dir().join("proc/driver/nvidia/gpus");
    for (at, address) in names_in(&gpus).iter().enumerate() {
        let minor = 128 + at;
        for (name, minor) in [
            (format!("card{at}"), at),
            (format!("renderD{minor}"), minor),
        ] {
            let node = setup.machine.dir().join("sys/class/drm").join(name);
            fs::create_dir_all(node.join("device")).unwrap();
            fs::write(node.join("dev"), format!("226:{minor}\n")).unwrap();
            fs::write(node.join("device/vendor"), "0x10de\n").unwrap();
            let slot = format!("DRIVER=nvidia\nPCI_SLOT_NAME={address}\n");
            fs::write(node.join("device/uevent"), slot).unwrap();
        }
    }
}

/// The DRM nodes that a container keeps of all four.
#[track_caller]
fn drawn(machine: &[&str], key: &str, value: &str) -> BTreeSet<u64> {
    let setup = Setup::on(Low::Runc, Machine::with(machine));
    setup.configure("policy.gpus_per_container = 2");
    draw(&setup);
    let bundle = setup.bundle("exec sleep 1000");
    bundle.annotate(key, value);
    bundle.edit(|config| {
        let nodes = ["card0", "card1", "renderD128", "renderD129"].map(|name| {
            let minor = name.trim_start_matches(char::is_alphabetic);
            let minor: u32 = minor.parse().unwrap();
            json!({"path": format!("/dev/dri/{name}"), "type": "c", "major": 226, "minor": minor})
        });
        config["linux"]["devices"] = json!(nodes);
        let rules = config["linux"]["resources"]["devices"].as_array_mut();
        rules.unwrap().extend(nodes.iter().map(|node| {
            let (major, minor) = (&node["major"], &node["minor"]);
            json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"})
        }));
    });
    let id = unique();
    setup.create(&bundle, &id);
    let config = bundle.config();
    let of = |list: &Value| -> BTreeSet<u64> {
        let nodes = list.as_array().unwrap().iter();
        let its = nodes.filter(|node| node["major"] == 226);
        its.map(|node| node["minor"].as_u64().unwrap()).collect()
    };
    let kept = of(&config["linux"]["devices"]);
    assert_eq!(of(&config["linux"]["resources"]["devices"]), kept);
    setup.ends(&[id]);
    kept
}

#[test]
fn keeps_own_render_nodes() {
    let whole = ["--gpu", "L4", "--count", "2", "--mig", "off"];
    let graphics = ["--gpu", "RTX-PRO-6000-96GB", "--count", "2", "--mig", "on"];
    for (machine, key, value, minors) in testkit::rows! {
        whole, "runmig.dev/gpu", "1" => &[0, 128][..];
        whole, "runmig.dev/gpu", "2" => &[0, 1, 128, 129];
        graphics, "runmig.dev/slice", "1g.24gb+gfx" => &[0, 128];
        graphics, "runmig.dev/slice", "1g.24gb" => &[];
    } {
        let kept: Vec<u64> = drawn(&machine, key, value).into_iter().collect();
        assert_eq!(kept, minors, "{key} {value}");
    }
}

/// README has the CDI file written before MIG is on, and docs/install.md says why.
#[test]
fn nvidia_ctk_finds_no_device_in_mig_mode() {
    let Some(ctk) = testkit::runtimes::built("nvidia-container-runtime", "nvidia-ctk") else {
        return skip_until_full("no nvidia-ctk: scripts/setup full");
    };
    if !nix::unistd::geteuid().is_root() {
        return skip("device nodes are made by root");
    }
    let machine = Machine::new("H100-80GB", 1);
    machine.sim("mig", &["--gpu", "0", "off"]);
    let root = tempfile::tempdir().unwrap();
    let libraries = root.path().join("usr/lib64");
    fs::create_dir_all(&libraries).unwrap();
    let library = libraries.join("libnvidia-ml.so.580.95.05");
    fs::copy(machine.library(), library).unwrap();
    fs::write(libraries.join("libcuda.so.580.95.05"), "the driver's\n").unwrap();
    let generate = |name: &str| {
        let output = root.path().join(name);
        let mut command = Command::new(&ctk);
        let mode = "--mode=nvml";
        command.args(["cdi", "generate", mode, "--nvidia-cdi-hook-path=/bin/true"]);
        command.arg(format!("--driver-root={}", root.path().display()));
        command.arg(format!("--dev-root={}", machine.dir().display()));
        command.arg(format!("--output={}", output.display()));
        command.env("LD_LIBRARY_PATH", machine.dir().join("lib"));
        (said(&mut command), output)
    };
    let (written, file) = generate("off.yaml");
    written.ok();
    has(&fs::read_to_string(file).unwrap(), "libcuda.so.580.95.05");
    machine.sim("mig", &["--gpu", "0", "on"]);
    let (refused, file) = generate("on.yaml");
    refused.exits(1).warns("empty device edits");
    assert!(!file.exists());
}
