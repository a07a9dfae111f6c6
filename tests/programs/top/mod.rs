//! migctl top on a terminal that is stuck or goes. What it shows is in sessions/top.txt.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::signal::kill;
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use testkit::prelude::*;

/// Starts the page on a terminal.
fn on(world: &World, terminal: &File) -> Killed {
    let end = || terminal.try_clone().unwrap();
    let mut top = world.migctl(&["top", "--delay", "1h"]);
    top.env("TERM", "xterm");
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
    let world = World::small();
    let pty = openpty(None, None).unwrap();
    let mut slave = File::from(pty.slave);
    fcntl(&slave, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while slave.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&slave, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let is_raw = || {
        let flags = tcgetattr(&slave).unwrap().local_flags;
        !flags.contains(LocalFlags::ICANON)
    };
    let mut top = on(&world, &slave);
    until("it takes the terminal", is_raw);
    kill(Pid::from_raw(top.0.id() as i32), Signal::SIGTERM).unwrap();
    ends(&mut top);
    assert!(!is_raw());
    drop(pty.master);
}

#[test]
fn ends_with_its_terminal() {
    let world = World::small();
    let pty = openpty(None, None).unwrap();
    let slave = File::from(pty.slave);
    // No program that another test starts may keep the master open.
    let close = FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    fcntl(&pty.master, close).unwrap();
    let mut top = on(&world, &slave);
    stands_still(top.0.id() as i32);
    drop((pty.master, slave));
    ends(&mut top);
}
