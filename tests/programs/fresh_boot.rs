//! A machine that has just booted: nothing has loaded the module nvidia-uvm yet.

use testkit::prelude::*;
use testkit::runtimes::script;

/// A machine without the module or its nodes, and a program that loads it.
struct Boot {
    world: World,
    devices: String,
}

impl Boot {
    fn new() -> Boot {
        let world = World::small();
        let devices = fs::read_to_string(world.machine().join("proc/devices")).unwrap();
        let boot = Boot { world, devices };
        boot.unload();
        boot
    }

    fn unload(&self) {
        let lines = self.devices.lines().filter(|l| !l.ends_with(" nvidia-uvm"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(self.world.machine().join("proc/devices"), text).unwrap();
        self.remove_nodes();
    }

    fn remove_nodes(&self) {
        for node in ["nvidia-uvm", "nvidia-uvm-tools"] {
            fs::remove_file(self.world.machine().join("dev").join(node)).unwrap();
        }
    }

    fn place(&self) -> PathBuf {
        self.world.machine().join("usr/bin/nvidia-modprobe")
    }

    /// Installs nvidia-modprobe, which notes its arguments.
    fn install(&self, at: &Path) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        let whole = self.world.path("devices");
        fs::write(&whole, &self.devices).unwrap();
        let line = self.devices.lines().find(|l| l.ends_with(" nvidia-uvm"));
        let major = line.unwrap().split_whitespace().next().unwrap();
        let (machine, asked) = (self.world.machine(), self.world.path("asked"));
        let (machine, asked) = (machine.display(), asked.display());
        script(
            at,
            &format!(
                "echo \"$@\" >> {asked}\ncp {} {machine}/proc/devices\n\
                 for n in nvidia-uvm:0 nvidia-uvm-tools:1; do\n\
                 mknod -m 666 {machine}/dev/${{n%:*}} c {major} ${{n#*:}}; done",
                whole.display()
            ),
        );
    }

    /// Returns the calls of the program.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.world.path("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn place_with_folder(&self) -> PathBuf {
        fs::create_dir_all(self.place().parent().unwrap()).unwrap();
        self.place()
    }

    #[track_caller]
    fn refuses(&self) {
        let line = said(&mut self.world.create_command("one")).refused();
        has(
            &line,
            "cannot find the driver nvidia-uvm: no line nvidia-uvm in ",
        );
        assert!(line.ends_with("nvidia-modprobe -u -c 0"), "{line}");
        self.world.as_if_nothing_had_been().unwrap();
    }

    fn with_driver_key(&self, line: &str) {
        let config = self.world.path("config.toml");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(config, format!("{text}{line}\n")).unwrap();
    }
}

/// Failure: the first create after a boot finds the module nvidia-uvm not loaded
#[test]
fn first_create_loads_module() {
    let boot = Boot::new();
    boot.install(&boot.place());
    boot.world.create("one");
    assert_eq!(boot.asked(), ["-u -c 0"]);
    boot.world.create("two");
    assert_eq!(boot.asked().len(), 1, "it is loaded");
    boot.world.all_go(&["one", "two"]);
}

/// Failure: the module nvidia-uvm is loaded, and its device node is missing
#[test]
fn create_has_missing_node_made() {
    let boot = Boot::new();
    boot.install(&boot.place());
    boot.world.create("one");
    boot.remove_nodes();
    boot.world.create("two");
    assert_eq!(boot.asked(), ["-u -c 0", "-u -c 0"]);
    assert!(boot.world.machine().join("dev/nvidia-uvm").exists());
    boot.world.all_go(&["one", "two"]);
}

#[test]
fn configured_program_comes_first() {
    let boot = Boot::new();
    script(&boot.place_with_folder(), "exit 1");
    let elsewhere = boot.world.path("opt/nvidia-modprobe");
    boot.install(&elsewhere);
    boot.with_driver_key(&format!("nvidia_modprobe = {elsewhere:?}"));
    boot.world.create("one");
    assert_eq!(boot.asked(), ["-u -c 0"]);
    boot.world.all_go(&["one"]);
}

/// The refusal names the command, and the log why it did not help.
#[test]
fn refuses_where_nothing_helps() {
    let boot = Boot::new();
    boot.refuses();
    script(&boot.place_with_folder(), "echo no such module >&2; exit 1");
    boot.refuses();
    let log = fs::read_to_string(boot.world.state().join("runmig.log")).unwrap();
    has(&log, "no such module");
}

/// It runs as root.
#[test]
fn never_runs_program_of_others() {
    let boot = Boot::new();
    boot.install(&boot.place());
    for mode in [0o777, 0o775] {
        fs::set_permissions(boot.place(), fs::Permissions::from_mode(mode)).unwrap();
        boot.refuses();
    }
    assert_eq!(boot.asked(), [""; 0]);
}

#[test]
fn doctor_says_who_loads_module() {
    let boot = Boot::new();
    let doctor = || said(&mut boot.world.migctl(&["doctor", "--only", "nodes.devices"]));
    has(&doctor().exits(1).stdout, "nvidia-modprobe -u -c 0");
    boot.install(&boot.place());
    let told = doctor().ok().stdout;
    has(
        &told,
        "the module nvidia-uvm is not loaded; the first create",
    );
    assert_eq!(boot.asked(), [""; 0], "doctor changes nothing");
}
