//! migctl top: in tmux, as a user has it, begun by a shell whose terminal it has to leave as it was; on a terminal that is
//! stuck or goes; and into a pipe.

use super::{claim, create, setup};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::signal::kill;
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use testkit::prelude::*;

/// A server of its own, with a window in which a shell waits.
struct Tmux<'a> {
    setup: &'a Setup,
}

impl<'a> Tmux<'a> {
    fn of(setup: &'a Setup) -> Option<Tmux<'a>> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skip("tmux is not there: apt-get install tmux");
            return None;
        }
        let tmux = Tmux { setup };
        // The status line would take a row.
        fs::write(setup.path("tmux.conf"), "set -g status off\n").unwrap();
        let shell = "env PS1=ready: sh -i";
        tmux.ok(&["new-session", "-d", "-x", "80", "-y", "24", shell]);
        tmux.until_shown("ready:");
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut tmux = self.setup.plain("tmux".as_ref());
        tmux.arg("-u").arg("-S").arg(self.setup.path("tmux.socket"));
        tmux.arg("-f").arg(self.setup.path("tmux.conf"));
        tmux.args(arguments);
        tmux
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        said(&mut self.command(arguments)).ok().stdout
    }

    #[track_caller]
    fn until_shown(&self, words: &str) -> String {
        let mut screen = String::new();
        until(words, || {
            screen = self.ok(&["capture-pane", "-p"]);
            screen.contains(words)
        });
        screen
    }

    /// Types a line into the shell.
    fn types(&self, line: &str) {
        self.ok(&["send-keys", "-l", line]);
        self.ok(&["send-keys", "Enter"]);
    }

    /// Starts the page, which only changes draw again, and writes the pid of its process into a file.
    fn top(&self) -> String {
        let top = self.setup.program("migctl");
        let pid = self.setup.path("pid");
        let (top, pid) = (top.display(), pid.display());
        self.types("clear; echo before");
        let page = format!("sh -c 'echo $$ >{pid}; exec {top} top --delay 1h'");
        self.types(&page);
        self.until_shown("q quit")
    }

    /// Returns the modes of the terminal, from a file: the screen has them in pieces.
    fn modes(&self) -> String {
        let file = self.setup.path("modes");
        self.types(&format!("stty -g >{0}.new; mv {0}.new {0}", file.display()));
        until("stty has said it", || file.exists());
        let modes = fs::read_to_string(&file).unwrap();
        fs::remove_file(file).unwrap();
        modes
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

#[test]
fn every_end_restores_terminal() {
    let setup = setup();
    claim(&setup, "first", 0);
    let Some(tmux) = Tmux::of(&setup) else { return };
    let before = tmux.modes();
    for end in ["q", "C-c", "SIGTERM", "SIGHUP"] {
        lacks(&tmux.top(), "before");
        match end {
            "q" | "C-c" => drop(tmux.ok(&["send-keys", end])),
            signal => {
                let pid = fs::read_to_string(setup.path("pid")).unwrap();
                let pid = Pid::from_raw(pid.trim().parse().unwrap());
                kill(pid, signal.parse::<Signal>().unwrap()).unwrap();
            }
        }
        let screen = tmux.until_shown("before");
        assert!(!screen.contains("q quit"), "{end}: {screen}");
        assert_eq!(tmux.modes(), before, "{end}");
    }
}

#[test]
fn follows_changes_and_resizes() {
    let setup = setup();
    claim(&setup, "first", 0);
    setup.sim("trace", &["on"]);
    let Some(tmux) = Tmux::of(&setup) else { return };
    tmux.top();
    let screen = tmux.until_shown("GPU 2:");
    assert_eq!(screen.lines().count(), 24, "{screen}");
    has(&screen, "GPU 0: A  .  .  .  .  .  .  .   7 of 8 free");
    has(&screen, "GPU 1: free");
    has(&screen, "\nclaim team/first  slice  1g.10gb  0    0:1");
    // An open session keeps an instance in use, so none stays between two pages.
    let trace = setup.sim("trace", &["show"]);
    let calls = |name: &str| trace.lines().filter(|call| call.contains(name)).count();
    assert_eq!(calls("nvmlInit"), calls("nvmlShutdown"), "{trace}");
    claim(&setup, "second", 1);
    tmux.until_shown("claim team/second  slice");
    tmux.ok(&["resize-window", "-x", "200", "-y", "60"]);
    until("60 rows", || {
        let screen = tmux.ok(&["capture-pane", "-p"]);
        let last = screen.lines().nth(59);
        last.is_some_and(|last| last.contains("q quit")) && screen.lines().count() == 60
    });
    tmux.ok(&["send-keys", ">"]);
    tmux.until_shown("by PLACE");
}

#[test]
fn driver_that_hangs_leaves_keys() {
    let setup = setup();
    claim(&setup, "train", 0);
    setup.slow("nvmlDeviceGetCount_v2", "600s");
    let Some(tmux) = Tmux::of(&setup) else { return };
    tmux.top();
    tmux.until_shown("claim team/train");
    tmux.until_shown("did not answer within 8s");
    tmux.ok(&["send-keys", "q"]);
    tmux.until_shown("before");
}

/// Starts the page on a terminal.
fn on(setup: &Setup, terminal: &File) -> Killed {
    let mut top = setup.plain(&setup.program("migctl"));
    let end = || terminal.try_clone().unwrap();
    top.args(["top", "--delay", "1h"]).env("TERM", "xterm");
    top.stdin(end()).stdout(end()).stderr(end());
    Killed(top.spawn().unwrap())
}

fn ends(top: &mut Killed) {
    until("migctl top ends", || top.0.try_wait().unwrap().is_some());
    assert_eq!(top.0.wait().unwrap().code(), Some(0));
}

/// The user's terminal may be stopped, or behind a connection that hangs.
#[test]
fn stuck_terminal_delays_no_signal() {
    let setup = setup();
    let pty = openpty(None, None).unwrap();
    let mut slave = File::from(pty.slave);
    fcntl(&slave, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while slave.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&slave, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let is_raw = || {
        let flags = tcgetattr(&slave).unwrap().local_flags;
        !flags.contains(LocalFlags::ICANON)
    };
    let mut top = on(&setup, &slave);
    until("it takes the terminal", is_raw);
    kill(Pid::from_raw(top.0.id() as i32), Signal::SIGTERM).unwrap();
    ends(&mut top);
    assert!(!is_raw());
    drop(pty.master);
}

#[test]
fn ends_with_its_terminal() {
    let setup = setup();
    let pty = openpty(None, None).unwrap();
    let slave = File::from(pty.slave);
    // No program that another test starts may keep the master open.
    let close = FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    fcntl(&pty.master, close).unwrap();
    let mut top = on(&setup, &slave);
    stands_still(top.0.id() as i32);
    drop((pty.master, slave));
    ends(&mut top);
}

#[test]
fn shows_memory_and_processes() {
    let setup = setup();
    create(&setup, "team", &[("runmig.dev/slice", "1g.10gb")]);
    create(&setup, "team", &[("runmig.dev/gpu", "1")]);
    let slice = setup.machine.the_instance();
    let hold = |place: &[&str], memory: &str| {
        let memory = ["--memory", memory];
        setup.machine.hold(&[place, &memory].concat())
    };
    let (gi, ci) = (slice.gi.to_string(), slice.ci.to_string());
    let _on_slice = hold(&["--gpu", "0", "--gi", &gi, "--ci", &ci], "3Gi");
    let _on_gpu = [hold(&["--gpu", "1"], "1Gi"), hold(&["--gpu", "1"], "1Gi")];
    let page = setup.tells(&["top"]);
    // The memory in MiB and the number of processes: the last two columns.
    let used = |kind: &str| -> (u64, String) {
        let mut rows = { page.lines() }.map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row.get(1) == Some(&kind)).expect(&page);
        let mib = row[row.len() - 2].trim_end_matches("Mi").parse();
        (mib.unwrap(), row[row.len() - 1].to_owned())
    };
    let ((on_slice, one), (on_gpu, two)) = (used("slice"), used("gpu"));
    assert_eq!((one.as_str(), two.as_str()), ("1", "2"), "{page}");
    assert!((3072..4096).contains(&on_slice), "{page}");
    assert!((2048..3072).contains(&on_gpu), "{page}");
}

#[test]
fn pipe_gets_one_page() {
    let setup = setup();
    claim(&setup, "train", 0);
    let chosen = ["top", "--namespace", "team", "--gpu", "0"];
    let page = setup.tells(&chosen);
    lacks(&page, "\x1b");
    lacks(&page, "GPU 1");
    has(&page, ", only GPU 0, namespace team\n");
    has(&page, "claim team/train  slice  1g.10gb");
    fs::remove_file(setup.machine.library()).unwrap();
    let said = setup.migctl(&["top"]).exits(1);
    said.says("claim team/train")
        .warns("install the NVIDIA driver");
}
