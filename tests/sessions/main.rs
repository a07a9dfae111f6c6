//! What operators type and read: sessions at a shell, whose format `testkit/src/session.rs` tells. Each case of a file is a test.

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use testkit::{prelude::fs, repository, session};

fn main() -> ExitCode {
    let folder = repository().join("tests/sessions");
    let mut trials = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|ending| ending != "txt") {
            continue;
        }
        for case in session::cases(&file) {
            let name = format!("{}::{case}", file.file_stem().unwrap().display());
            let file = file.clone();
            trials.push(Trial::test(name, move || Ok(session::holds(&file, &case)?)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
