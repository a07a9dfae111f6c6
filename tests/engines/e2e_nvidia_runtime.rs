//! nvidia-container-runtime as the low-level runtime, and runc below it. It edits config.json after us:
//! what it adds arrives, and what it adds is no more than the slice.

use testkit::Instance;
use testkit::prelude::*;

struct World {
    setup: Setup,
    /// The next slice: the driver gives the same instance the same UUID.
    slice: Instance,
}

impl World {
    fn new() -> Option<World> {
        let mut setup = Setup::try_of(Low::NewRunc)?;
        let Some(runtime) = built("nvidia-container-runtime", "nvidia-container-runtime") else {
            testkit::skip("nvidia-container-runtime is not there; run scripts/setup");
            return None;
        };
        let (_, id) = setup.made("1g.10gb", "true");
        let slice = setup.machine.the_instance();
        setup.delete(&id);

        let runc = std::mem::replace(&mut setup.runtime, runtime);
        setup.configure("");
        let text = fs::read_to_string(setup.config()).unwrap();
        let text = text.replace("driver_files = \"none\"", "driver_files = \"auto\"");
        fs::write(setup.config(), text).unwrap();
        let cdi = setup.path("cdi");
        fs::create_dir(&cdi).unwrap();
        let config = format!(
            "accept-nvidia-visible-devices-as-volume-mounts = true\n\
             swarm-resource = \"DOCKER_RESOURCE_GPU\"\n\
             [nvidia-container-runtime]\nmode = \"cdi\"\nruntimes = [\"{}\"]\n\
             [nvidia-container-runtime.modes.cdi]\ndefault-kind = \"nvidia.com/gpu\"\n\
             annotation-prefixes = [\"nvidia.cdi.k8s.io/\"]\nspec-dirs = [\"{}\"]\n",
            runc.display(),
            cdi.display(),
        );
        fs::write(setup.path("nvidia.toml"), config).unwrap();
        let world = World { setup, slice };
        world.specify();
        Some(world)
    }

    /// As `nvidia-ctk cdi generate` has it, for the one slice and for all of the first GPU.
    fn specify(&self) {
        let node = |name: &str, (major, minor): (u32, u32)| {
            let path = format!("/dev/{name}");
            json!({"path": path, "type": "c", "major": major, "minor": minor})
        };
        let all = self.setup.machine.nodes_of(&self.slice);
        let is_own = |node: &Value| {
            let path = node["path"].as_str().unwrap();
            path.contains("cap") || path == "/dev/nvidia0"
        };
        let every = all.iter().map(|(name, number)| node(name, *number));
        let (own, common): (Vec<_>, Vec<_>) = every.partition(is_own);
        let nvidia = all["nvidiactl"].0;
        let everything = [node("nvidia0", (nvidia, 0)), node("nvidia1", (nvidia, 1))];
        let library = self.setup.path("libcuda.so.1");
        fs::write(&library, "the driver's\n").unwrap();
        let specification = json!({
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [
                {"name": self.slice.uuid, "containerEdits": {"deviceNodes": own}},
                {"name": "all", "containerEdits": {"deviceNodes": everything}},
            ],
            "containerEdits": {
                "deviceNodes": common,
                "env": ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib"],
                "mounts": [{
                    "hostPath": library,
                    "containerPath": "/usr/lib/libcuda.so.1",
                    "options": ["ro", "nosuid", "nodev", "bind"],
                }],
            },
        });
        let file = self.setup.path("cdi/nvidia.json");
        fs::write(file, specification.to_string()).unwrap();
    }

    fn call(&self, arguments: &[&str]) -> Command {
        let file = self.setup.path("nvidia.toml");
        let mut command = self.setup.command(arguments);
        command.env("NVIDIA_CTK_CONFIG_FILE_PATH", file);
        command
    }

    /// Returns the output of its container; nvidia-container-runtime leaves a `run` alone.
    #[track_caller]
    fn run(&self, bundle: &Bundle) -> String {
        let id = unique();
        let created = said(&mut self.call(&["create", "-b", bundle.as_str(), &id])).ok();
        said(&mut self.call(&["start", &id])).ok();
        until("it has printed", || created.stdout_now().contains("END"));
        said(&mut self.call(&["delete", "--force", &id])).ok();
        created.stdout_now()
    }
}

const LIBRARY: &str = "echo LIBRARY=$(cat /usr/lib/libcuda.so.1)";

#[test]
fn gets_slice_and_driver_files() {
    let Some(world) = World::new() else { return };
    let script = format!("{SHOW}; {LIBRARY}; echo END");
    let bundle = world.setup.asking("1g.10gb", &script);
    let before = bundle.bytes();
    for _ in 0..2 {
        let out = world.run(&bundle);
        // Its own edits go with ours.
        assert!(bundle.bytes() == before, "{}", bundle.config());
        assert_eq!(bundle.names(), ["config.json", "rootfs"]);
        assert_eq!(visible(&out), Some(world.slice.uuid.as_str()), "{out}");
        assert_eq!(nodes(&out), world.setup.machine.nodes_of(&world.slice));
        has(&out, "LIBRARY=the driver's");
        world.setup.nothing_is_left();
    }
}

/// A container with a slice gets that alone, whatever else it asks for so. One without a slice does not ask runmig, and is
/// nvidia-container-runtime's alone.
#[track_caller]
fn slice_overrules(world: &World, ask: impl Fn(&mut Value)) {
    let script = format!("{SHOW}; echo END");
    let bundle = world.setup.asking("1g.10gb", &script);
    bundle.edit(&ask);
    let out = world.run(&bundle);
    assert_eq!(nodes(&out), world.setup.machine.nodes_of(&world.slice));
    let bundle = world.setup.bundle(&script);
    bundle.edit(&ask);
    let out = world.run(&bundle);
    assert!(nodes(&out).contains_key("nvidia1"), "{out}");
    world.setup.nothing_is_left();
}

/// Under Docker Swarm, which hands out GPUs, its variable goes before NVIDIA_VISIBLE_DEVICES.
#[test]
fn image_cannot_ask() {
    let Some(world) = World::new() else { return };
    for variable in ["NVIDIA_VISIBLE_DEVICES=all", "DOCKER_RESOURCE_GPU=all"] {
        println!("{variable}");
        slice_overrules(&world, |config| set_env(config, &[variable]));
    }
}

/// It takes a mount for a request by how the text of its destination begins, in any folder.
#[test]
fn overrules_devices_asked_by_mount() {
    let Some(world) = World::new() else { return };
    let list = "/var/run/nvidia-container-devices";
    for destination in [format!("{list}/all"), format!("{list}all")] {
        slice_overrules(&world, |config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(bind("/dev/null", &destination, &["bind"]));
        });
    }
}

/// Under the prefix that NVIDIA's operator configures, with and without a vendor.
#[test]
fn refuses_devices_by_annotation() {
    let Some(world) = World::new() else { return };
    let script = format!("{SHOW}; echo END");
    for devices in ["nvidia.com/gpu=all", "all"] {
        let bundle = world.setup.asking("1g.10gb", &script);
        bundle.annotate("nvidia.cdi.k8s.io/x", devices);
        let before = bundle.bytes();
        let mut create = world.call(&["create", "-b", bundle.as_str(), &unique()]);
        said(&mut create).refused_for("beside what the container asks of runmig");
        assert_eq!(bundle.bytes(), before);
        world.setup.nothing_is_left();
        // nvidia-container-runtime reads it so: without a slice it is obeyed
        let bundle = world.setup.bundle(&script);
        bundle.annotate("nvidia.cdi.k8s.io/x", devices);
        let out = world.run(&bundle);
        assert!(nodes(&out).contains_key("nvidia1"), "{out}");
    }
    world.setup.nothing_is_left();
}

/// A slice of which its specification does not know: refused by it, and nothing stays.
#[test]
fn refuses_what_it_cannot_seal() {
    let Some(world) = World::new() else { return };
    let bundle = world.setup.asking("2g.20gb", "true");
    let before = bundle.bytes();
    let create = said(&mut world.call(&["create", "-b", bundle.as_str(), &unique()])).exits(1);
    has(&create.stderr, "unresolvable CDI devices");
    assert_eq!(bundle.bytes(), before);
    world.setup.nothing_is_left();
}
