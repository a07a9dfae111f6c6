//! mig-parted 0.10.0 over the simulated driver, in a mount namespace of its own: it reads the driver's modules and the
//! PCI devices at fixed paths.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdin, ChildStdout};
use testkit::prelude::*;
use testkit::runtimes;

pub struct MigParted {
    program: PathBuf,
    home: TempDir,
    shell: Child,
    /// Closed first, which ends the shell.
    calls: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What a call of mig-parted said on standard error, and its exit status.
pub struct Answer {
    pub status: i32,
    pub stderr: String,
}

const SETUP: &str = r#"
set -e
cd "$1"
mkdir host-proc proc pci
mount --rbind /proc host-proc
mount -t tmpfs none proc
for entry in host-proc/*; do ln -s "$1/$entry" "proc/${entry#*/}"; done
rm -f proc/modules
echo 'nvidia 1 0 - Live 0x0' >proc/modules
mount --rbind proc /proc
mount -t tmpfs none /sys/bus
mkdir /sys/bus/pci
mount --bind pci /sys/bus/pci
echo ready
while IFS= read -r call; do
    status=0
    eval "$call" || status=$?
    echo "$status"
done
"#;

impl MigParted {
    /// None where scripts/setup has not built it, or where we are not root.
    pub fn find() -> Option<MigParted> {
        let Some(program) = runtimes::built("mig-parted", "nvidia-mig-parted") else {
            skip("no mig-parted: scripts/setup full");
            return None;
        };
        if !nix::unistd::geteuid().is_root() {
            skip("mount namespaces are made by root");
            return None;
        }
        let home = TempDir::with_prefix("runmig-parted-").unwrap();
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation=private", "sh", "-c", SETUP, "sh"]);
        shell.arg(home.path()).stdin(Stdio::piped());
        let mut shell = shell.stdout(Stdio::piped()).spawn().expect("unshare");
        let calls = shell.stdin.take();
        let mut answers = BufReader::new(shell.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the mount namespace of mig-parted");
        Some(MigParted {
            program,
            home,
            shell,
            calls,
            answers,
        })
    }

    /// mig-parted's own file of configurations.
    pub fn default_file(&self) -> PathBuf {
        let version = self.program.parent().unwrap().parent().unwrap();
        version.join("config-default.yaml")
    }

    /// Shows it the GPUs of a machine as PCI devices.
    pub fn plug(&self, machine: &Machine) {
        let devices = self.home.path().join("pci/devices");
        let _ = fs::remove_dir_all(&devices);
        fs::create_dir_all(&devices).unwrap();
        let machine = machine.state();
        for gpu in &machine.gpus {
            let device = devices.join(gpu.pci_address());
            fs::create_dir(&device).unwrap();
            let number = gpu.model().pci_device_id() >> 16;
            let write = |name: &str, text: &str| fs::write(device.join(name), text).unwrap();
            write("vendor", "0x10de\n");
            write("device", &format!("0x{number:04x}\n"));
            write("class", "0x030200\n");
            write("numa_node", "-1\n");
            write("resource", &"0x0000000000000000 ".repeat(3));
            write("config", "");
        }
    }

    /// Calls it with words that a shell takes as they are.
    pub fn call(&mut self, machine: &Machine, arguments: &[&str]) -> Answer {
        let (out, err) = (self.home.path().join("out"), self.home.path().join("err"));
        let (dir, program) = (machine.dir(), self.program.display());
        let call = format!(
            "PATH={0}/usr/bin:$PATH LD_LIBRARY_PATH={0}/lib timeout 60 {program} {1} >{2} 2>{3} </dev/null\n",
            dir.display(),
            arguments.join(" "),
            out.display(),
            err.display()
        );
        let calls = self.calls.as_mut().unwrap();
        calls.write_all(call.as_bytes()).unwrap();
        let mut status = String::new();
        self.answers.read_line(&mut status).unwrap();
        Answer {
            status: status.trim().parse().expect("the status of a call"),
            stderr: fs::read_to_string(err).unwrap(),
        }
    }
}

impl Drop for MigParted {
    fn drop(&mut self) {
        drop(self.calls.take());
        let _ = self.shell.wait();
    }
}
