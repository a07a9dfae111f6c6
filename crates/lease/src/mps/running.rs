//! The limit of a daemon's running server. Root of the container can change it through the socket, and the daemon's
//! default stays as it is.

use super::Home;
use super::launch;
use crate::error::{Context, Error, Result, printable};
use crate::model::ChangedLimit;
use crate::process::program::{self, Answer, shown};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The most servers of one daemon that runmig asks about. With a server for several users there is one.
const MOST_SERVERS: usize = 8;

/// The most of an answer that an error shows, in characters.
const MAX_SHOWN: usize = 80;

/// The time in which a caller talks with daemons.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// With one daemon. A command takes 5 to 10 ms.
    pub each: Duration,
    /// With all of them.
    pub all: Duration,
}

/// The talks of one caller with daemons, within one time.
#[derive(Debug)]
pub(crate) struct Talks {
    program: PathBuf,
    patience: Patience,
    end: Instant,
}

/// The limit of a running server, if it is not that of the share; an error for an answer that names no limit.
type Told = Result<Option<ChangedLimit>, String>;

impl Talks {
    /// Begins the time for all talks.
    pub(crate) fn new(program: &Path, patience: Patience) -> Talks {
        Talks {
            program: program.to_owned(),
            patience,
            end: Instant::now() + patience.all,
        }
    }

    /// Returns the limit of a daemon's server if it is not that of the share. Without a server, and with the limit of
    /// the share, it returns none.
    ///
    /// # Errors
    /// The daemon does not answer in time, or its answer names no limit.
    pub(crate) fn changed(&self, home: &Home, share_mib: u64) -> Result<Option<ChangedLimit>> {
        let daemon = self.with(home)?;
        for server in daemon.servers()? {
            match daemon.told(server, share_mib)? {
                Ok(None) => {}
                Ok(changed) => return Ok(changed),
                Err(words) if daemon.servers()?.contains(&server) => {
                    return Err(Error::new(format!(
                        "its MPS daemon gives the limit as \"{words}\""
                    )));
                }
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Sets a raised limit of a daemon's server back to the share, and reads it back. Returns the limit that it
    /// found, in words; none if it was not raised.
    ///
    /// # Errors
    /// The daemon does not answer in time, or keeps another limit.
    pub(crate) fn set_back(&self, home: &Home, share_mib: u64) -> Result<Option<String>> {
        let daemon = self.with(home)?;
        let mut found = None;
        for server in daemon.servers()? {
            let words = match daemon.told(server, share_mib)? {
                Ok(Some(limit)) if limit.is_raised() => limit.to_string(),
                Ok(_) => continue,
                Err(words) => words,
            };
            let said = daemon.tell(&format!(
                "set_device_pinned_mem_limit {server} 0 {share_mib}M"
            ))?;
            let now = daemon.tell(&get_of(server))?;
            if now == answer(share_mib) {
                found = Some(words);
            } else if daemon.servers()?.contains(&server) {
                return Err(differs("its", &now, share_mib, &said));
            }
            // A server that ended meanwhile has no limit.
        }
        Ok(found)
    }

    fn with(&self, home: &Home) -> Result<Talk<'_>> {
        let now = Instant::now();
        if now >= self.end {
            return Err(Error::new(format!(
                "other MPS daemons did not answer within {} s",
                self.patience.all.as_secs()
            )));
        }
        Ok(Talk {
            program: &self.program,
            pipes: home.pipes(),
            end: self.end.min(now + self.patience.each),
        })
    }
}

/// A talk with one daemon.
pub(super) struct Talk<'a> {
    pub program: &'a Path,
    pub pipes: PathBuf,
    pub end: Instant,
}

impl Talk<'_> {
    /// Sends one command to the daemon, and returns its answer.
    ///
    /// # Errors
    /// The program cannot be run, does not answer in time, or exits with another status than 0, as it does
    /// without a daemon.
    fn ask(&self, command: &str) -> Result<String> {
        let program = self.program.display();
        let mut control = Command::new(self.program);
        control.env_clear();
        control.env("CUDA_MPS_PIPE_DIRECTORY", &self.pipes);
        let answer = match run(control, command, self.end) {
            Err(e) if e.kind() == ErrorKind::TimedOut => return Err(Error::new(e.to_string())),
            answer => answer.context(|| format!("run {program}"))?,
        };
        match answer.status.success() {
            true => Ok(answer.text),
            false => {
                let shown = shown(&answer);
                let why = format!("{program} does not take \"{command}\": {shown}");
                Err(Error::new(why))
            }
        }
    }

    /// The same, with the answer in one short line.
    pub(super) fn tell(&self, command: &str) -> Result<String> {
        Ok(brief(&self.ask(command)?))
    }

    fn servers(&self) -> Result<Vec<u32>> {
        let answer = self.ask(SERVERS)?;
        servers(&answer).ok_or_else(|| {
            let answer = brief(&answer);
            Error::new(format!(
                "its MPS daemon gives \"{answer}\" as the list of its servers"
            ))
        })
    }

    fn told(&self, server: u32, share_mib: u64) -> Result<Told> {
        Ok(judge(self.tell(&get_of(server))?, share_mib))
    }
}

/// Returns the error for a limit that the daemon reports differently from what was set. `whose` precedes the daemon.
pub(super) fn differs(whose: &str, now: &str, mib: u64, said: &str) -> Error {
    let expected = answer(mib);
    let said = match said {
        "" => String::new(),
        said => format!("; to the setting it said \"{said}\""),
    };
    Error::new(format!(
        "{whose} MPS daemon tells the limit as \"{now}\" and not as {expected} after {mib}Mi was set{said}"
    ))
}

/// Returns an answer in one line, cut if it is long.
fn brief(answer: &str) -> String {
    let answer = answer.trim();
    let start: String = answer.chars().take(MAX_SHOWN).collect();
    match start.len() == answer.len() {
        true => printable(&start),
        false => format!("{}…", printable(&start)),
    }
}

/// Reads a list of pids; none for another text.
fn servers(answer: &str) -> Option<Vec<u32>> {
    let lines = answer.lines().map(str::trim).filter(|l| !l.is_empty());
    let pids: Option<Vec<u32>> = lines.map(|line| line.parse().ok()).collect();
    pids.filter(|pids| pids.len() <= MOST_SERVERS)
}

fn judge(said: String, share_mib: u64) -> Told {
    if said == answer(share_mib) {
        return Ok(None);
    }
    let told_mib = told(&said).ok_or(said)?;
    Ok(Some(ChangedLimit {
        told_mib,
        share_mib,
    }))
}

/// Returns the command that sets the limit for servers that start afterwards. The ordinal is that of the
/// daemon's only GPU. The program takes MiB as they are, but cuts other forms in silence.
pub(super) fn set(mib: u64) -> String {
    format!("set_default_device_pinned_mem_limit 0 {mib}M")
}

/// The command that reads the limit.
pub(super) const GET: &str = "get_default_device_pinned_mem_limit 0";

/// Returns the answer that proves the limit: the program cuts it to whole GiB.
pub(super) fn answer(mib: u64) -> String {
    match mib / 1024 {
        0 => format!("{mib}M"),
        gib => format!("{gib}G"),
    }
}

/// The command that lists the servers of a daemon.
const SERVERS: &str = "get_server_list";

/// Returns the command that reads the limit of a running server.
fn get_of(server: u32) -> String {
    format!("get_device_pinned_mem_limit {server} 0")
}

/// Returns the limit that an answer tells, in MiB; 0 is no limit. Returns none for other words.
fn told(answer: &str) -> Option<u64> {
    let (number, factor) = match answer.strip_suffix('G') {
        Some(number) => (number, 1024),
        None => (answer.strip_suffix('M')?, 1),
    };
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    // A number beyond 64 bits is no limit of a GPU either.
    is_number.then(|| number.parse().unwrap_or(u64::MAX).saturating_mul(factor))
}

/// The time for one answer, and for the start of a daemon. A command takes 5 to 10 ms.
pub(super) const TIME: Duration = Duration::from_secs(5);

/// Returns whether a failed start says that the machine cannot execute the program at all.
pub(super) fn is_not_executable(e: &std::io::Error) -> bool {
    let never = [libc::ENOENT, libc::EACCES, libc::ENOEXEC, libc::ELIBBAD];
    e.raw_os_error().is_some_and(|errno| never.contains(&errno))
}

/// Runs a program with this input; it ends with this process.
pub(super) fn run(mut command: Command, input: &str, end: Instant) -> std::io::Result<Answer> {
    launch::leave_descriptors(&mut command);
    program::run(command, program::input(input)?, end)
}

#[cfg(test)]
mod limit_tests {
    use super::*;

    #[test]
    fn expects_answer_cut_to_whole_units() {
        for (mib, expected) in [(100, "100M"), (1024, "1G"), (5000, "4G"), (20141, "19G")] {
            assert_eq!(answer(mib), expected);
        }
        assert_eq!(set(5000), "set_default_device_pinned_mem_limit 0 5000M");
    }

    #[test]
    fn reads_answers_of_program() {
        for (answer, expected) in [
            ("8G", Some(8192)),
            ("500M", Some(500)),
            ("0M", Some(0)),
            ("0G", Some(0)),
            ("99999999999999999999G", Some(u64::MAX)),
            ("17179869183G", Some(17_592_186_043_392)),
            ("", None),
            ("G", None),
            ("-1G", None),
            ("8 G", None),
            ("8", None),
            ("Server 7 not found", None),
        ] {
            assert_eq!(told(answer), expected, "{answer}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mps::program::tests::script;

    #[test]
    fn tells_raised_from_lowered_limits() {
        let limit = |answer: &str, share_mib| match judge(answer.to_owned(), share_mib) {
            Ok(None) => "kept".to_owned(),
            Ok(Some(limit)) if limit.is_raised() => format!("raised to {limit}"),
            Ok(Some(limit)) => format!("lowered to {limit}"),
            Err(words) => format!("says {words}"),
        };
        for (answer, share_mib, expected) in [
            ("4G", 4096, "kept"),
            ("4G", 5000, "kept"),
            ("5G", 5000, "raised to 5Gi"),
            ("60G", 4096, "raised to 60Gi"),
            ("0M", 4096, "raised to none"),
            ("3G", 5000, "lowered to 3Gi"),
            ("500M", 4096, "lowered to 500Mi"),
            ("", 4096, "says "),
            ("no such server", 4096, "says no such server"),
        ] {
            assert_eq!(
                limit(answer, share_mib),
                expected,
                "{answer} of {share_mib}"
            );
        }
    }

    #[test]
    fn reads_lists_of_servers() {
        assert_eq!(servers(""), Some(vec![]));
        assert_eq!(servers(" 17\n18\n"), Some(vec![17, 18]));
        assert_eq!(servers("17\nno server"), None);
        assert_eq!(servers("-1"), None);
        assert_eq!(servers(&"1\n".repeat(9)), None);
    }

    #[test]
    fn knows_errors_of_programs_that_cannot_be_run() {
        let is = |errno| is_not_executable(&std::io::Error::from_raw_os_error(errno));
        for errno in [libc::ENOENT, libc::EACCES, libc::ENOEXEC, libc::ELIBBAD] {
            assert!(is(errno), "{errno}");
        }
        for errno in [libc::EAGAIN, libc::ENOMEM, libc::ETXTBSY] {
            assert!(!is(errno), "{errno}");
        }
        assert!(!is_not_executable(&ErrorKind::TimedOut.into()));
    }

    const LONG: Duration = Duration::from_secs(60);

    fn talk(program: &Path, time: Duration) -> Talk<'_> {
        Talk {
            program,
            pipes: "/nowhere".into(),
            end: Instant::now() + time,
        }
    }

    #[test]
    fn tells_why_a_daemon_gives_no_answer() {
        for (program, time, words) in rows! {
            "/bin/sh", Duration::ZERO => "/bin/sh did not end in time";
            "/bin/false", LONG => "/bin/false does not take \"x\": exit status: 1";
            "/nowhere/x", LONG => "cannot run /nowhere/x: No such file or directory (os error 2)";
        } {
            let line = talk(Path::new(program), time).tell("x").unwrap_err().line();
            assert_eq!(line, words);
        }
        assert_eq!(talk(Path::new("/bin/cat"), LONG).tell("x").unwrap(), "x");
    }

    #[test]
    fn words_of_a_limit_that_was_not_kept() {
        let line = |said| differs("its", "60G", 5000, said).line();
        let differs =
            "its MPS daemon tells the limit as \"60G\" and not as 4G after 5000Mi was set";
        assert_eq!(line(""), differs);
        assert_eq!(
            line("no"),
            format!("{differs}; to the setting it said \"no\"")
        );
    }

    /// A server without a limit is an error while it runs.
    #[test]
    fn limit_of_a_server_that_ended_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::of(dir.path(), &"a".into());
        std::fs::create_dir_all(home.pipes()).unwrap();
        for (after, expected) in rows! {
            ":" => Ok(None);
            "echo 17" => Err("its MPS daemon gives the limit as \"no such server\"".to_owned());
        } {
            let text = format!(
                "#!/bin/sh\ncd $CUDA_MPS_PIPE_DIRECTORY; read c\n\
                 if [ \"$c\" != get_server_list ]; then echo no such server; : > asked\n\
                 elif [ -e asked ]; then {after}\nelse echo 17; fi"
            );
            let program = script(dir.path(), &text);
            let patience = Patience {
                each: LONG,
                all: LONG,
            };
            let changed = Talks::new(&program, patience).changed(&home, 4096);
            assert_eq!(changed.map_err(|e| e.line()), expected);
            std::fs::remove_file(home.pipes().join("asked")).unwrap();
        }
    }
}
