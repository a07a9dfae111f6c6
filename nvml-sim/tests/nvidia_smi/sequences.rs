//! The sequences that hardware gave without a requested place, in order.

use super::{created, lines};

/// A sequence that hardware gave without a requested place: the profiles of one `-cgi`, and the GPU
/// instance ids and places given. With fewer ids than profiles, the next one found no room.
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
        source: "published: a second one is refused; where the first lies is as on an A100",
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
fn shows_capacity_beside_each_instance() {
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
