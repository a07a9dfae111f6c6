//! The real `nvidia-smi` (535, from Debian) on simulated machines.
//!
//! The tests compare its output with NVIDIA's documents and with published output of real hardware;
//! each expected table names its source. They compare tables field by field: newer versions print
//! the same fields in wider columns.
//!
//! "User Guide" is NVIDIA's Multi-Instance GPU User Guide,
//! <https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::Sim;

/// A machine and the `nvidia-smi` that is run on it.
struct Smi {
    program: PathBuf,
    machine: Sim,
}

/// Returns the program that `scripts/fetch-nvidia-clients` puts beside the build. Without it a test says so and passes,
/// but not where everything is to be run: there it fails.
fn program() -> Option<PathBuf> {
    let dir = match std::env::var_os("RUNMIG_CLIENTS") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("nvidia-clients"),
    };
    let program = dir.join("bin/nvidia-smi");
    if program.exists() {
        return Some(program);
    }
    let missing = "nvidia-smi is not there; run scripts/fetch-nvidia-clients";
    let required = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(
        !required("CI") && !required("RUNMIG_REQUIRE_ALL"),
        "{missing} (looked for {})",
        program.display()
    );
    // Not through the harness, which keeps what a passing test prints.
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
    None
}

impl Smi {
    /// `nvidia-smi` on a new machine, if it is there.
    fn on(machine: &str) -> Option<Smi> {
        Some(Smi {
            program: program()?,
            machine: Sim::new(machine),
        })
    }

    fn run(&self, arguments: &str) -> Output {
        let library = self.machine.dir().join("lib");
        let mut command = Command::new(&self.program);
        command.env_clear().env("LC_ALL", "C").current_dir("/");
        command.env("LD_LIBRARY_PATH", library);
        command.args(arguments.split_whitespace());
        command.output().expect("nvidia-smi")
    }

    /// Returns its output after a success.
    fn ok(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        let is_well = said.status.success() && said.stderr.is_empty();
        assert!(is_well, "nvidia-smi {arguments}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
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
        let out = String::from_utf8_lossy(&said.stdout);
        assert_eq!(lines(&out), expected, "nvidia-smi {arguments}: {said:?}");
        assert_eq!(said.status.code(), Some(code), "nvidia-smi {arguments}");
    }
}

/// One space between words, whatever the columns' widths.
fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(squeeze);
    lines.filter(|line| !line.is_empty()).collect()
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

/// A table is the same whatever the order of its rows: which way `nvidia-smi`
/// sorts profiles is its own business.
#[track_caller]
fn same_rows<E: AsRef<str>>(mut got: Vec<String>, expected: &[E]) {
    let mut expected: Vec<String> = expected.iter().map(|row| row.as_ref().to_owned()).collect();
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
}

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

#[test]
fn lists_profiles_and_placements() {
    const SWEPT: &str = "A100-40GB --floor-swept";
    let rows: [(&str, &[&str], &[&str]); 5] = [
        ("A100-40GB", &A100_40GB_PROFILES, &EIGHT_SLICES_PLACEMENTS),
        (SWEPT, &A100_40GB_PROFILES, &EIGHT_SLICES_PLACEMENTS),
        ("A100-80GB", &A100_80GB_PROFILES, &EIGHT_SLICES_PLACEMENTS),
        ("H100-80GB", &H100_80GB_PROFILES, &EIGHT_SLICES_PLACEMENTS),
        ("A30-24GB", &A30_PROFILES, &A30_PLACEMENTS),
    ];
    for (model, profiles, placements) in rows {
        let Some(smi) = Smi::on(&format!("--gpu {model} --mig on")) else {
            return;
        };
        same_rows(smi.table("mig -lgip"), profiles);
        same_rows(smi.lines("mig -lgipp"), placements);
    }
}

#[test]
fn lists_compute_profiles_of_user_guide() {
    let Some(smi) = Smi::on("--gpu A100-40GB --mig on") else {
        return;
    };
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
    let place = |row: &String| row.rsplit(' ').next().unwrap().to_owned();
    let places = compute_instances.iter().map(place).collect();
    same_rows(places, &["0:1", "1:1", "2:1"]);
    for (id, row) in compute_instances.iter().enumerate() {
        let start = format!("0 1 MIG 1c.3g.20gb 0 {id} ");
        assert!(row.starts_with(&start), "{compute_instances:?}");
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
fn creates_two_slices_and_destroys_them() {
    let Some(smi) = Smi::on("--gpu A100-80GB --mig on") else {
        return;
    };
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
    assert!(list[0].contains("(UUID: GPU-"), "{list:?}");
    let starts = [
        "GPU 0: NVIDIA A100",
        "MIG 2g.20gb Device 0: (UUID: MIG-",
        "MIG 1g.10gb Device 1: (UUID: MIG-",
    ];
    for (line, start) in list.iter().zip(starts) {
        assert!(line.starts_with(start), "{list:?}");
    }

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
