//! Seats at `mps`: a daemon for each seat, in its slice.

use super::*;
use testkit::cuda::{self, Client, free};

fn total(client: &mut Client) -> u64 {
    let said = client.say("info");
    let second = said.split(' ').nth(1).and_then(|word| word.parse().ok());
    second.unwrap_or_else(|| panic!("{said}"))
}

/// Starts a container with a seat whose client takes commands.
fn client(setup: &Setup, slice: &str, size: &str) -> (String, Client) {
    let (id, _, client) = cuda::client(setup, &[(SLICE, slice), (SHARE, size)]);
    (id, client)
}

/// A client of a seat sees its slice, and gets its share of it.
fn limits_seat(low: Low) {
    let setup = on(low, "mps");
    let (one, mut first) = client(&setup, "3g.40gb", "4Gi");
    let (two, mut second) = client(&setup, "3g.40gb", "1/2");
    assert_eq!(device(&setup, &one), device(&setup, &two));
    assert_eq!([&mut first, &mut second].map(total), [MEMORY; 2]);
    // An amount is the limit, and a fraction contains what the daemon needs.
    let booked = [&one, &two].map(|id| setup.lease(id)["bookedBytes"].as_u64().unwrap() >> 20);
    assert_eq!(booked, [4096 + 128, MEMORY / 2]);
    let (mine, theirs) = (free(&mut first), free(&mut second));
    assert!(mine < 4096 && theirs < MEMORY / 2 - 128, "{mine} {theirs}");
    begins_with(&first.say(&format!("alloc {}", mine + 1)), "error");
    assert_eq!(first.say(&format!("alloc {mine}")), "ok");
    assert_eq!(free(&mut second), theirs);
    let used = |id: &str| setup.lease(id)["usedBytes"].as_u64().unwrap() >> 20;
    assert_eq!(used(&one), 4096);
    assert!(used(&two) < 4096);
    // The daemon serves the MIG device alone.
    let environment = fs::read(format!("/proc/{}/environ", setup.daemon(&one))).unwrap();
    let visible = format!("CUDA_VISIBLE_DEVICES={}\0", device(&setup, &one));
    assert!(String::from_utf8_lossy(&environment).contains(&visible));
    assert_ne!(setup.daemon(&one), setup.daemon(&two));
    first.end();
    assert_eq!(setup.machine.instances().len(), 1);
    assert_eq!(second.say("sync"), "ok");
    second.end();
    setup.nothing_is_left();
}

testkit::tests! {
    runc_limits_seat: limits_seat(Low::Runc);
    crun_limits_seat: limits_seat(Low::Crun);
}

#[test]
fn gc_restarts_daemon_in_its_slice() {
    let setup = on(Low::Runc, "mps");
    let (id, mut first) = client(&setup, "2g.20gb", "4Gi");
    let held = free(&mut first);
    let slice = device(&setup, &id);
    kill(setup.daemon(&id));
    setup.migctl(&["gc"]).ok().says("is restarted");
    assert_eq!(device(&setup, &id), slice);
    let mut new = Client::exec(&setup, &id, &[]);
    assert_eq!((total(&mut new), free(&mut new)), (19_968, held));
    new.end();
    first.end();
    setup.nothing_is_left();
}

#[test]
fn gc_names_processes_of_seats() {
    let setup = on(Low::Runc, "mps");
    let (id, first) = client(&setup, "3g.40gb", "4Gi");
    let mut around = Client::exec(&setup, &id, &["--env", "CUDA_MPS_PIPE_DIRECTORY=/nowhere"]);
    assert!(free(&mut around) > 4096);
    let pids = setup.lease(&id)["around"].as_array().unwrap().clone();
    assert_eq!(pids.len(), 1, "{pids:?}");
    let said = setup.tells(&["gc"]);
    let told = format!("process {} bypasses MPS and has no memory limit", pids[0]);
    has(&said, &told);
    assert_eq!(around.say("sync"), "ok");
    around.end();
    first.end();
    setup.nothing_is_left();
}
