//! PyPI's `nvidia-ml-py` on simulated machines: the library's own answers,
//! without nvidia-smi's checks in front of them. Each test runs a case of
//! `clients/lifecycle.py`, where what is expected stands.

mod clients;

use std::path::Path;

use clients::{Holder, Machine, Said, python};

/// Runs a case on a machine; it must come to its end.
fn case(machine: &Machine, python: &Path, case: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/lifecycle.py");
    let mut command = machine.command(python);
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(script)
        .args(case.split(' '));
    let said = Said::from(command.output().expect("python"));
    let name = case.split(' ').next().unwrap();
    assert!(
        said.code == 0 && said.out.ends_with(&format!("done {name}\n")),
        "{case}: exit code {}\n{}{}",
        said.code,
        said.out,
        said.err
    );
}

/// A test that runs these cases, one after the other, on one machine.
macro_rules! lives {
    ($($(#[$meta:meta])* $name:ident: $machine:literal, $cases:expr;)*) => {$(
        $(#[$meta])*
        #[test]
        fn $name() {
            let Some(python) = python() else { return };
            let machine = Machine::new($machine);
            for name in $cases {
                case(&machine, &python, name);
            }
        }
    )*};
}

lives! {
    devices_are_found_every_way: "--gpu A100-80GB --count 2 --mig on", ["devices"];
    profiles_in_both_versions: "--gpu A100-80GB --mig on", ["profiles"];
    creates_and_destroys_an_instance: "--gpu A100-80GB --count 2 --mig on", ["life"];
    refuses_bad_calls: "--gpu A100-80GB --mig on", ["refusals"];
    several_compute_instances: "--gpu A100-80GB --mig on", ["compute_instances"];
    several_compute_instances_floor_swept: "--gpu A100-80GB --mig on --floor-swept", ["compute_instances swept"];
    lists_nothing_with_mig_off: "--gpu A100-80GB --mig off", ["mig_off"];
    hopper_changes_its_mode_at_once: "--gpu H100-80GB --mig off", ["turn_on_hopper"];
    plain_user_can_only_look: "--gpu A100-80GB --mig on", ["not_root"];
    refuses_calls_outside_a_session: "--gpu A100-80GB --count 2 --mig on", ["sessions"];
    codes_have_the_real_words: "--gpu A100-80GB --mig on", ["words"];
    processes_share_a_machine: "--gpu A100-80GB --mig on", ["two_processes"];
}

/// The mode that is pending comes with the reset that a boot is, and on Ampere
/// it outlives a boot.
#[test]
fn ampere_waits_for_a_reset() {
    let Some(python) = python() else { return };
    let machine = Machine::new("--gpu A100-80GB --mig off");
    case(&machine, &python, "turn_on_ampere");
    machine.sim("reboot", "");
    case(&machine, &python, "is_on");
    machine.sim("reboot", "");
    // The instance that was made is gone with the boot.
    case(&machine, &python, "is_on");
}

#[test]
fn faults_reach_the_client() {
    let Some(python) = python() else { return };
    let machine = Machine::new("--gpu A100-80GB --mig on");
    machine.sim(
        "fault",
        "--call nvmlDeviceCreateGpuInstance --nth 2 --returns INSUFFICIENT_RESOURCES",
    );
    machine.sim(
        "fault",
        "--call nvmlDeviceCreateGpuInstance --nth 4 --returns 999",
    );
    case(&machine, &python, "answers 0 23 0 999 0");
    machine.sim("fault", "--clear");
    case(&machine, &python, "answers 0 0");
}

#[test]
fn lists_holder_that_keeps_instance() {
    let Some(python) = python() else { return };
    let machine = Machine::new("--gpu A100-80GB --mig on");
    machine.sim("create", "--gpu 0 --profile 1g.10gb --start 6");
    machine.sim("create", "--gpu 0 --profile 2g.20gb --start 4");
    let holder = Holder::of(&machine, "--gpu 0 --gi 13 --ci 0");
    case(&machine, &python, &format!("held {}", holder.pid()));
}

#[test]
fn gpu_falls_off_the_bus() {
    let Some(python) = python() else { return };
    let machine = Machine::new("--gpu A100-80GB --count 2 --mig on");
    machine.sim("lose", "--gpu 0");
    case(&machine, &python, "lost");
    machine.sim("restore", "--gpu 0");
    case(&machine, &python, "devices");
}
