//! A machine that has just booted: nothing has loaded the module nvidia-uvm yet.

use testkit::prelude::*;

/// A machine that has just booted. Its nvidia-modprobe is called something else, so that nothing finds it.
struct Boot {
    world: World,
}

impl Boot {
    fn new() -> Boot {
        let world = World::small();
        world.reboot();
        let boot = Boot { world };
        fs::rename(boot.place(), boot.loads()).unwrap();
        boot
    }

    fn loads(&self) -> PathBuf {
        self.place().with_file_name("loads")
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
        let (loads, asked) = (self.loads(), self.world.path("asked"));
        let (loads, asked) = (loads.display(), asked.display());
        let body = format!("echo \"$@\" >> {asked}\nexec {loads} \"$@\"");
        script(at, &body);
    }

    /// Returns the calls of the program.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.world.path("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn refuses(&self, remedy: &str) -> String {
        let why = "cannot find the driver nvidia-uvm: no line nvidia-uvm in ";
        let line = self.world.refuses("one", why);
        ends_with(&line, remedy);
        self.world.as_if_nothing_had_been().unwrap();
        line
    }

    /// What doctor says of the common nodes.
    fn doctor(&self) -> Said {
        self.world.ctl(&["doctor", "--only", "nodes.devices"])
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
    fs::remove_file(boot.world.machine().join("dev/nvidiactl")).unwrap();
    boot.world.create("three");
    assert_eq!(boot.asked().len(), 3);
    boot.world.all_go(&["one", "two", "three"]);
}

#[test]
fn configured_program_comes_first() {
    let boot = Boot::new();
    script(&boot.place(), "exit 1");
    let elsewhere = boot.world.path("opt/nvidia-modprobe");
    boot.install(&elsewhere);
    let config = boot.world.path("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(config, format!("{text}nvidia_modprobe = {elsewhere:?}\n")).unwrap();
    boot.world.create("one");
    assert_eq!(boot.asked(), ["-u -c 0"]);
    boot.world.all_go(&["one"]);
}

/// The refusal names the command, and the log why it did not help.
#[test]
fn refuses_where_nothing_helps() {
    let boot = Boot::new();
    boot.refuses("nvidia-modprobe -u -c 0");
    script(&boot.place(), "echo no such module >&2; exit 1");
    has(&boot.refuses("nvidia-modprobe -u -c 0"), "no such module");
    has(&boot.world.log(), "no such module");
    script(&boot.place(), "exit 0");
    let line = boot.refuses("nvidia-modprobe -u -c 0");
    has(&line, "nvidia-modprobe -u -c 0 did not help");
    lacks(&boot.world.log(), "helped");
}

/// It runs as root.
#[test]
fn never_runs_program_of_others() {
    let boot = Boot::new();
    boot.install(&boot.place());
    for mode in [0o777, 0o775] {
        chmod(boot.place(), mode);
        boot.refuses("chmod go-w it");
        boot.doctor().exits(1).says("chmod go-w it");
    }
    assert_eq!(boot.asked(), [""; 0]);
}

#[test]
fn doctor_says_who_loads_module() {
    let boot = Boot::new();
    boot.doctor().exits(1).says("nvidia-modprobe -u -c 0");
    boot.install(&boot.place());
    let loads = "the module nvidia-uvm is not loaded; the first create";
    boot.doctor().ok().says(loads);
    assert_eq!(boot.asked(), [""; 0], "doctor changes nothing");
}
