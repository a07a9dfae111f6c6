//! The real `nvidia-smi` (535, from Debian) on simulated machines.
//!
//! The tests compare its output with NVIDIA's documents and with published output of real hardware;
//! each expected table names its source. They compare tables field by field: newer versions print
//! the same fields in wider columns.
//!
//! "User Guide" is NVIDIA's Multi-Instance GPU User Guide,
//! <https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>.

#[path = "../clients/mod.rs"]
mod clients;

use std::path::PathBuf;

use clients::{Machine, Said, squeeze};

/// A machine and the `nvidia-smi` that is run on it.
struct Smi {
    program: PathBuf,
    machine: Machine,
}

/// `nvidia-smi` on a new machine, or `return` where it is not there.
macro_rules! smi_on {
    ($what:expr) => {
        match $crate::clients::nvidia_smi() {
            Some(program) => $crate::Smi {
                program,
                machine: $crate::clients::Machine::new($what),
            },
            None => return,
        }
    };
}

mod accidents;
mod compute_profiles;
mod life;
mod mig_mode;
mod models;
mod overview;
mod profiles;
mod refusals;
mod sequences;

impl Smi {
    fn run(&self, arguments: &str) -> Said {
        let mut command = self.machine.command(&self.program);
        command.args(arguments.split_whitespace());
        Said::from(command.output().expect("nvidia-smi"))
    }

    /// Returns its output after a success.
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

/// A table is the same whatever the order of its rows: which way `nvidia-smi`
/// sorts profiles is its own business.
#[track_caller]
fn same_rows<E: AsRef<str>>(mut got: Vec<String>, expected: &[E]) {
    let mut expected: Vec<String> = expected.iter().map(|row| row.as_ref().to_owned()).collect();
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
}
