//! Sessions at a shell: files of commands with what they print, each case on a simulated machine of its own. The format is
//! that of cram (bitheap.org/cram):
//!
//! ```text
//! # a_case                        begins a case; its words are for readers, as is all that is not indented
//!   $ migctl cordon 0             a command of bash, run in the machine's folder
//!   > …                           more of the same command
//!   GPU 0 (GPU-0) … (glob)        what it prints on both outputs, without blank lines; `*` stands for anything in a line that
//!                                 ends with (glob), and begins one that would look like a command
//!   [1]                           its exit status, if it is not 0
//! ```
//!
//! The words of `session.sh` are there beside our programs. What differs between two runs is told alike: `DIR` is the machine's
//! folder, `GPU-0` a GPU, `MIG-1` the first MIG device that the case shows and `ID-1` its first lease, `TIME` a time, and
//! `process PID` a process.

use crate::faults::World;
use crate::gate::make_fifo;
use crate::leftovers::remove_cgroup;
use crate::prelude::*;
use crate::process::{descendants, in_cgroup};
use crate::prometheus;
use crate::runtimes::cache;
use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Read;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Names the cases of a file.
pub fn cases(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("# "));
    names.map(str::to_owned).collect()
}

/// Runs a case of a file, and compares what it prints. With `UPDATE=1` it writes that into the file.
pub fn holds(file: &Path, case: &str) -> Result<(), String> {
    let (text, before) = read(file, case);
    let before: Vec<&str> = text[before].lines().collect();
    let now = run(&before);
    if before == now {
        return Ok(());
    }
    if std::env::var_os("UPDATE").is_some() {
        static WRITER: Mutex<()> = Mutex::new(());
        let _writer = WRITER.lock().unwrap();
        let (mut text, before) = read(file, case);
        text.replace_range(before, &(now.join("\n") + "\n"));
        fs::write(file, text).unwrap();
        return Ok(());
    }
    let mut both = before.iter().zip(&now);
    let begin = both.position(|(before, now)| before != now);
    let begin = begin.unwrap_or(before.len().min(now.len()));
    let part =
        |lines: &[&str]| lines[begin.saturating_sub(5)..lines.len().min(begin + 25)].join("\n");
    let now: Vec<&str> = now.iter().map(String::as_str).collect();
    Err(format!(
        "in {}:\n{}\nnow:\n{}\nhint: UPDATE=1 writes it anew",
        file.display(),
        part(&before),
        part(&now)
    ))
}

/// Returns the text of a file, and where the lines of a case are in it.
fn read(file: &Path, case: &str) -> (String, Range<usize>) {
    let text = fs::read_to_string(file).unwrap();
    let heading = format!("\n# {case}\n");
    let begin = text.find(&heading).expect("a case") + heading.len();
    let end = text[begin..]
        .find("\n# ")
        .map_or(text.len(), |end| begin + end + 1);
    (text, begin..end)
}

/// Returns the lines of a case with what its commands print now.
fn run(case: &[&str]) -> Vec<String> {
    let mut shell = Shell::new();
    let mut lines = case.iter().peekable();
    let mut now = Vec::new();
    while let Some(line) = lines.next() {
        now.push((*line).to_owned());
        let Some(command) = line.strip_prefix("  $ ") else {
            let is_text = !line.starts_with("  ");
            assert!(is_text, "an output without a command: {line:?}");
            continue;
        };
        let mut command = command.to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("  > ")) {
            now.push((*more).to_owned());
            command = command + "\n" + &more[4..];
        }
        let mut before = Vec::new();
        while let Some(line) =
            lines.next_if(|line| line.starts_with("  ") && !line.starts_with("  $ "))
        {
            before.push(*line);
        }
        let said = shell.answer(&command);
        let kept = said
            .into_iter()
            .enumerate()
            .map(|(n, line)| match before.get(n) {
                Some(pattern) if is_like(&line, pattern) => (*pattern).to_owned(),
                _ if ["  > ", "  $ "].iter().any(|sign| line.starts_with(sign)) => {
                    format!("  *{} (glob)", &line[2..])
                }
                _ => line,
            });
        now.extend(kept);
    }
    now
}

/// Whether a line is what a pattern with (glob) stands for.
fn is_like(line: &str, pattern: &str) -> bool {
    let Some(pattern) = pattern.strip_suffix(" (glob)") else {
        return false;
    };
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A shell on a machine, which tells the status of each command through a pipe.
struct Shell {
    world: World,
    bash: Killed,
    commands: std::process::ChildStdin,
    statuses: File,
    out: PathBuf,
    read: usize,
    /// The UUIDs and ids that the case has shown.
    shown: Vec<String>,
}

/// For one command. The scripts for real GPUs take ten seconds on an idle machine.
const LIMIT_MS: i32 = 240_000;

/// A case that fails leaves neither processes nor the cgroups of containers nor the file system of the word `disk`.
impl Drop for Shell {
    fn drop(&mut self) {
        let folder = self.world.path("");
        let name = folder.file_name().unwrap_or_default().display();
        let processes = descendants(self.bash.0.id() as i32).into_iter();
        // The init of a container is nobody's child.
        let inits = in_cgroup(&format!("/{name}-"));
        processes.chain(inits).for_each(kill);
        for bundle in fs::read_dir(folder.join("bundles")).into_iter().flatten() {
            let id = bundle.unwrap().file_name();
            remove_cgroup(&format!("{name}-{}", id.display()));
        }
        let _ = umount2(&self.world.state(), MntFlags::MNT_DETACH);
    }
}

/// Returns the arguments of a process, and in what it waits.
fn shown(pid: i32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let arguments = read("cmdline").replace('\0', " ");
    format!("{pid} {arguments}in {}", read("wchan"))
}

impl Shell {
    fn new() -> Shell {
        let world = World::small();
        let (out, statuses) = (world.path("out"), world.path("statuses"));
        make_fifo(&statuses);
        let file = File::create(&out).unwrap();
        let path = format!(
            "{}:{}:/usr/sbin:/usr/bin:/sbin:/bin",
            world.programs().display(),
            crate::programs().display()
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile"]).env_clear();
        bash.env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .env("RUNMIG_CONFIG", world.path("config.toml"))
            .env("STUB_RUNTIME_TEST_PID", std::process::id().to_string())
            .env("REPOSITORY", crate::repository())
            .current_dir(world.path(""));
        let promtool = cache().map(|cache| prometheus::program(&cache, "promtool"));
        bash.envs(
            promtool
                .filter(|tool| tool.exists())
                .map(|tool| ("PROMTOOL", tool)),
        );
        bash.stdin(Stdio::piped());
        bash.stdout(file.try_clone().unwrap()).stderr(file);
        let mut bash = Killed(bash.spawn().unwrap());
        let mut commands = bash.0.stdin.take().unwrap();
        let words = crate::repository().join("testkit/src/session.sh");
        writeln!(commands, "exec 9>statuses; . {}", words.display()).unwrap();
        let statuses = File::open(statuses).unwrap();
        Shell {
            world,
            bash,
            commands,
            statuses,
            out,
            read: 0,
            shown: Vec::new(),
        }
    }

    /// Returns the lines that a command prints, and its status if it fails, as a session shows them.
    fn answer(&mut self, command: &str) -> Vec<String> {
        // Those who go on behind it keep no end of the pipe.
        let all = format!("{{\n{command}\n}} 9>&- </dev/null\nprintf '%s\\n' $? >&9\n");
        self.commands.write_all(all.as_bytes()).unwrap();
        let status = self.status(command);
        let bytes = fs::read(&self.out).unwrap();
        let text = self.plain(&String::from_utf8_lossy(&bytes[self.read..]));
        self.read = bytes.len();
        let is_blank = |line: &&str| line.trim().is_empty();
        let printed = text.lines().filter(|line| !is_blank(line));
        let mut lines: Vec<String> = printed
            .map(|line| format!("  {}", line.trim_end()))
            .collect();
        if status != "0" {
            lines.push(format!("  [{status}]"));
        }
        lines
    }

    fn status(&mut self, command: &str) -> String {
        let mut status = String::new();
        loop {
            let mut ready = [PollFd::new(self.statuses.as_fd(), PollFlags::POLLIN)];
            let is_ready = poll(&mut ready, PollTimeout::try_from(LIMIT_MS).unwrap()).unwrap() > 0;
            let mut byte = [0];
            let has_ended = is_ready && self.statuses.read(&mut byte).unwrap() == 0;
            if !is_ready || has_ended {
                let said = fs::read_to_string(&self.out).unwrap();
                let over = self.bash.0.try_wait().unwrap();
                let running = descendants(self.bash.0.id() as i32);
                let running: Vec<String> = running.into_iter().map(shown).collect();
                panic!(
                    "{command}\nhas not ended ({over:?}), {running:?} run:\n{}",
                    &said[self.read..]
                );
            }
            match byte {
                [b'\n'] => return status,
                [byte] => status.push(char::from(byte)),
            }
        }
    }

    /// Returns a text with what differs between two runs told alike.
    fn plain(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (index, gpu) in self.world.engine().gpus.iter().enumerate() {
            text = text.replace(&gpu.uuid, &format!("GPU-{index}"));
        }
        for (path, name) in [(self.world.path(""), "DIR"), (self.world.programs(), "BIN")] {
            let path = path.to_string_lossy();
            text = text.replace(path.trim_end_matches('/'), name);
        }
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || "-:._".contains(c);
        let (mut plain, mut rest) = (String::new(), text.as_str());
        while let Some(begin) = rest.find(is_of_word) {
            let (before, word) = rest.split_at(begin);
            plain += before;
            let end = word.find(|c| !is_of_word(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            let trimmed = word.trim_end_matches([':', '.', '-']);
            plain += &self.told(trimmed, plain.ends_with("process "));
            plain += &word[trimmed.len()..];
            rest = after;
        }
        plain + rest
    }

    /// Returns how a session has this word.
    fn told(&mut self, word: &str, is_of_process: bool) -> String {
        let id = word.strip_prefix("MIG-").unwrap_or(word);
        let digits = id.bytes().filter(u8::is_ascii_digit).count();
        let is_id = { id.bytes() }.all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if id.len() >= 32 && is_id {
            let kind = if id.len() < word.len() { "MIG" } else { "ID" };
            let mut shown = self.shown.iter().filter(|one| one.starts_with(kind));
            let known = shown.position(|one| one[kind.len()..] == *id);
            let of_kind = |one: &&String| one.starts_with(kind);
            let number = known.unwrap_or_else(|| {
                self.shown.push(format!("{kind}{id}"));
                self.shown.iter().filter(of_kind).count() - 1
            });
            return format!("{kind}-{}", number + 1);
        }
        let is_time =
            word.starts_with("20") && word.ends_with('Z') && word.get(10..11) == Some("T");
        match word {
            _ if is_time => "TIME".to_owned(),
            _ if is_of_process && digits == word.len() => "PID".to_owned(),
            _ => word.to_owned(),
        }
    }
}
