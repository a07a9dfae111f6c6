//! The real `nvidia-smi` (535, from Debian) on simulated machines.
//!
//! What it prints is held against what NVIDIA's documents show and against
//! output of real hardware that people have published; each expected table
//! names its source. Tables are compared field by field: newer versions print
//! the same fields in wider columns.
//!
//! "User Guide" is NVIDIA's Multi-Instance GPU User Guide,
//! <https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>.

mod clients;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use clients::{Holder, Machine, Said, squeeze};

/// A machine and the `nvidia-smi` that is run on it.
struct Smi {
    program: PathBuf,
    machine: Machine,
}

/// `nvidia-smi` on a new machine, or `return` where it is not there.
macro_rules! smi_on {
    ($what:expr) => {
        match clients::nvidia_smi() {
            Some(program) => Smi {
                program,
                machine: Machine::new($what),
            },
            None => return,
        }
    };
}

impl Smi {
    fn run(&self, arguments: &str) -> Said {
        let mut command = self.machine.command(&self.program);
        command.args(arguments.split_whitespace());
        Said::from(command.output().expect("nvidia-smi"))
    }

    /// What it printed on success.
    fn ok(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "nvidia-smi {arguments}: {said:?}");
        assert_eq!(said.err, "", "nvidia-smi {arguments}");
        said.out
    }

    /// The rows of the table that it printed.
    fn table(&self, arguments: &str) -> Vec<String> {
        rows(&self.ok(arguments))
    }

    /// The lines that it printed, squeezed.
    fn lines(&self, arguments: &str) -> Vec<String> {
        lines(&self.ok(arguments))
    }

    /// It must fail with this code and print just these lines.
    #[track_caller]
    fn fails(&self, arguments: &str, code: i32, expected: &[&str]) {
        let said = self.run(arguments);
        assert_eq!(
            lines(&said.out),
            expected,
            "nvidia-smi {arguments}: {said:?}"
        );
        assert_eq!(said.code, code, "nvidia-smi {arguments}: {said:?}");
    }

    /// Free and total of each profile id, in the order of `-lgip`.
    fn free(&self) -> Vec<(u32, String)> {
        self.table("mig -lgip")
            .iter()
            .map(|row| {
                let fields: Vec<_> = row.split(' ').collect();
                (fields[3].parse().expect(row), fields[4].to_owned())
            })
            .collect()
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines()
        .map(squeeze)
        .filter(|line| !line.is_empty())
        .collect()
}

/// The rows below a table's head: the fields between two rules are one row,
/// since a row can take two lines.
fn rows(text: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut in_body = false;
    let mut row = String::new();
    for line in text.lines() {
        if line.starts_with("|===") {
            in_body = true;
        } else if line.starts_with('+') {
            if !row.is_empty() {
                rows.push(squeeze(&row));
                row.clear();
            }
        } else if in_body {
            row.push_str(&line.replace('|', " "));
        }
    }
    assert!(in_body, "no table in {text:?}");
    rows
}

/// `(id, profile)` of each "Successfully created GPU instance" in order.
fn created(out: &str) -> Vec<u32> {
    out.lines()
        .filter_map(|line| {
            squeeze(line)
                .strip_prefix("Successfully created GPU instance ID ")
                .map(str::to_owned)
        })
        .map(|rest| rest.split(' ').next().unwrap().parse().expect("an id"))
        .collect()
}

// ---------------------------------------------------------------- profiles

/// Fields: GPU, "MIG", name, id, free/total, GiB, P2P, SM, DEC, ENC, CE, JPEG, OFA.
/// User Guide, "List GPU Instance Profiles" (A100-SXM4-40GB).
const A100_40GB_PROFILES: [&str; 7] = [
    "0 MIG 1g.5gb 19 7/7 4.75 No 14 0 0 1 0 0",
    "0 MIG 1g.5gb+me 20 1/1 4.75 No 14 1 0 1 1 1",
    "0 MIG 1g.10gb 15 4/4 9.62 No 14 1 0 1 0 0",
    "0 MIG 2g.10gb 14 3/3 9.62 No 28 1 0 2 0 0",
    "0 MIG 3g.20gb 9 2/2 19.50 No 42 2 0 3 0 0",
    "0 MIG 4g.20gb 5 1/1 19.50 No 56 2 0 4 0 0",
    "0 MIG 7g.40gb 0 1/1 39.25 No 98 5 0 7 1 1",
];

/// Published output of an A100-80GB with driver 535 and later; names, ids and
/// engines as in the User Guide's "Supported MIG Profiles".
const A100_80GB_PROFILES: [&str; 7] = [
    "0 MIG 1g.10gb 19 7/7 9.50 No 14 0 0 1 0 0",
    "0 MIG 1g.10gb+me 20 1/1 9.50 No 14 1 0 1 1 1",
    "0 MIG 1g.20gb 15 4/4 19.50 No 14 1 0 1 0 0",
    "0 MIG 2g.20gb 14 3/3 19.50 No 28 1 0 2 0 0",
    "0 MIG 3g.40gb 9 2/2 39.25 No 42 2 0 3 0 0",
    "0 MIG 4g.40gb 5 1/1 39.25 No 56 2 0 4 0 0",
    "0 MIG 7g.80gb 0 1/1 78.75 No 98 5 0 7 1 1",
];

/// Published output of an H100 80GB HBM3
/// (<https://jbarrow.ai/field_notes/nvidia-mig/>); names, ids and engines as in
/// the User Guide's "Supported MIG Profiles".
const H100_80GB_PROFILES: [&str; 7] = [
    "0 MIG 1g.10gb 19 7/7 9.75 No 16 1 0 1 1 0",
    "0 MIG 1g.10gb+me 20 1/1 9.75 No 16 1 0 1 1 1",
    "0 MIG 1g.20gb 15 4/4 19.62 No 26 1 0 1 1 0",
    "0 MIG 2g.20gb 14 3/3 19.62 No 32 2 0 2 2 0",
    "0 MIG 3g.40gb 9 2/2 39.50 No 60 3 0 3 3 0",
    "0 MIG 4g.40gb 5 1/1 39.50 No 64 4 0 4 4 0",
    "0 MIG 7g.80gb 0 1/1 79.25 No 132 7 0 8 7 1",
];

/// Published output of an A30 with driver 525 and later; names and ids as in
/// the User Guide's "Supported MIG Profiles".
const A30_PROFILES: [&str; 5] = [
    "0 MIG 1g.6gb 14 4/4 5.81 No 14 1 0 1 0 0",
    "0 MIG 1g.6gb+me 21 1/1 5.81 No 14 1 0 1 1 1",
    "0 MIG 2g.12gb 5 2/2 11.69 No 28 2 0 2 0 0",
    "0 MIG 2g.12gb+me 6 1/1 11.69 No 28 2 0 2 1 1",
    "0 MIG 4g.24gb 0 1/1 23.44 No 56 4 0 4 1 1",
];

/// User Guide, "nvidia-smi mig -lgipp" (A100); published output of an H100 80GB
/// is the same.
const EIGHT_SLICES_PLACEMENTS: [&str; 7] = [
    "GPU 0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1",
    "GPU 0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1",
    "GPU 0 Profile ID 15 Placements: {0,2,4,6}:2",
    "GPU 0 Profile ID 14 Placements: {0,2,4}:2",
    "GPU 0 Profile ID 9 Placements: {0,4}:4",
    "GPU 0 Profile ID 5 Placement : {0}:4",
    "GPU 0 Profile ID 0 Placement : {0}:8",
];

/// Published output of an A30; that of id 6 from NVIDIA's go-nvml.
const A30_PLACEMENTS: [&str; 5] = [
    "GPU 0 Profile ID 14 Placements: {0,1,2,3}:1",
    "GPU 0 Profile ID 21 Placements: {0,1,2,3}:1",
    "GPU 0 Profile ID 5 Placements: {0,2}:2",
    "GPU 0 Profile ID 6 Placements: {0,2}:2",
    "GPU 0 Profile ID 0 Placement : {0}:4",
];

/// A table is the same whatever the order of its rows: which way `nvidia-smi`
/// sorts profiles is its own business.
#[track_caller]
fn same_rows<E: AsRef<str>>(mut got: Vec<String>, expected: &[E]) {
    let mut expected: Vec<String> = expected.iter().map(|row| row.as_ref().to_owned()).collect();
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
}

#[track_caller]
fn profiles_are(smi: &Smi, profiles: &[&str], placements: &[&str]) {
    same_rows(smi.table("mig -lgip"), profiles);
    same_rows(smi.lines("mig -lgipp"), placements);
}

#[test]
fn profiles_of_an_a100_40gb() {
    let smi = smi_on!("--gpu A100-40GB --mig on");
    profiles_are(&smi, &A100_40GB_PROFILES, &EIGHT_SLICES_PLACEMENTS);
}

#[test]
fn profiles_of_an_a100_80gb() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    profiles_are(&smi, &A100_80GB_PROFILES, &EIGHT_SLICES_PLACEMENTS);
}

#[test]
fn profiles_of_an_h100() {
    let smi = smi_on!("--gpu H100-80GB --mig on");
    profiles_are(&smi, &H100_80GB_PROFILES, &EIGHT_SLICES_PLACEMENTS);
}

#[test]
fn profiles_of_an_a30() {
    let smi = smi_on!("--gpu A30-24GB --mig on");
    profiles_are(&smi, &A30_PROFILES, &A30_PLACEMENTS);
}

#[test]
fn a_floor_swept_a100_has_the_same_profiles() {
    let smi = smi_on!("--gpu A100-40GB --mig on --floor-swept");
    profiles_are(&smi, &A100_40GB_PROFILES, &EIGHT_SLICES_PLACEMENTS);
}

// ------------------------------------------------------- compute profiles

#[test]
fn compute_profiles_of_the_user_guides_example() {
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
    // Where each lies is not said: drivers of different age differ.
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

// ------------------------------------------------------- the life of instances

#[test]
fn from_nothing_to_two_slices_and_back() {
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

    // What is made again at the same place is the same MIG device.
    smi.ok("mig -cgi 14:4,19:6 -C");
    assert_eq!(smi.lines("-L"), list);
}

#[test]
fn a_life_on_the_other_models() {
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
fn two_gpus_are_two() {
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

// ------------------------------------------------------------------ sequences

/// What hardware gave when nobody named a place: profiles asked for in one
/// `-cgi`, GPU instance ids and places given. With fewer ids than profiles, the
/// next one found no room.
struct Sequence {
    source: &'static str,
    machine: &'static str,
    create: &'static str,
    given: &'static [(u32, &'static str)],
}

const SEQUENCES: [Sequence; 14] = [
    Sequence {
        source: "User Guide, Creating GPU Instances, mixed geometry",
        machine: "--gpu A100-40GB --mig on",
        create: "19,14,5",
        given: &[(13, "6:1"), (5, "4:2"), (1, "0:4")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu A100-40GB --mig on",
        create: "19,19,14,9",
        given: &[(13, "6:1"), (11, "4:1"), (3, "0:2")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu A100-40GB --mig on",
        create: "9,19,14,19",
        given: &[(2, "4:4"), (7, "0:1"), (4, "2:2"), (8, "1:1")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu A100-40GB --mig on",
        create: "9,9,19",
        given: &[(2, "4:4"), (1, "0:4")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu A100-40GB --mig on",
        create: "19,19,19,19,19,19,19",
        given: &[
            (13, "6:1"),
            (11, "4:1"),
            (12, "5:1"),
            (7, "0:1"),
            (8, "1:1"),
            (9, "2:1"),
            (10, "3:1"),
        ],
    },
    Sequence {
        source: "published output, floor-swept",
        machine: "--gpu A100-40GB --mig on --floor-swept",
        create: "19,19,19,19,19,19,19",
        given: &[
            (9, "6:1"),
            (7, "4:1"),
            (8, "5:1"),
            (11, "0:1"),
            (12, "1:1"),
            (13, "2:1"),
            (14, "3:1"),
        ],
    },
    Sequence {
        source: "published output, floor-swept",
        machine: "--gpu A100-40GB --mig on --floor-swept",
        create: "5,14,19,19",
        given: &[(2, "0:4"), (3, "4:2"), (9, "6:1")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu A100-80GB --mig on",
        create: "9,14,19,19",
        given: &[(2, "4:4"), (3, "0:2"), (9, "2:1"), (10, "3:1")],
    },
    Sequence {
        source: "published output, floor-swept",
        machine: "--gpu A100-80GB --mig on --floor-swept",
        create: "9,14,19,19",
        given: &[(1, "4:4"), (5, "0:2"), (13, "2:1"), (14, "3:1")],
    },
    Sequence {
        source: "published output of an Azure NC A100 v4",
        machine: "--gpu A100-80GB --mig on",
        create: "14,14,14,20",
        given: &[(5, "4:2"), (3, "0:2"), (4, "2:2"), (13, "6:1")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu H100-80GB --mig on",
        create: "9,14,14",
        given: &[(2, "4:4"), (3, "0:2"), (4, "2:2")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu GH200-96GB --mig on",
        create: "20,20",
        given: &[(13, "6:1")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu A30-24GB --mig on",
        create: "14",
        given: &[(3, "0:1")],
    },
    Sequence {
        source: "published output",
        machine: "--gpu RTX-PRO-6000-96GB --mig on",
        create: "14,14,14,14",
        given: &[(3, "0:3"), (4, "3:3"), (5, "6:3"), (6, "9:3")],
    },
];

#[test]
fn sequences_that_hardware_gave() {
    for Sequence {
        source,
        machine,
        create,
        given,
    } in SEQUENCES
    {
        let case = format!("{machine}: {create} ({source})");
        let smi = smi_on!(machine);
        let said = smi.run(&format!("mig -cgi {create}"));
        let ids: Vec<u32> = given.iter().map(|(id, _)| *id).collect();
        assert_eq!(created(&said.out), ids, "{case}: {said:?}");
        if given.len() < create.split(',').count() {
            assert_eq!(said.code, 23, "{case}: {said:?}");
            let profile = create.split(',').nth(given.len()).unwrap();
            let last: Vec<_> = lines(&said.out).into_iter().skip(given.len()).collect();
            assert_eq!(
                last,
                [
                    format!(
                        "Unable to create a GPU instance on GPU 0 using profile {profile}: Insufficient Resources"
                    ),
                    "Failed to create GPU instances: Insufficient Resources".to_owned(),
                ],
                "{case}"
            );
        } else {
            assert_eq!(said.code, 0, "{case}: {said:?}");
        }
        let mut listed: Vec<String> = smi
            .table("mig -lgi")
            .iter()
            .map(|row| row.split(' ').skip(4).collect::<Vec<_>>().join(" "))
            .collect();
        let mut expected: Vec<String> = given
            .iter()
            .map(|(id, place)| format!("{id} {place}"))
            .collect();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected, "{case}");
    }
}

#[test]
fn what_is_left_beside_each_instance() {
    // Published output of a floor-swept A100-40GB: `-lgip` after each create.
    let smi = smi_on!("--gpu A100-40GB --mig on --floor-swept");
    let free = || -> Vec<(u32, u32)> {
        smi.free()
            .iter()
            .map(|(id, of)| (*id, of.split('/').next().unwrap().parse().unwrap()))
            .collect()
    };
    let same = |expected: [u32; 7]| {
        let mut got = free();
        let mut expected: Vec<_> = [19, 20, 15, 14, 9, 5, 0]
            .into_iter()
            .zip(expected)
            .collect();
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected);
    };
    smi.ok("mig -cgi 5");
    same([3, 1, 2, 1, 1, 0, 0]);
    smi.ok("mig -cgi 14");
    same([1, 1, 1, 0, 0, 0, 0]);
    smi.ok("mig -cgi 19");
    same([0; 7]);
}

// ------------------------------------------------------------------- refusals

#[test]
fn no_room_is_said_in_the_drivers_words() {
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
fn a_plain_user_looks_and_does_not_touch() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19 -C");
    // The build may lie where other users cannot go.
    let program = smi.machine.dir().with_file_name("nvidia-smi");
    fs::copy(&smi.program, &program).unwrap();
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

// ------------------------------------------------------------------- MIG mode

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

// --------------------------------------------------------------- the overview

/// The columns of a line of a table, squeezed.
fn columns(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(squeeze).collect()
}

#[test]
fn the_overview_shows_mig_devices() {
    let smi = smi_on!("--gpu A100-80GB --count 2 --mig on");
    smi.ok("mig -cgi 19,14 -C -i 0");
    let out = smi.ok("");
    let (gpus, devices) = out.split_once("MIG devices:").expect(&out);
    assert_eq!(gpus.matches("NVIDIA A100").count(), 2, "{out}");
    assert_eq!(gpus.matches("Enabled").count(), 2, "{out}");
    assert_eq!(gpus.matches("/ 81920MiB").count(), 2, "{out}");
    // User Guide, "Creating GPU Instances". Columns: GPU, GI, CI and MIG device;
    // memory; SM and ECC errors; CE, ENC, DEC, OFA and JPG.
    let devices: Vec<Vec<String>> = devices
        .lines()
        .filter(|line| line.contains("MiB /"))
        .map(columns)
        .collect();
    let shown: Vec<(&str, &str, &str, &str)> = devices
        .iter()
        .step_by(2) // below each is its BAR1 memory
        .map(|columns| {
            let total = columns[1].rsplit(' ').next().unwrap();
            let sm = columns[2].split(' ').next().unwrap();
            (columns[0].as_str(), total, sm, columns[3].as_str())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("0 5 0 0", "19968MiB", "28", "2 0 1 0 0"),
            ("0 13 0 1", "9728MiB", "14", "1 0 0 0 0")
        ],
        "{out}"
    );
    assert!(out.contains("No running processes found"), "{out}");

    smi.ok("mig -dci");
    let out = smi.ok("");
    assert!(out.contains("No MIG devices found"), "{out}");
}

/// The values of a field in `nvidia-smi -q`, in order.
fn values<'a>(out: &'a str, field: &str) -> Vec<&'a str> {
    out.lines()
        .filter_map(|line| line.split_once(" : "))
        .filter(|(name, _)| name.trim() == field)
        .map(|(_, value)| value.trim())
        .collect()
}

#[test]
fn the_long_form_shows_mig_devices() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19,14 -C");
    let out = smi.ok("-q");
    let (_, mode) = out.split_once("MIG Mode").expect(&out);
    assert_eq!(
        (values(mode, "Current")[0], values(mode, "Pending")[0]),
        ("Enabled", "Enabled")
    );
    assert!(
        values(&out, "Product Name")[0].starts_with("NVIDIA A100"),
        "{out}"
    );
    assert_eq!(values(&out, "GPU Instance ID"), ["5", "13"]);
    assert_eq!(values(&out, "Compute Instance ID"), ["0", "0"]);
    assert_eq!(values(&out, "Multiprocessor count"), ["28", "14"]);
    let (_, devices) = out.split_once("    MIG Device\n").expect(&out);
    let totals: Vec<_> = values(devices, "Total")
        .into_iter()
        .filter(|v| v.ends_with("MiB"))
        .collect();
    assert_eq!((totals[0], totals[2]), ("19968 MiB", "9728 MiB"), "{out}");
    // The same GPU as -L shows.
    let list = smi.ok("-L");
    assert!(list.contains(values(&out, "GPU UUID")[0]), "{list}");
}

#[test]
fn a_query_finds_the_gpus() {
    let smi = smi_on!("--gpu A100-80GB --count 2 --mig on");
    let out = smi.lines("--query-gpu=index,mig.mode.current,memory.total --format=csv,noheader");
    assert_eq!(out, ["0, Enabled, 81920 MiB", "1, Enabled, 81920 MiB"]);
}

// ------------------------------------------------------------------ all models

/// Names and ids of the User Guide's "Supported MIG Profiles", those that this
/// nvidia-smi knows of (it asks for the first ten of nvml.h's list).
const MODELS: [(&str, &str); 10] = [
    (
        "A100-40GB",
        "1g.5gb 19, 1g.5gb+me 20, 1g.10gb 15, 2g.10gb 14, 3g.20gb 9, 4g.20gb 5, 7g.40gb 0",
    ),
    (
        "A100-80GB",
        "1g.10gb 19, 1g.10gb+me 20, 1g.20gb 15, 2g.20gb 14, 3g.40gb 9, 4g.40gb 5, 7g.80gb 0",
    ),
    (
        "A30-24GB",
        "1g.6gb 14, 1g.6gb+me 21, 2g.12gb 5, 2g.12gb+me 6, 4g.24gb 0",
    ),
    (
        "H100-80GB",
        "1g.10gb 19, 1g.10gb+me 20, 1g.20gb 15, 2g.20gb 14, 3g.40gb 9, 4g.40gb 5, 7g.80gb 0",
    ),
    (
        "H100-NVL-94GB",
        "1g.12gb 19, 1g.12gb+me 20, 1g.24gb 15, 2g.24gb 14, 3g.47gb 9, 4g.47gb 5, 7g.94gb 0",
    ),
    (
        "GH200-96GB",
        "1g.12gb 19, 1g.12gb+me 20, 1g.24gb 15, 2g.24gb 14, 3g.48gb 9, 4g.48gb 5, 7g.96gb 0",
    ),
    (
        "H200-141GB",
        "1g.18gb 19, 1g.18gb+me 20, 1g.35gb 15, 2g.35gb 14, 3g.71gb 9, 4g.71gb 5, 7g.141gb 0",
    ),
    (
        "B200-180GB",
        "1g.23gb 19, 1g.23gb+me 20, 1g.45gb 15, 2g.45gb 14, 3g.90gb 9, 4g.90gb 5, 7g.180gb 0",
    ),
    (
        "GB200-186GB",
        "1g.23gb 19, 1g.23gb+me 20, 1g.47gb 15, 2g.47gb 14, 3g.93gb 9, 4g.93gb 5, 7g.186gb 0",
    ),
    (
        "RTX-PRO-6000-96GB",
        "1g.24gb 14, 1g.24gb+me 21, 2g.48gb 5, 4g.96gb 0",
    ),
];

#[test]
fn every_profile_of_every_model_has_a_life() {
    for (model, profiles) in MODELS {
        let smi = smi_on!(&format!("--gpu {model} --mig on"));
        let expected: Vec<&str> = profiles.split(", ").collect();
        let rows = smi.table("mig -lgip");
        let listed: Vec<String> = rows
            .iter()
            .map(|row| row.split(' ').skip(2).take(2).collect::<Vec<_>>().join(" "))
            .collect();
        same_rows(listed, &expected);
        for profile in expected {
            let (name, id) = profile.split_once(' ').unwrap();
            let said = smi.lines(&format!("mig -cgi {id} -C"));
            assert_eq!(said.len(), 2, "{model} {name}: {said:?}");
            assert!(
                said[0].ends_with(&format!("using profile MIG {name} (ID {id})")),
                "{model}: {said:?}"
            );
            let list = smi.lines("-L");
            assert_eq!(list.len(), 2, "{model} {name}: {list:?}");
            smi.ok("mig -dci");
            smi.ok("mig -dgi");
        }
        assert_eq!(smi.table("mig -lgip"), rows, "{model}");
    }
}

// ------------------------------------------------------- others, and accidents

#[test]
fn an_instance_that_somebody_holds_stays() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19 -C");
    let holder = Holder::of(&smi.machine, "--gpu 0 --gi 13 --ci 0");
    smi.fails(
        "mig -dci",
        19,
        &[
            "Unable to destroy compute instance ID 0 from GPU 0 GPU instance ID 13: In use by another client",
            "Failed to destroy compute instances: In use by another client",
        ],
    );
    drop(holder);
    smi.ok("mig -dci");
    smi.ok("mig -dgi");
}

#[test]
fn a_gpu_that_somebody_holds_is_not_cut_up() {
    // Published output of a GH200 with a profiler on it.
    let smi = smi_on!("--gpu GH200-96GB --mig on");
    let holder = Holder::of(&smi.machine, "--gpu 0");
    smi.fails(
        "mig -cgi 19",
        19,
        &[
            "Unable to create a GPU instance on GPU 0 using profile 19: In use by another client",
            "Failed to create GPU instances: In use by another client",
        ],
    );
    drop(holder);
    smi.ok("mig -cgi 19");
}

#[test]
fn a_destroy_can_be_half_done() {
    // Reported of real hardware: the compute instance goes, then its GPU
    // instance is in use for a while.
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19 -C");
    smi.machine.sim(
        "fault",
        "--call nvmlGpuInstanceDestroy --nth 1 --returns IN_USE",
    );
    smi.ok("mig -dci");
    assert_eq!(smi.run("mig -dgi").code, 19);
    assert_eq!(smi.lines("-L").len(), 1);
    assert_eq!(smi.table("mig -lgi"), ["0 MIG 1g.10gb 19 13 6:1"]);
    smi.ok("mig -dgi");
}

#[test]
fn a_create_can_be_half_done() {
    // What a failing -C leaves behind is a GPU instance that no -L shows.
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.machine.sim(
        "fault",
        "--call nvmlGpuInstanceCreateComputeInstance --nth 1 --returns INSUFFICIENT_RESOURCES",
    );
    assert_eq!(smi.run("mig -cgi 19 -C").code, 23);
    assert_eq!(smi.lines("-L").len(), 1);
    assert_eq!(smi.table("mig -lgi"), ["0 MIG 1g.10gb 19 13 6:1"]);
}

#[test]
fn a_mode_change_can_be_refused_beside_success() {
    // Published output: the call succeeds, the status says that it did not.
    let smi = smi_on!("--gpu H100-80GB --mig off");
    smi.machine.sim(
        "fault",
        "--call nvmlDeviceSetMigMode --nth 1 --status IN_USE",
    );
    let out = smi.run("-mig 1").out;
    let first = lines(&out).into_iter().next().unwrap_or_default();
    assert!(
        first.starts_with("Warning: MIG mode is in pending enable state for GPU 00000000:")
            && first.ends_with(":In use by another client"),
        "{out}"
    );
    smi.fails("mig -lgip", 6, &["No MIG-enabled devices found."]);
}

#[test]
fn a_client_can_die_inside_a_call() {
    for (moment, there) in [("before", false), ("during", true), ("after", true)] {
        let smi = smi_on!("--gpu A100-80GB --mig on");
        smi.machine.sim(
            "fault",
            &format!("--call nvmlDeviceCreateGpuInstance --nth 1 --kill {moment}"),
        );
        assert_eq!(smi.run("mig -cgi 19").code, -1, "killed {moment}");
        let listed = smi.run("mig -lgi");
        assert_eq!(listed.code == 0, there, "killed {moment}: {listed:?}");
        if there {
            smi.ok("mig -cci -gi 13");
            assert_eq!(smi.lines("-L").len(), 2, "killed {moment}");
            smi.ok("mig -dci");
            smi.ok("mig -dgi");
        }
        same_rows(smi.table("mig -lgip"), &A100_80GB_PROFILES);
    }
}

#[test]
fn ten_at_once_get_seven() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    let racers: Vec<Child> = (0..10)
        .map(|_| {
            let mut command = smi.machine.command(&smi.program);
            command
                .args(["mig", "-cgi", "19"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().expect("nvidia-smi")
        })
        .collect();
    let ends: Vec<Said> = racers
        .into_iter()
        .map(|racer| Said::from(racer.wait_with_output().unwrap()))
        .collect();
    let mut ids: Vec<u32> = ends.iter().flat_map(|said| created(&said.out)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13], "{ends:?}");
    assert_eq!(
        ends.iter().filter(|said| said.code == 23).count(),
        3,
        "{ends:?}"
    );
    assert_eq!(smi.table("mig -lgi").len(), 7);
}
