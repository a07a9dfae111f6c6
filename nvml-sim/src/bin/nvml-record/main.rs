//! `nvml-record` asks a driver, real or simulated, and prints a line for each answer:
//! `QUESTION = ANSWER`, where the answer of a call begins with NVML's return code.
//!
//! It changes nothing and needs no privileges. No line has a serial number, a UUID or a value that
//! differs from machine to machine of one model, so that `tests/hardware.rs` can ask the simulated
//! driver the same and compare. Exit codes: 0, 2 called wrongly, 3 there is no GPU.

mod board;
mod files;
mod instances;
mod library;

use clap::Parser;
use library::Library;
use std::path::PathBuf;
use std::process::ExitCode;

/// Records what an NVIDIA driver answers, line by line
#[derive(Parser)]
struct Arguments {
    /// The library to ask
    #[arg(long, value_name = "FILE", default_value = "libnvidia-ml.so.1")]
    library: PathBuf,
    /// Folder of the driver's proc/ and dev/
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

fn main() -> ExitCode {
    nvml_sim::sys::end_with_reader();
    let arguments = Arguments::parse();
    match record(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("nvml-record: no NVIDIA GPU: {why}");
            ExitCode::from(3)
        }
    }
}

fn record(arguments: &Arguments) -> Result<(), String> {
    let library = Library::open(&arguments.library)?;
    let before = library.count();
    let failed = |code, call| Err(format!("the driver answers {code} to {call}"));
    match library.init() {
        0 => {}
        code => return failed(code, "nvmlInit_v2"),
    }
    let count = match library.count() {
        (0, 0) => return Err("the driver counts none".to_owned()),
        (0, count) => count,
        (code, _) => return failed(code, "nvmlDeviceGetCount_v2"),
    };
    println!("# {}", library.versions());
    row("before nvmlInit_v2: nvmlDeviceGetCount_v2()", before.0);
    row("nvmlDeviceGetCount_v2()", format!("0 {count}"));
    for index in 0..count {
        println!();
        let Some(gpu) = library.gpu(index) else {
            println!("# gpu {index} does not answer");
            continue;
        };
        board::record(&gpu);
        instances::record(&gpu);
    }
    println!();
    row("nvmlShutdown()", library.shutdown());
    row("nvmlShutdown() once more", library.shutdown());
    println!();
    files::record(&arguments.root, count);
    Ok(())
}

fn row(question: &str, answer: impl std::fmt::Display) {
    println!("{question} = {answer}");
}
