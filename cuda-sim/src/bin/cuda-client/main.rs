//! A CUDA program for tests, of the simulated driver and of a real one. It carries out the commands
//! of its arguments and prints a line for each; `-` takes commands from standard input.

mod cuda;

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;

use cuda::{Cuda, Failure};

const USAGE: &str = "usage: cuda-client COMMAND...

  info          total and free memory of GPU 0, in MiB
  alloc MIB     allocate memory
  fill MIB      allocate blocks of this size until one is refused
  managed MIB   allocate managed memory
  host MIB      take memory of the host, and keep it
  free          give all memory of the GPU back
  launch MS     run a kernel so long, and wait for it
  spin          start a kernel that never ends
  sync          wait for the kernels
  fault         run a kernel that accesses an illegal address
  hold          wait for the end of standard input
  -             read commands from standard input, a line each

$CUDA_CLIENT_LIBRARY names the library to load [default: libcuda.so.1]
";

/// The nanoseconds of a kernel that never ends.
const FOR_EVER: u64 = u64::MAX / 4;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() || args.iter().any(|arg| arg == "-h" || arg == "--help") {
        say(USAGE.trim_end());
        return ExitCode::SUCCESS;
    }
    let mut cuda = match Cuda::start() {
        Ok(cuda) => cuda,
        Err(failure) => {
            say(&failure.to_string());
            return ExitCode::FAILURE;
        }
    };
    let mut words = args.iter().map(String::as_str);
    let mut code = ExitCode::SUCCESS;
    while let Some(word) = words.next() {
        if word == "-" {
            // A line that cannot be read is the end.
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                let mut words = line.split_whitespace();
                let word = words.next().unwrap_or_default();
                let answer = run(&mut cuda, word, &mut words);
                say(&answer.unwrap_or_else(|failure| failure.to_string()));
            }
            continue;
        }
        let answer = run(&mut cuda, word, &mut words);
        if answer.is_err() {
            code = ExitCode::FAILURE;
        }
        say(&answer.unwrap_or_else(|failure| failure.to_string()));
    }
    code
}

/// Prints a line at once. A reader that is gone ends the program's use, so that is no error.
fn say(line: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn run<'a>(
    cuda: &mut Cuda,
    command: &str,
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<String, Failure> {
    let done = |result: Result<(), Failure>| result.map(|()| "ok".to_owned());
    let mut number = || {
        let word = words.next().unwrap_or_default();
        let parsed = word.parse::<u64>();
        parsed.map_err(|_| Failure::Usage(format!("cannot read {word:?} as a number")))
    };
    match command {
        "info" => {
            let (total, free) = cuda.memory()?;
            Ok(format!("total {} free {}", total >> 20, free >> 20))
        }
        "alloc" => done(cuda.allocate(number()? << 20)),
        "managed" => done(cuda.allocate_managed(number()? << 20)),
        "fill" => {
            let block = number()?.max(1);
            let mut filled = 0;
            loop {
                match cuda.allocate(block << 20) {
                    Ok(()) => filled += block,
                    Err(failure) if failure.is_out_of_memory() => break,
                    Err(failure) => return Err(failure),
                }
            }
            Ok(format!("filled {filled}"))
        }
        "host" => {
            // Written to, since untouched pages take no memory.
            let bytes = usize::try_from(number()? << 20).unwrap_or(usize::MAX);
            std::mem::forget(std::hint::black_box(vec![1_u8; bytes]));
            Ok("ok".to_owned())
        }
        "free" => done(cuda.free_all()),
        "launch" => {
            cuda.spin(number()?.saturating_mul(1_000_000))?;
            done(cuda.synchronize())
        }
        "spin" => done(cuda.spin(FOR_EVER)),
        "sync" => done(cuda.synchronize()),
        "fault" => {
            cuda.fault()?;
            done(cuda.synchronize())
        }
        "hold" => {
            let mut rest = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut rest);
            read.map_err(|e| Failure::Usage(format!("cannot read standard input: {e}")))?;
            Ok("ok".to_owned())
        }
        other => {
            let why = format!("cannot run {other:?}: no such command");
            Err(Failure::Usage(why))
        }
    }
}
