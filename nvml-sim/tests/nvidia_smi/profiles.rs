//! The profiles of each model, and where their instances can lie.

use super::{Smi, same_rows};

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
pub const A100_80GB_PROFILES: [&str; 7] = [
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
pub const A30_PROFILES: [&str; 5] = [
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
fn floor_swept_a100_keeps_profiles() {
    let smi = smi_on!("--gpu A100-40GB --mig on --floor-swept");
    profiles_are(&smi, &A100_40GB_PROFILES, &EIGHT_SLICES_PLACEMENTS);
}
