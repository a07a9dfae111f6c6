//! A machine that is not as it should be: driver, rights, configuration, state directory. Each with
//! its message, which comes on standard error and as JSON in `--log`; and nothing has changed.

use testkit::prelude::*;
use testkit::refusal::refused_in;

#[test]
fn reports_driver_errors() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb", "true");
    let refused = |line: &str| testkit::refusal::refused(&setup, &bundle, line);
    for (call, code, line) in testkit::rows! {
        "nvmlInit_v2", "DRIVER_NOT_LOADED" =>
            "cannot open the NVIDIA driver library {machine}/lib/libnvidia-ml.so.1: driver not loaded (NVML 9); hint: load the NVIDIA kernel module (modprobe nvidia), or reboot after an update";
        "nvmlDeviceGetMigMode", "NOT_SUPPORTED" =>
            "cannot allocate 1g.10gb: no GPU supports MIG (the driver lists 2 GPUs); hint: use an A30, A100, H100 or a later data-centre GPU";
        "nvmlDeviceGetMigMode", "GPU_IS_LOST" =>
            "cannot allocate 1g.10gb: no GPU can be read (cannot read GPU 0: GPU is lost (NVML 15); cannot read GPU 1: GPU is lost (NVML 15)); hint: run nvidia-smi, and check the kernel log for the GPU's state, or set runmig.dev/wait to wait";
        "nvmlDeviceCreateGpuInstanceWithPlacement", "NO_PERMISSION" =>
            "cannot create GPU instance 1g.10gb at 6:1 on GPU 0 ({gpu}): insufficient permissions (NVML 4); hint: run as root, outside of any user namespace";
        "nvmlGpuInstanceCreateComputeInstance", "UNKNOWN" =>
            "cannot create the compute instance of GPU instance 13 on GPU 0 ({gpu}): unknown error (NVML 999)";
    } {
        setup.fault(call, code);
        refused(line);
        setup.sim("fault", &["--clear"]);
    }

    let (library, away) = (setup.machine.library(), setup.path("away"));
    fs::copy(&library, &away).unwrap();
    fs::write(&library, "not a library").unwrap();
    let cannot_open = |why: &str| {
        let library = "{machine}/lib/libnvidia-ml.so.1";
        let hint =
            "hint: install the NVIDIA driver, or set driver.library to its libnvidia-ml.so.1";
        refused(&format!(
            "cannot open the NVIDIA driver library {library}: {library}: {why}; {hint}"
        ));
    };
    cannot_open("file too short");
    fs::remove_file(&library).unwrap();
    cannot_open("cannot open shared object file: No such file or directory");
    fs::copy(&away, &library).unwrap();

    fs::remove_file(setup.machine.dir().join("proc/devices")).unwrap();
    refused(
        "cannot read the driver's device numbers below {machine}: read {machine}/proc/devices: No such file or directory (os error 2)",
    );
}

/// Root of a user namespace is not root, though its effective id says 0.
#[test]
fn refuses_plain_users() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb", "true");
    refused_in(
        &setup,
        &bundle,
        "a slice can only be made by root on the host, not by a user or the root of a user namespace; hint: run the engine as root",
        |call| {
            let mut inside = Command::new("unshare");
            inside.args(["--user", "--map-root-user"]);
            inside.arg(call.get_program()).args(call.get_args());
            inside.env("RUNMIG_CONFIG", setup.config());
            inside
        },
    );
}

#[test]
fn refuses_bad_configuration() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb", "true");
    let refused = |line: &str| testkit::refusal::refused(&setup, &bundle, line);
    let written = fs::read(setup.config()).unwrap();
    let ourselves = format!("runtime = \"{}\"", setup.program("runmig").display());
    let unread = |why: &str| format!("cannot read configuration {{config}}: {why}");
    fs::write(setup.config(), "statedir = \"/run/x\"\n").unwrap();
    refused(&unread(
        "line 1: unknown key statedir; hint: write state_dir",
    ));
    for (text, line) in testkit::rows! {
        "runtime = \"/nowhere/runc\"" =>
            "low-level runtime /nowhere/runc: no such file or directory; hint: set runtime in {config}";
        &ourselves => "low-level runtime {dir}/bin/runmig is runmig itself; hint: set runtime in {config}";
        "runtime = \"/etc/passwd\"" =>
            "low-level runtime /etc/passwd: it is not an executable file; hint: set runtime in {config}";
    } {
        fs::write(setup.config(), format!("{text}\n")).unwrap();
        refused(line);
    }
    // Whichever runtime it would be, the engine finds the error where it looks.
    for options in [
        &["--log-format=json", "--log"][..],
        &["--systemd-cgroup", "--debug", "--log"],
    ] {
        let log = setup.path("engine.log");
        let file = [log.to_str().unwrap()];
        let call = [options, &file, &["create", "-b", bundle.as_str(), "one"]].concat();
        setup.runmig(&call).exits(1);
        let logged = fs::read_to_string(&log).unwrap();
        has(&logged, "low-level runtime /etc/passwd");
        fs::remove_file(log).unwrap();
    }
    fs::write(setup.config(), &written).unwrap();
    mode(&setup.config(), 0o666);
    let open =
        |mode| format!("users other than root can write to it (mode {mode}); hint: chmod go-w it");
    refused(&unread(&open("0666")));
    mode(&setup.config(), 0o644);
    mode(&setup.program("runmig-hook"), 0o777);
    refused(&format!("{{dir}}/bin/runmig-hook: {}", open("0777")));
    fs::remove_file(setup.program("runmig-hook")).unwrap();
    let missing = "no such file or directory; hint: install runmig-hook beside runmig";
    refused(&format!("{{dir}}/bin/runmig-hook: {missing}"));
    fs::remove_file(setup.config()).unwrap();
    refused(&unread("no such file or directory"));
}

/// On a copy: the file may be a hard link to what was built.
fn mode(path: &Path, mode: u32) {
    let bytes = fs::read(path).unwrap();
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
    chmod(path, mode);
}
