//! Processes with an end: what they say goes to files, since a container that outlives its `create`
//! keeps the pipe, and none may run for ever.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// How a process ended, and what it said.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    command: String,
    /// The output that a container writes later, while it goes on.
    out: File,
}

impl Said {
    #[track_caller]
    pub fn ok(self) -> Said {
        self.exits(0)
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Said {
        assert!(
            self.status.code() == Some(code),
            "{}\nended with {}, not {code}\n-- stdout\n{}\n-- stderr\n{}",
            self.command,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// The one line on standard error of a call that failed.
    #[track_caller]
    pub fn refused(self) -> String {
        let said = self.exits(1);
        let lines: Vec<&str> = said.stderr.lines().collect();
        let shown = &said.command;
        assert!(lines.len() == 1, "{shown}\nsaid not one line: {lines:?}");
        assert!(said.stdout.is_empty(), "standard output: {}", said.stdout);
        lines[0].to_owned()
    }

    /// The same, with these words in the line.
    #[track_caller]
    pub fn refused_for(self, words: &str) {
        crate::has(&self.refused(), words);
    }

    /// Standard output has these words.
    #[track_caller]
    pub fn says(&self, words: &str) -> &Said {
        crate::has(&self.stdout, words);
        self
    }

    /// Standard error has these words.
    #[track_caller]
    pub fn warns(&self, words: &str) -> &Said {
        crate::has(&self.stderr, words);
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| {
            panic!("{}\nsaid no JSON: {e}\n{}", self.command, self.stdout);
        })
    }

    /// Standard output as it is now; of a `create`, it is the container's too.
    pub fn stdout_now(&self) -> String {
        text(&self.out)
    }
}

/// A process that runs; killed when dropped.
pub struct Going {
    child: Child,
    out: File,
    err: File,
    command: String,
}

/// Starts it, with nothing on standard input unless the command says what.
pub fn going(command: &mut Command) -> Going {
    let file = || tempfile::tempfile().expect("a temporary file");
    let (out, err) = (file(), file());
    let shown = format!("{command:?}");
    let child = command
        .stdout(out.try_clone().unwrap())
        .stderr(err.try_clone().unwrap())
        .spawn()
        .unwrap_or_else(|e| panic!("start {shown}: {e}"));
    Going {
        child,
        out,
        err,
        command: shown,
    }
}

/// Runs it to its end.
#[track_caller]
pub fn said(command: &mut Command) -> Said {
    going(command.stdin(Stdio::null())).end()
}

/// Gives a command the arguments, the environment and the directory of another.
pub fn take_over(command: &mut Command, other: &Command) {
    command.args(other.get_args()).env_clear();
    command.envs({ other.get_envs() }.filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = other.get_current_dir() {
        command.current_dir(dir);
    }
}

/// Runs the body of a test, whose closure this is, in a process of its own: it changes its process, and a test
/// program has several tests at a time.
#[track_caller]
pub fn alone<F: FnOnce()>(body: F) {
    const ALONE: &str = "RUNMIG_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let name = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let name = name.split_once("::").expect("a test's name").1;
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
    let output = test.stderr(Stdio::inherit()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains(" 1 passed"),
        "{name}: {}\n{said}",
        output.status
    );
}

impl Going {
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Until standard output holds the text.
    #[track_caller]
    pub fn until(&mut self, words: &str) {
        let end = Instant::now() + LIMIT;
        while !text(&self.out).contains(words) {
            let over = self.child.try_wait().unwrap();
            assert!(
                over.is_none() && Instant::now() < end,
                "{}\nnever said {words:?} ({over:?}):\n{}\n{}",
                self.command,
                text(&self.out),
                text(&self.err)
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns its status once it has ended.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Stops it. Returns when each of its threads has stopped: until then one that waits for a lock can
    /// still get it.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(nix::sys::signal::Signal::SIGSTOP);
        until("it is stopped", || {
            let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            threads.flatten().all(|thread| {
                let stat = std::fs::read_to_string(thread.path().join("stat"));
                stat.is_ok_and(|stat| after_name(&stat).starts_with('T'))
            })
        });
    }

    /// Returns when it waits for the lock on a file.
    #[track_caller]
    pub fn waits_for(&self, file: &std::path::Path) {
        use std::os::unix::fs::MetadataExt;
        let inode = format!(":{}", std::fs::metadata(file).unwrap().ino());
        until("it waits for the lock", || {
            let mut waits = lock_waits().into_iter();
            waits.any(|(pid, file)| pid == self.pid() && file.ends_with(&inode))
        });
    }

    /// Both of its outputs, as they are now.
    pub fn said_so_far(&self) -> String {
        text(&self.out) + &text(&self.err)
    }

    /// With SIGKILL, and waited for.
    pub fn kill(self) {
        drop(self);
    }

    #[track_caller]
    pub fn end(self) -> Said {
        self.end_within(LIMIT)
    }

    /// Waits for its end; panics when it takes longer.
    #[track_caller]
    pub fn end_within(mut self, limit: Duration) -> Said {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < end,
                "{}\nstill runs after {limit:?}\n{}\n{}",
                self.command,
                text(&self.out),
                text(&self.err)
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        Said {
            status,
            stdout: text(&self.out),
            stderr: text(&self.err),
            command: self.command.clone(),
            out: self.out.try_clone().unwrap(),
        }
    }
}

/// A process with streams of its own, which a failed test leaves to nobody: killed when dropped.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a process that a failed test shows.
const LAST_LINES: usize = 20;

impl Drop for Going {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.said_so_far();
            let lines: Vec<&str> = said.lines().collect();
            let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
            eprintln!("{}\nsaid last:\n{last}", self.command);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The descriptor is shared with the writer, and so is its place: read from a copy of our own.
fn text(file: &File) -> String {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut bytes = Vec::new();
    let mut own = File::open(path).expect("open the output again");
    own.seek(SeekFrom::Start(0)).unwrap();
    own.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks again until it is so.
#[track_caller]
pub fn until(what: &str, mut it_is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !it_is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether there is such a process; one that has ended and was not waited for is none. Its threads may end after the
/// first one.
pub fn lives(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| runs(&thread.path()))
}

/// Whether the first thread of a process lives. Others may outlive it.
pub fn first_thread_lives(pid: i32) -> bool {
    runs(&std::path::PathBuf::from(format!("/proc/{pid}")))
}

fn runs(entry: &std::path::Path) -> bool {
    let stat = std::fs::read_to_string(entry.join("stat"));
    stat.is_ok_and(|stat| !after_name(&stat).starts_with(['Z', 'X']))
}

/// Until it waits for something to happen, and nothing has happened that it has not seen: nobody waits
/// in a poll that has something to tell.
#[track_caller]
pub fn stands_still(pid: i32) {
    until("it waits", || {
        let wchan = std::fs::read_to_string(format!("/proc/{pid}/wchan"));
        wchan.is_ok_and(|at| at.contains("poll"))
    });
}

/// SIGKILL, and gone when this returns.
#[track_caller]
pub fn kill(pid: i32) {
    use nix::sys::signal::{Signal, kill};
    assert!(pid > 1, "not a process: {pid}");
    let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
    until("it is dead", || !lives(pid));
}

pub fn children(pid: i32) -> Vec<i32> {
    everybody().filter(|p| parent(*p) == Some(pid)).collect()
}

pub fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&stat).split(' ').nth(1)?.parse().ok()
}

/// Its children and theirs.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut all = Vec::new();
    for child in children(pid) {
        all.push(child);
        all.extend(descendants(child));
    }
    all
}

/// The processes with this in one of their arguments.
pub fn with_argument(text: &str) -> Vec<i32> {
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
    };
    everybody().filter(|p| has(p) && lives(*p)).collect()
}

/// Returns the processes that have a cgroup with this in its path. If it ends in a letter or digit,
/// none follows: the numbers of tests begin with those of others. `NAME-` and `NAME/` are all that
/// begin so.
pub fn in_cgroup(name: &str) -> Vec<i32> {
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let ends = |rest: &str| !(name.ends_with(is_part) && rest.starts_with(is_part));
    let inside = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|text| text.split(name).skip(1).any(ends))
    };
    everybody().filter(|p| inside(p) && lives(*p)).collect()
}

/// The processes that execute a program.
pub fn executing(program: &std::path::Path) -> Vec<i32> {
    let exe = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe"));
    let is_it = |pid: &i32| exe(pid).is_ok_and(|exe| exe == program);
    everybody().filter(is_it).collect()
}

/// The processes that wait for locks, each with the device and the inode of the file.
pub fn lock_waits() -> Vec<(i32, String)> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let waits = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[1] == "->").then(|| (words[5].parse().unwrap(), words[6].to_owned()))
    });
    waits.collect()
}

fn everybody() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// State, parent and the rest of a line in `/proc/PID/stat`.
fn after_name(stat: &str) -> &str {
    stat.rsplit(") ").next().unwrap_or_default()
}

/// Copies a program that is executed next. Another process writes it: a descriptor of this one would be
/// inherited by whatever another thread starts meanwhile, and what is open for writing cannot be executed.
pub fn copy_program(from: &std::path::Path, to: &std::path::Path) {
    let mut copy = Command::new("cp");
    copy.arg("--preserve=mode").arg(from).arg(to);
    let status = copy.status().unwrap_or_else(|e| panic!("start cp: {e}"));
    assert!(status.success(), "{copy:?}");
}

/// Puts a process into a cgroup of another.
pub fn move_beside(pid: i32, init: u64) {
    let lines = std::fs::read_to_string(format!("/proc/{init}/cgroup")).unwrap();
    let procs = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        // In cgroup v2 the hierarchy is the only one, or beside those of v1.
        let below = match controllers {
            "" => ["", "unified"],
            _ => [controllers; 2],
        };
        let files = below.map(|dir| format!("/sys/fs/cgroup/{dir}{path}/cgroup.procs"));
        let is_there = |file: &String| path != "/" && std::path::Path::new(file).exists();
        files.into_iter().find(is_there)
    };
    let file = lines.lines().find_map(procs);
    let file = file.expect("a cgroup of the container");
    std::fs::write(file, pid.to_string()).unwrap();
}

/// Returns the names in a folder, sorted; none of one that is not there.
pub fn names_in(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Returns all that is below a folder, sorted. Links are not followed.
pub fn all_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let paths = names_in(dir).into_iter().map(|name| dir.join(name));
    let mut found: Vec<_> = paths.collect();
    let is_folder = |path: &&std::path::PathBuf| path.is_dir() && !path.is_symlink();
    let deeper = found
        .iter()
        .filter(is_folder)
        .flat_map(|path| all_below(path));
    found.extend(deeper.collect::<Vec<_>>());
    found.sort();
    found
}
