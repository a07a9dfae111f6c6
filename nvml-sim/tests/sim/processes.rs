//! Several real processes on one machine: their order, their deaths, what they hold.
//!
//! A client process is this very test program, run again for one test with a script in its
//! environment: `GPU VERB ARGUMENTS` a line.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Holder, Nvml, Sim};

const SCRIPT: &str = "NVML_SIM_TEST_SCRIPT";
const LIBRARY: &str = "NVML_SIM_TEST_LIBRARY";

/// Runs a script as a client of another user, who may enter the machine's directory, and returns
/// its lines.
fn as_another_user(sim: &Sim, script: &str) -> Vec<String> {
    // A user cannot run a test program that lies in a directory of root's, so it goes where the
    // machine is.
    let program = sim.dir().join("client");
    if !program.exists() {
        // Another process writes it: a child that another test starts meanwhile would hold it open for writing, and the
        // kernel executes no such file.
        let mut copy = std::process::Command::new("cp");
        copy.arg(std::env::current_exe().unwrap()).arg(&program);
        assert!(copy.status().unwrap().success());
    }
    let mut client = client_command(&program, sim, script);
    finish(client.current_dir("/").uid(65534).spawn().unwrap())
}

/// Runs the script of a client process; nothing when there is none.
#[test]
fn client_process() {
    let (Ok(script), Ok(library)) = (std::env::var(SCRIPT), std::env::var(LIBRARY)) else {
        return;
    };
    let nvml = Nvml::load(library.as_ref());
    assert_eq!(nvml.call("nvmlInit_v2", &[]), 0);
    for line in script.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let gpu = nvml.gpu(words[0].parse().unwrap());
        match words[1] {
            "create" => println!("client: {:?}", create(&nvml, gpu).map(|_| ())),
            "churn" => (0..words[2].parse().unwrap()).for_each(|_| churn(&nvml, gpu)),
            "list" => println!("client: {:?}", list(&nvml, gpu)),
            other => panic!("{other}"),
        }
    }
    assert_eq!(nvml.call("nvmlShutdown", &[]), 0);
}

fn create(nvml: &Nvml, gpu: u64) -> Result<(u64, u64), u32> {
    let gi = nvml.create_gi(gpu, 19)?;
    Ok((gi, nvml.create_ci(gi, 0)?))
}

/// How many instances of two slices there are.
fn list(nvml: &Nvml, gpu: u64) -> Result<u32, u32> {
    let mut all = [0_u64; 3];
    let args = [gpu, 14, all.as_mut_ptr() as u64];
    nvml.ask("nvmlDeviceGetGpuInstances", &args, 0)
}

/// Makes an instance and destroys it, or finds no room.
fn churn(nvml: &Nvml, gpu: u64) {
    match create(nvml, gpu) {
        Ok((gi, ci)) => {
            assert_eq!(nvml.call("nvmlComputeInstanceDestroy", &[ci]), 0);
            assert_eq!(nvml.call("nvmlGpuInstanceDestroy", &[gi]), 0);
        }
        Err(code) => assert_eq!(code, 23),
    }
}

fn client_command(program: &Path, sim: &Sim, script: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", "processes::client_process", "--nocapture"])
        .env(SCRIPT, script)
        .env(LIBRARY, sim.dir().join("lib/libnvidia-ml.so.1"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn client(sim: &Sim, script: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    client_command(&program, sim, script).spawn().unwrap()
}

/// Waits for a client and gives the lines it printed.
fn finish(child: Child) -> Vec<String> {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let said = text.lines().filter_map(|l| l.split_once("client: "));
    said.map(|(_, l)| l.to_string()).collect()
}

/// Waits until the rules have seen so many calls.
fn await_seen(sim: &Sim, calls: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while nvml_sim::fault::list(sim.dir()).unwrap()[0].seen < calls {
        assert!(Instant::now() < deadline, "the call never came");
        std::thread::yield_now();
    }
}

/// The capability files are those of the machine's instances, and none else.
fn assert_settled(sim: &Sim) {
    let show = sim.show();
    let mut wanted = Vec::new();
    for gpu in show["gpus"].as_array().unwrap() {
        for gi in gpu["gpuInstances"].as_array().unwrap() {
            let path = format!("gpu{}/mig/gi{}", gpu["minor"], gi["id"]);
            for ci in gi["computeInstances"].as_array().unwrap() {
                wanted.push(format!("{path}/ci{}/access", ci["id"]));
            }
            wanted.push(format!("{path}/access"));
        }
    }
    let root = sim.dir().join("proc/driver/nvidia/capabilities");
    let mut find = Command::new("find");
    find.arg(&root).args(["-path", "*gpu*", "-name", "access"]);
    let text = String::from_utf8(find.output().unwrap().stdout).unwrap();
    let prefix = format!("{}/", root.display());
    let mut found: Vec<String> = text.lines().map(|l| l.replace(&prefix, "")).collect();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    let nodes = std::fs::read_dir(sim.dir().join("dev/nvidia-caps"));
    assert_eq!(nodes.unwrap().count(), wanted.len() + 2);
}

#[test]
fn many_processes_share_a_machine() {
    let sim = Sim::new("--gpu A100-80GB --gpu A100-40GB");
    let churn = |i| client(&sim, &format!("{} churn 25", i % 2));
    let clients: Vec<Child> = (0..8).map(churn).collect();
    clients.into_iter().for_each(|c| drop(finish(c)));
    let left = [0, 1].map(|gpu| sim.gpu_instances(gpu).len());
    assert_eq!(left, [0, 0]);
    assert_settled(&sim);
}

#[test]
fn gives_no_instance_twice() {
    let sim = Sim::new("--gpu A100-80GB");
    let clients: Vec<Child> = (0..10).map(|_| client(&sim, "0 create")).collect();
    let ends: Vec<String> = clients.into_iter().flat_map(finish).collect();
    assert_eq!(ends.iter().filter(|e| *e == "Ok(())").count(), 7);
    assert_eq!(ends.iter().filter(|e| *e == "Err(23)").count(), 3);
    let mut ids = sim.gpu_instances(0);
    ids.sort();
    assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13]);
    assert_settled(&sim);
}

/// Kills a client at every call of a life, before, during and after it. The machine stays whole,
/// and another client continues with it.
#[test]
fn kill_at_any_call_keeps_machine() {
    let sim = Sim::new("--gpu A100-40GB");
    sim.run("trace", "on");
    finish(client(&sim, "0 churn 1"));
    let calls = sim.run("trace", "show").lines().count();
    sim.run("trace", "off");
    assert_eq!(calls, 7, "{}", sim.read("trace.log"));
    for moment in ["before", "during", "after"] {
        for nth in 1..=calls {
            let at = format!("{moment} {nth}");
            sim.run("fault", &format!("--call * --nth {nth} --kill {moment}"));
            let dead = client(&sim, "0 churn 1").wait_with_output().unwrap();
            assert_eq!(dead.status.signal(), Some(libc::SIGKILL), "{at}");
            sim.run("fault", "--clear");
            finish(client(&sim, "0 churn 1"));
            assert_settled(&sim);
            // The third call makes the GPU instance, the sixth destroys it.
            let (made, gone) = match moment {
                "before" => (nth > 3, nth > 6),
                _ => (nth >= 3, nth >= 6),
            };
            let left = sim.gpu_instances(0);
            assert_eq!(left.len(), usize::from(made && !gone), "{at}");
            left.iter()
                .for_each(|gi| drop(sim.run("destroy", &format!("--gpu 0 --gi {gi}"))));
        }
    }
}

#[test]
fn times_overlap_on_different_gpus_only() {
    let sim = Sim::new("--gpu A100-40GB --count 2");
    let name = "nvmlDeviceCreateGpuInstance";
    sim.run("fault", &format!("--call {name} --nth 1 --takes 600s"));
    let mut slow = client(&sim, "0 create");
    await_seen(&sim, 1);
    // The first is in its ten minutes; one on the other GPU does not wait for it.
    assert_eq!(finish(client(&sim, "1 create")), ["Ok(())"]);
    assert!(slow.try_wait().unwrap().is_none());
    // Reading does not wait either.
    let version = sim.init().ask_text("nvmlSystemGetDriverVersion", &[]);
    assert_eq!(version.unwrap(), "580.95.05");
    // One on the same GPU does, until the first is gone, which then has made nothing.
    let waiting = client(&sim, "0 create");
    await_seen(&sim, 3);
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert_eq!(finish(waiting), ["Ok(())"]);
    assert_eq!(sim.gpu_instances(0).len(), 1);
}

#[test]
fn holder_keeps_instance_until_death() {
    let sim = Sim::new("--gpu A100-80GB");
    let nvml = sim.init();
    let gpu = nvml.gpu(0);
    let (gi, ci) = create(&nvml, gpu).unwrap();
    let holder = Holder::new(&sim, "--gpu 0 --gi 13 --ci 0");
    assert_eq!(nvml.call("nvmlComputeInstanceDestroy", &[ci]), 19);
    assert_eq!(nvml.call("nvmlGpuInstanceDestroy", &[gi]), 19);

    // It can be found, in the lists of NVML and in /proc.
    let mig = nvml.mig_device(gpu, 0).unwrap();
    for device in [gpu, mig] {
        let (mut infos, mut count) = ([0_u64; 3], 1_u32);
        let args = [device, &raw mut count as u64, infos.as_mut_ptr() as u64];
        let list = "nvmlDeviceGetComputeRunningProcesses_v3";
        assert_eq!(nvml.call(list, &args), 0);
        assert_eq!((count, infos[0] as u32, infos[2]), (1, holder.pid(), 13));
        count = 0;
        assert_eq!(nvml.call(list, &args), 7);
        assert_eq!(count, 1);
    }
    let file = "proc/driver/nvidia/capabilities/gpu0/mig/gi13/ci0/access";
    let file = sim.dir().join(file).canonicalize().unwrap();
    let open = std::fs::read_dir(format!("/proc/{}/fd", holder.pid())).unwrap();
    let mut links = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    assert!(links.any(|link| link == file));

    drop(holder);
    assert_eq!(nvml.call("nvmlComputeInstanceDestroy", &[ci]), 0);
    let holder = Holder::new(&sim, "--gpu 0 --gi 13");
    assert_eq!(nvml.call("nvmlGpuInstanceDestroy", &[gi]), 19);
    drop(holder);
    assert_eq!(nvml.call("nvmlGpuInstanceDestroy", &[gi]), 0);
    assert!(!sim.try_run("hold", "--gpu 0 --gi 13").status.success());
}

#[test]
fn whole_gpu_holder_blocks_first_instance() {
    let sim = Sim::new("--gpu A100-80GB --gpu H100");
    let nvml = sim.init();
    let holder = Holder::new(&sim, "--gpu 1");
    assert_eq!(nvml.create_gi(nvml.gpu(1), 19), Err(19));
    assert!(nvml.create_gi(nvml.gpu(0), 19).is_ok());
    let off = nvml.ask("nvmlDeviceSetMigMode", &[nvml.gpu(1), 0], 0_u32);
    assert_eq!(off, Ok(19));
    assert!(!sim.try_run("reset", "--gpu 1").status.success());
    drop(holder);
    assert!(nvml.create_gi(nvml.gpu(1), 19).is_ok());
}

#[test]
fn plain_user_may_only_look() {
    let sim = Sim::new("--gpu A100-80GB");
    sim.run("create", "--gpu 0 --profile 2g.20gb");
    sim.run("fault", "--call nvmlShutdown --takes 1ms");
    let said = as_another_user(&sim, "0 list\n0 create");
    assert_eq!(said, ["Ok(1)", "Err(4)"]);
    assert_eq!(sim.gpu_instances(0).len(), 1);
    // Without the monitor capability not even that.
    let monitor = "proc/driver/nvidia/capabilities/mig/monitor";
    let monitor = sim.dir().join(monitor);
    std::fs::set_permissions(monitor, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(as_another_user(&sim, "0 list"), ["Err(4)"]);
}
