//! Turning MIG on and off.

use super::profiles::A100_80GB_PROFILES;
use super::same_rows;

#[test]
fn hopper_turns_mig_on_at_once() {
    let smi = smi_on!("--gpu H100-80GB --mig off");
    // User Guide, "Enable MIG Mode".
    let said = smi.lines("-mig 1");
    assert!(
        said[0].starts_with("Enabled MIG Mode for GPU 00000000:"),
        "{said:?}"
    );
    assert_eq!(said[1..], ["All done."]);
    assert_eq!(smi.free().len(), 7);
    let said = smi.lines("-mig 0");
    assert!(
        said[0].starts_with("Disabled MIG Mode for GPU 00000000:"),
        "{said:?}"
    );
    smi.fails("mig -lgip", 6, &["No MIG-enabled devices found."]);
}

#[test]
fn ampere_waits_for_a_reset() {
    let smi = smi_on!("--gpu A100-80GB --mig off");
    // User Guide, "GPU Reset on NVIDIA Ampere Architecture GPUs": these words
    // where the driver cannot reset the GPU by itself.
    let said = smi.lines("-mig 1");
    assert!(
        said[0].starts_with("Warning: MIG mode is in pending enable state for GPU 00000000:"),
        "{said:?}"
    );
    assert!(
        said[1].starts_with(
            "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU 00000000:"
        ),
        "{said:?}"
    );
    assert_eq!(said[2..], ["All done."]);
    smi.fails("mig -lgip", 6, &["No MIG-enabled devices found."]);
    smi.machine.sim("reboot", "");
    assert_eq!(smi.free().len(), 7);
    // Instances do not survive a boot, on Ampere the mode does.
    smi.ok("mig -cgi 19 -C");
    smi.machine.sim("reboot", "");
    same_rows(smi.table("mig -lgip"), &A100_80GB_PROFILES);
}
