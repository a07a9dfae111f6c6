//! Refusals, in the words and with the codes of the real driver.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::clients::Said;
use super::lines;

#[test]
fn reports_no_room_like_the_driver() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19:4");
    smi.fails(
        "mig -cgi 19:4",
        23,
        &[
            "Unable to create a GPU instance on GPU 0 using profile 19:4: Insufficient Resources",
            "Failed to create GPU instances: Insufficient Resources",
        ],
    );
    smi.fails(
        "mig -cgi 0",
        23,
        &[
            "Unable to create a GPU instance on GPU 0 using profile 0: Insufficient Resources",
            "Failed to create GPU instances: Insufficient Resources",
        ],
    );
    // Only one instance can have the media engines.
    smi.ok("mig -cgi 20");
    smi.fails(
        "mig -cgi 1g.10gb+me",
        23,
        &[
            "Unable to create a GPU instance on GPU 0 using profile 1g.10gb+me: Insufficient Resources",
            "Failed to create GPU instances: Insufficient Resources",
        ],
    );
    assert_eq!(smi.table("mig -lgi").len(), 2);
}

#[test]
fn mig_off_is_refused() {
    let smi = smi_on!("--gpu A100-80GB --mig off");
    for verb in [
        "-lgip",
        "-lgipp",
        "-lgi",
        "-lci",
        "-lcip",
        "-cgi 19 -C",
        "-dci",
        "-dgi",
    ] {
        smi.fails(
            &format!("mig {verb}"),
            6,
            &["No MIG-enabled devices found."],
        );
    }
    assert_eq!(smi.lines("-L").len(), 1);
}

#[test]
fn plain_user_can_only_look() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19 -C");
    // The build may lie where other users cannot go.
    let program = smi.machine.dir().with_file_name("nvidia-smi");
    // In another process: a descriptor of this one would be inherited by what other tests start meanwhile.
    let copied = Command::new("cp").arg(&smi.program).arg(&program).status();
    assert!(copied.unwrap().success());
    let as_nobody = |arguments: &str| {
        let mut command = smi.machine.command(&program);
        command
            .args(arguments.split_whitespace())
            .uid(65534)
            .gid(65534);
        Said::from(command.output().expect("nvidia-smi as nobody"))
    };
    for looking in ["-L", "mig -lgip", "mig -lgi", "mig -lci", "mig -lcip"] {
        let said = as_nobody(looking);
        assert_eq!((said.code, said.out), (0, smi.ok(looking)), "{looking}");
    }
    for (touching, first) in [
        (
            "mig -cgi 19",
            "Unable to create a GPU instance on GPU 0 using profile 19: Insufficient Permissions",
        ),
        (
            "mig -dci",
            "Unable to destroy compute instance ID 0 from GPU 0 GPU instance ID 13: Insufficient Permissions",
        ),
        (
            "mig -dgi",
            "Unable to destroy GPU instance ID 13 from GPU 0: Insufficient Permissions",
        ),
    ] {
        let said = as_nobody(touching);
        assert_eq!(said.code, 4, "{touching}: {said:?}");
        assert_eq!(lines(&said.out)[0], first, "{touching}: {said:?}");
    }
    assert_eq!(smi.lines("-L").len(), 2);
}
