//! Instances from nothing to nothing, on one GPU and on several.

use super::profiles::{A30_PROFILES, A100_80GB_PROFILES};
use super::{created, same_rows};

#[test]
fn creates_two_slices_and_destroys_them() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.fails("mig -lgi", 6, &["No GPU instances found: Not Found"]);

    // 1g at 6 is GPU instance 13, 2g at 4 is 5: the User Guide's "-cgi 19,14,5"
    // on an A100-40GB gives the same ids.
    assert_eq!(
        smi.lines("mig -cgi 19,14 -C"),
        [
            "Successfully created GPU instance ID 13 on GPU 0 using profile MIG 1g.10gb (ID 19)",
            "Successfully created compute instance ID 0 on GPU 0 GPU instance ID 13 using profile MIG 1g.10gb (ID 0)",
            "Successfully created GPU instance ID 5 on GPU 0 using profile MIG 2g.20gb (ID 14)",
            "Successfully created compute instance ID 0 on GPU 0 GPU instance ID 5 using profile MIG 2g.20gb (ID 1)",
        ]
    );
    assert_eq!(
        smi.table("mig -lgi"),
        ["0 MIG 1g.10gb 19 13 6:1", "0 MIG 2g.20gb 14 5 4:2"]
    );
    same_rows(
        smi.table("mig -lci"),
        &["0 13 MIG 1g.10gb 0 0 0:1", "0 5 MIG 2g.20gb 1 0 0:2"],
    );

    // MIG devices are numbered by GPU instance.
    let list = smi.lines("-L");
    assert_eq!(list.len(), 3, "{list:?}");
    assert!(
        list[0].starts_with("GPU 0: NVIDIA A100") && list[0].contains("(UUID: GPU-"),
        "{list:?}"
    );
    assert!(
        list[1].starts_with("MIG 2g.20gb Device 0: (UUID: MIG-"),
        "{list:?}"
    );
    assert!(
        list[2].starts_with("MIG 1g.10gb Device 1: (UUID: MIG-"),
        "{list:?}"
    );

    // A GPU instance with a compute instance in it is not destroyed.
    smi.fails(
        "mig -dgi -gi 13",
        19,
        &[
            "Unable to destroy GPU instance ID 13 from GPU 0: In use by another client",
            "Failed to destroy GPU instances: In use by another client",
        ],
    );
    same_rows(
        smi.lines("mig -dci"),
        &[
            "Successfully destroyed compute instance ID 0 from GPU 0 GPU instance ID 13",
            "Successfully destroyed compute instance ID 0 from GPU 0 GPU instance ID 5",
        ],
    );
    assert_eq!(smi.lines("-L").len(), 1);
    assert_eq!(
        smi.lines("mig -dgi"),
        [
            "Successfully destroyed GPU instance ID 13 from GPU 0",
            "Successfully destroyed GPU instance ID 5 from GPU 0",
        ]
    );
    same_rows(smi.table("mig -lgip"), &A100_80GB_PROFILES);

    // A new instance at the same place is the same MIG device.
    smi.ok("mig -cgi 14:4,19:6 -C");
    assert_eq!(smi.lines("-L"), list);
}

#[test]
fn other_models_create_and_destroy() {
    for (what, create, ids) in [
        ("--gpu H100-80GB --mig on", "19,14", [13, 5]),
        ("--gpu A30-24GB --mig on", "14,5", [3, 2]),
        ("--gpu A100-80GB --mig on --floor-swept", "19,14", [9, 3]),
    ] {
        let smi = smi_on!(what);
        let empty = smi.free();
        let out = smi.ok(&format!("mig -cgi {create} -C"));
        assert_eq!(created(&out), ids, "{what}: {out}");
        assert_eq!(smi.table("mig -lgi").len(), 2);
        assert_eq!(smi.table("mig -lci").len(), 2);
        assert_eq!(smi.lines("-L").len(), 3);
        smi.ok("mig -dci");
        smi.ok("mig -dgi");
        assert_eq!(smi.free(), empty, "{what}");
    }
}

#[test]
fn keeps_two_gpus_apart() {
    let smi = smi_on!("--gpu A100-80GB --count 2 --mig on");
    assert_eq!(smi.table("mig -lgip").len(), 14);
    assert_eq!(smi.table("mig -lgip -i 1").len(), 7);
    smi.ok("mig -cgi 19 -C -i 1");
    assert_eq!(smi.table("mig -lgi"), ["1 MIG 1g.10gb 19 13 6:1"]);
    assert_eq!(smi.table("mig -lci"), ["1 13 MIG 1g.10gb 0 0 0:1"]);
    same_rows(smi.table("mig -lgip -i 0"), &A100_80GB_PROFILES);
    // Without -i on every GPU; the same place on two GPUs is two devices.
    smi.ok("mig -cgi 14 -C");
    let list = smi.lines("-L");
    assert_eq!(
        list.iter().filter(|line| line.starts_with("GPU ")).count(),
        2
    );
    let mut uuids: Vec<_> = list
        .iter()
        .map(|line| line.split("(UUID: ").nth(1).expect(line))
        .collect();
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), 5, "{list:?}");
}

#[test]
fn mixed_models_in_one_machine() {
    let smi = smi_on!("--gpu A30-24GB --gpu H100-80GB --mig on");
    let list = smi.lines("-L");
    assert!(
        list[0].contains("A30") && list[1].contains("H100"),
        "{list:?}"
    );
    same_rows(smi.table("mig -lgip -i 0"), &A30_PROFILES);
    assert_eq!(created(&smi.ok("mig -cgi 0 -i 1")), [0]);
    same_rows(smi.table("mig -lgip -i 0"), &A30_PROFILES);
}
