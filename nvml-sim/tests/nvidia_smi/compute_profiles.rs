//! Compute instances: what a GPU instance offers, and several in one.

use super::{created, same_rows};

#[test]
fn lists_compute_profiles_of_user_guide() {
    let smi = smi_on!("--gpu A100-40GB --mig on");
    // User Guide, "Creating GPU Instances": two halves of an A100-40GB.
    assert_eq!(
        smi.lines("mig -cgi 9,3g.20gb"),
        [
            "Successfully created GPU instance ID 2 on GPU 0 using profile MIG 3g.20gb (ID 9)",
            "Successfully created GPU instance ID 1 on GPU 0 using profile MIG 3g.20gb (ID 9)",
        ]
    );
    // User Guide, "Compute Instances". Fields: GPU, GI, "MIG", name, id (* is
    // the default), free/total, SM, DEC, ENC, OFA, CE, JPEG.
    assert_eq!(
        smi.table("mig -lcip -gi 1"),
        [
            "0 1 MIG 1c.3g.20gb 0 3/3 14 2 0 0 3 0",
            "0 1 MIG 2c.3g.20gb 1 1/1 28 2 0 0 3 0",
            "0 1 MIG 3g.20gb 2* 1/1 42 2 0 0 3 0",
        ]
    );
    assert_eq!(
        smi.lines("mig -lcipp -gi 1"),
        [
            "GPU 0 GI 1 Profile ID 0 Placements: {0,1,2}:1",
            "GPU 0 GI 1 Profile ID 1 Placement : {0}:2",
            "GPU 0 GI 1 Profile ID 2 Placement : {0}:3",
        ]
    );
    // The same place of the guide: three of one slice, in one GPU instance.
    assert_eq!(
        smi.lines("mig -cci 0,0,0 -gi 1"),
        [0, 1, 2].map(|id| format!(
            "Successfully created compute instance ID {id} on GPU 0 GPU instance ID 1 using profile MIG 1c.3g.20gb (ID 0)"
        ))
    );
    // The table does not give the place of each: drivers of different age differ.
    let compute_instances = smi.table("mig -lci -gi 1");
    let places: Vec<String> = compute_instances
        .iter()
        .map(|row| row.rsplit(' ').next().unwrap().to_owned())
        .collect();
    same_rows(places, &["0:1", "1:1", "2:1"]);
    for (id, row) in compute_instances.iter().enumerate() {
        assert!(
            row.starts_with(&format!("0 1 MIG 1c.3g.20gb 0 {id} ")),
            "{compute_instances:?}"
        );
    }
    assert_eq!(
        smi.table("mig -lcip -gi 1"),
        [
            "0 1 MIG 1c.3g.20gb 0 0/3 14 2 0 0 3 0",
            "0 1 MIG 2c.3g.20gb 1 0/1 28 2 0 0 3 0",
            "0 1 MIG 3g.20gb 2* 0/1 42 2 0 0 3 0",
        ]
    );
    // The other half is as it was: in it one of one slice leaves room for one of
    // two (published output of an A100-80GB).
    assert!(smi.table("mig -lcip -gi 2")[0].contains(" 3/3 "));
    smi.ok("mig -cci 0,1 -gi 2");
    assert_eq!(smi.table("mig -lci -gi 2").len(), 2);
}

#[test]
fn compute_profiles_of_a_4g() {
    // Published output of an A100-40GB (floor-swept): 4g is GPU instance 2;
    // what is left in it after a compute instance of all four slices.
    let smi = smi_on!("--gpu A100-40GB --mig on --floor-swept");
    assert_eq!(created(&smi.ok("mig -cgi 5")), [2]);
    let free = || -> Vec<String> {
        smi.table("mig -lcip -gi 2")
            .iter()
            .map(|row| row.split(' ').nth(5).unwrap().to_owned())
            .collect()
    };
    assert_eq!(free(), ["4/4", "2/2", "1/1"]);
    smi.ok("mig -cci 3 -gi 2");
    assert_eq!(free(), ["0/4", "0/2", "0/1"]);
}

#[test]
fn compute_profiles_of_a_hopper_2g() {
    // Published output of an H100: a 2g has two compute profiles of one slice,
    // of the same name: 7 has more SMs, and there is one of it.
    let smi = smi_on!("--gpu H100-80GB --mig on");
    assert_eq!(created(&smi.ok("mig -cgi 9,14")), [2, 3]);
    let profiles: Vec<String> = smi
        .table("mig -lcip -gi 3")
        .iter()
        .map(|row| row.split(' ').skip(3).take(4).collect::<Vec<_>>().join(" "))
        .collect();
    same_rows(
        profiles,
        &[
            "1c.2g.20gb 0 2/2 16",
            "1c.2g.20gb 7 1/1 26",
            "2g.20gb 1* 1/1 32",
        ],
    );
}
