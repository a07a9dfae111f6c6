//! migctl list --watch, by the kernel's reports alone.

use super::{claim, create, setup};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Read;
use std::os::fd::AsFd;
use testkit::prelude::*;

const LIMIT: Duration = Duration::from_secs(60);

fn watch(setup: &Setup) -> Going {
    let migctl = setup.program("migctl");
    let mut going = going(setup.plain(&migctl).args(["list", "--watch"]));
    going.until("CONTAINER");
    stands_still(going.pid());
    going
}

fn tables(going: &Going) -> usize {
    going.said_so_far().matches("CONTAINER").count()
}

#[test]
fn reprints_at_change() {
    let setup = setup();
    // The first create makes the ledger.
    let mut list = watch(&setup);
    assert!(!setup.state().exists());
    claim(&setup, "first", 0);
    list.until("claim team/first");
    claim(&setup, "second", 1);
    list.until("claim team/second");
    stands_still(list.pid());
    // It waits without an end: nothing but the kernel's reports wakes it.
    #[cfg(target_arch = "x86_64")]
    until("it waits without an end", || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", list.pid())).unwrap();
        let words: Vec<&str> = call.split_whitespace().collect();
        let Some(timeout) = words.get(3) else {
            return false; // it runs
        };
        let timeout = u64::from_str_radix(timeout.trim_start_matches("0x"), 16).unwrap();
        (words[0], timeout as u32 as i32) == ("7", -1)
    });
    list.signal(Signal::SIGTERM);
    let said = list.end_within(LIMIT).ok();
    assert!(said.stdout.ends_with('\n'), "{}", said.stdout);
}

#[test]
fn shows_requests_that_wait() {
    let setup = setup();
    let holder = create(&setup, "team", &[("runmig.dev/slice", "7g.80gb")]);
    let mut list = watch(&setup);
    let (id, waiter) = setup.waits(&[("runmig.dev/slice", "3g.40gb")]);
    list.until("3g.40gb");
    let queue = list.said_so_far();
    let queue = queue.rsplit("WAITING").next().unwrap();
    assert!(queue.contains(&id) && queue.contains("3g.40gb"), "{queue}");
    stands_still(list.pid());
    setup.delete(&holder);
    waiter.end().ok();
    until("it lists the container, and no queue", || {
        let said = list.said_so_far();
        let last = said.rsplit("CONTAINER").next().unwrap();
        last.contains(&id) && !last.contains("WAITING")
    });
}

#[test]
fn joins_a_burst() {
    let setup = setup();
    claim(&setup, "first", 0);
    let mut list = watch(&setup);
    assert_eq!(tables(&list), 1);
    list.stop();
    // More events than the kernel hands over at once.
    (1..7).for_each(|n| claim(&setup, &format!("more-{n}"), n));
    list.signal(Signal::SIGCONT);
    list.until("claim team/more-6");
    stands_still(list.pid());
    list.signal(Signal::SIGINT);
    let said = list.end_within(LIMIT).ok();
    let tables: Vec<&str> = said.stdout.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "{}", said.stdout);
}

#[test]
fn follows_a_new_ledger() {
    let setup = setup();
    claim(&setup, "old", 0);
    let mut list = watch(&setup);
    fs::rename(setup.state(), setup.path("moved")).unwrap();
    until("it prints an empty ledger", || {
        let said = list.said_so_far();
        !said.rsplit("CONTAINER").next().unwrap().contains("old")
    });
    claim(&setup, "new", 1);
    list.until("claim team/new");
}

/// Failure: the reader of `migctl list --watch` ends, or the state directory is replaced
#[test]
fn ends_with_its_reader() {
    let setup = setup();
    claim(&setup, "train", 0);
    let mut list = setup.plain(&setup.program("migctl"));
    list.args(["list", "-w"]).stdout(Stdio::piped());
    let mut list = Killed(list.spawn().unwrap());
    let mut output = list.0.stdout.take().unwrap();
    // It has printed all when it waits.
    stands_still(list.0.id() as i32);
    let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::ZERO), Ok(1));
    let mut bytes = [0; 4096];
    let length = output.read(&mut bytes).unwrap();
    let said = String::from_utf8_lossy(&bytes[..length]);
    has(&said, "claim team/train");
    drop(output);
    let mut ended = None;
    until("it ends without a change", || {
        ended = list.0.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(0));
}
