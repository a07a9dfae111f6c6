//! The driver, asked in a child: a library that hangs, or ends its caller, costs this process no more than an answer.
//!
//! The child is `migctl ask-driver`. It reads a question from standard input, a line of JSON each, and writes the
//! answer to standard output. Before each function of NVML it writes the name, so that the last one is known.

use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, dup2_stdout};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result as AnyResult};
use runmig_lease::gpu::{
    DetailedGpu, DriverError, Listener, MemoryLimits, Queries, Reason, Result, Session,
};
use runmig_lease::model::{GpuLoad, GpuUuid, ListedInstance, Nearness, Profile, Sign, Snapshot};
use runmig_lease::process::wait_until;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The longest wait for the driver, unless `--timeout` says another. Prometheus waits for 10 s.
pub const LIMIT: Duration = Duration::from_secs(8);
/// An answer about 16 GPUs takes some 100 KiB.
const MAX_ANSWER: usize = 64 << 20;
/// The wait for the end of a child after its kill.
const AFTER_KILL: Duration = Duration::from_millis(250);

static CHOSEN: OnceLock<Duration> = OnceLock::new();

/// Parses the longest wait for the driver.
pub fn parse_limit(text: &str) -> AnyResult<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => {
            Err("0 leaves the driver no time; write a time such as 8s".to_owned())
        }
        parsed => parsed.map_err(|e| e.to_string()),
    }
}

/// Sets the longest wait for the driver.
pub fn set_limit(limit: Duration) {
    let _ = CHOSEN.set(limit);
}

/// Returns the longest wait for the driver.
pub fn limit() -> Duration {
    CHOSEN.get().copied().unwrap_or(LIMIT)
}

/// Returns a session with the driver in a child, which the first question starts.
pub fn ask(config: &Config) -> Driver {
    ask_within(config, limit())
}

/// Returns the same, which waits for so long in all.
pub fn ask_within(config: &Config, limit: Duration) -> Driver {
    Driver {
        library: config.driver.library.clone(),
        root: config.driver.root.clone(),
        state_dir: config.state_dir.clone(),
        limit,
        asked: RefCell::new(None),
    }
}

/// A session with the driver in a child. It ends with this value.
pub struct Driver {
    library: PathBuf,
    root: PathBuf,
    state_dir: PathBuf,
    limit: Duration,
    /// The child, once there was a question; or why it did not answer. All questions have this answer from then on.
    asked: RefCell<Option<Result<Asked>>>,
}

struct Asked {
    child: Child,
    /// What has arrived after the last answer.
    read: Vec<u8>,
    /// The function that the child called last.
    call: String,
    limit: Duration,
    left: Duration,
}

/// A line of the child.
#[derive(Serialize, Deserialize)]
enum Line<T> {
    Calls(String),
    Answer(T),
}

impl Driver {
    /// Returns all GPUs in detail; see `Session::detailed_gpus`.
    pub fn detailed_gpus(&self) -> Result<Vec<DetailedGpu>> {
        self.question(&Question::detailed_gpus)
    }

    /// Returns the functions in use that the library lacks; see `Session::missing_functions`.
    pub fn missing_functions(&self) -> Result<Vec<String>> {
        self.question(&Question::missing_functions)
    }

    /// Returns why it does not answer any more, if it does not.
    pub fn silence(&self) -> Option<DriverError> {
        let asked = self.asked.borrow();
        asked.as_ref()?.as_ref().err().cloned()
    }

    fn question<T: DeserializeOwned>(&self, question: &Question) -> Result<T> {
        let mut asked = self.asked.borrow_mut();
        let start = || {
            let started = self.start();
            started.map_err(|e| silent(format!("cannot start migctl for it: {e}")))
        };
        let answer = match asked.get_or_insert_with(start) {
            Ok(asked) => asked.question(question),
            Err(e) => return Err(e.clone()),
        };
        answer.unwrap_or_else(|why| {
            let e = silent(why);
            *asked = Some(Err(e.clone()));
            Err(e)
        })
    }

    fn start(&self) -> io::Result<Asked> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("ask-driver");
        command.args([&self.library, &self.root, &self.state_dir]);
        // A library may send a signal to its group.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Asked {
            child: command.spawn()?,
            read: Vec::new(),
            call: "the start of migctl".to_owned(),
            limit: self.limit,
            left: self.limit,
        })
    }
}

fn silent(why: String) -> DriverError {
    DriverError::new("ask the NVIDIA driver".to_owned(), Reason::Silent(why))
}

impl Asked {
    /// Asks a question. The outer error says why the child gave no answer.
    fn question<T: DeserializeOwned>(
        &mut self,
        question: &Question,
    ) -> std::result::Result<Result<T>, String> {
        let end = Instant::now() + self.left;
        let mut line = serde_json::to_vec(question).map_err(|e| e.to_string())?;
        line.push(b'\n');
        let stdin = self.child.stdin.as_mut();
        // One that has ended says more at the end of its output.
        let _ = stdin.map(|stdin| stdin.write_all(&line));
        loop {
            while let Some(end_of_line) = self.read.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end_of_line).collect();
                let odd = |e| format!("the answer of {} is unreadable: {e}", self.call);
                match serde_json::from_slice(&line).map_err(odd)? {
                    Line::Calls(call) => self.call = call,
                    Line::Answer(answer) => {
                        self.left = end.saturating_duration_since(Instant::now());
                        return Ok(answer);
                    }
                }
            }
            self.more(end)?;
        }
    }

    /// Reads more of the child's output.
    fn more(&mut self, end: Instant) -> std::result::Result<(), String> {
        let Some(output) = self.child.stdout.as_mut() else {
            return Err("it has no output".to_owned());
        };
        if !is_ready(output.as_fd(), PollFlags::POLLIN, end) {
            self.left = Duration::ZERO;
            let limit = humantime::format_duration(self.limit);
            return Err(format!("{} did not answer within {limit}", self.call));
        }
        let mut part = vec![0; 1 << 16];
        let length = output.read(&mut part).map_err(|e| e.to_string())?;
        self.read.extend(&part[..length]);
        match length {
            0 => {
                let status = self.child.wait().map_err(|e| e.to_string())?;
                Err(format!(
                    "{} ended the process that called it ({status})",
                    self.call
                ))
            }
            _ if self.read.len() > MAX_ANSWER => Err("its answer is too long".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Waits until a descriptor is ready. Returns false at the end of the time.
pub fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Rounded up, so that the wait does not become a busy one.
        let left = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        match poll(&mut [PollFd::new(fd, flags)], PollTimeout::from(left)) {
            Ok(1..) => return true,
            _ if Instant::now() >= end => return false,
            _ => {}
        }
    }
}

/// Waits for the end of the session, which may keep an instance in use until then.
impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let ends_within = |child: &mut Child, time: Duration| {
            !matches!(wait_until(child, Instant::now() + time), Ok(None))
        };
        if !ends_within(&mut self.child, self.left) {
            let group = i32::try_from(self.child.id()).map(Pid::from_raw);
            let _ = group.map(|group| killpg(group, Signal::SIGKILL));
            // A call in the kernel may keep it for longer.
            ends_within(&mut self.child, AFTER_KILL);
        }
    }
}

/// Writes the questions about one GPU: as an enum, as the session's answers, and as the methods of `Driver`.
macro_rules! questions {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[derive(Serialize, Deserialize)]
        #[allow(non_camel_case_types)]
        enum Question {
            prepare,
            snapshot,
            detailed_gpus,
            missing_functions,
            $($name(GpuUuid, $($type),*),)*
        }

        fn answer(session: &Session<'_>, question: Question) {
            match question {
                Question::prepare => say(session.prepare()),
                Question::snapshot => say(session.snapshot()),
                Question::detailed_gpus => say(session.detailed_gpus()),
                Question::missing_functions => say(session.missing_functions()),
                $(Question::$name(gpu, $($arg),*) => say(session.$name(&gpu, $($arg),*)),)*
            }
        }

        impl Queries for Driver {
            fn prepare(&self) -> Result<()> {
                self.question(&Question::prepare)
            }

            fn snapshot(&self) -> Result<Snapshot> {
                self.question(&Question::snapshot)
            }

            $(fn $name(&self, gpu: &GpuUuid, $($arg: $type),*) -> Result<$out> {
                self.question(&Question::$name(gpu.clone(), $($arg),*))
            })*
        }
    };
}

questions! {
    offered_profiles() -> Vec<Profile>;
    free_instances(profile: u32) -> u32;
    instances_of(profile: u32) -> Vec<ListedInstance>;
    load() -> GpuLoad;
    outside_mps() -> Vec<u32>;
    signs(fabric: bool) -> Vec<Sign>;
    compute_capability() -> (u32, u32);
    nearness(other: GpuUuid) -> Nearness;
    memory_limits(cgroup: PathBuf) -> MemoryLimits;
    mig_uuid(gi: u32, ci: u32) -> String;
    is_filled_by(gi: u32, ci_profile: u32) -> bool;
    used_memory(mig: Option<(u32, u32)>) -> u64;
    processes(gi: u32, ci: u32) -> Vec<u32>;
}

#[derive(Args)]
pub struct Asking {
    library: PathBuf,
    root: PathBuf,
    state_dir: PathBuf,
}

/// The child's way to its parent.
static PARENT: OnceLock<File> = OnceLock::new();

fn tell(line: &Line<impl Serialize>) {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    // A parent that is gone needs no answer.
    let _ = PARENT.get().map(|mut parent| parent.write_all(&bytes));
}

/// Tells the parent each call before it begins.
struct Naming;

impl Listener for Naming {
    fn calls(&self, function: &'static str) {
        tell(&Line::<()>::Calls(function.to_owned()));
    }
}

fn say(answer: Result<impl Serialize>) {
    tell(&Line::Answer(answer));
}

/// Answers the questions of the parent until it closes their pipe.
pub fn answer_all(asking: &Asking) -> AnyResult<i32> {
    let what = || "answer questions about the driver";
    set_pdeathsig(Signal::SIGKILL).context(what)?;
    let parent = io::stdout().as_fd().try_clone_to_owned().context(what)?;
    let _ = PARENT.set(parent.into());
    // A library may print text of its own there.
    dup2_stdout(io::stderr()).context(what)?;
    let mut config = Config {
        state_dir: asking.state_dir.clone(),
        ..Config::default()
    };
    config.driver.library.clone_from(&asking.library);
    config.driver.root.clone_from(&asking.root);
    let session = runmig_lease::driver(&config).heard_by(&Naming);
    for line in io::stdin().lock().lines() {
        let question = serde_json::from_str(&line.context(what)?).context(what)?;
        answer(&session, question);
    }
    Ok(0)
}
