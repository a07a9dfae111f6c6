//! Each row of the table of levels for `mps`: the sum of several processes, a bad entry, the socket in the hands of root, and
//! a dead daemon.

use super::*;
use testkit::has;

#[test]
fn sum_shows_in_memory_alone() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    let (mut second, _) = holder.exec(&setup, &[]);
    assert_eq!(holder.first.say("alloc 3000"), "ok");
    holder.shows(&setup, &[], None, false);
    // The limit is for each process.
    assert_eq!(second.say("alloc 3000"), "ok");
    holder.shows(&setup, &[], None, true);
    let over = holder.lease(&setup)["overBytes"].as_u64();
    assert_eq!(over, Some((2 * (3000 + CONTEXT) - MEMORY) << 20));
    let said = setup.tells(&["gc"]);
    assert!(!said.contains("MPS"), "{said}");
    second.end();
    holder.end(&setup);
}

/// Failure: root of a container raises or removes its limit
#[test]
fn gc_sets_raised_limit_back() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    assert_eq!(holder.raises(&setup), "");
    let (mut raised, _) = holder.exec(&setup, &[]);
    assert_eq!(free(&mut raised), (16 << 10) - CONTEXT);
    holder.shows(&setup, &[], Some(16), false);
    let said = setup.tells(&["gc", "--dry-run"]);
    let told = "its memory limit was changed to 16Gi, and would be set back to its share";
    assert!(row(&said, &holder.id).contains(told), "{said}");
    holder.shows(&setup, &[], Some(16), false);

    let said = setup.tells(&["gc"]);
    let told = "its memory limit was changed to 16Gi, and is set back to its share";
    assert!(row(&said, &holder.id).contains(told), "{said}");
    let log = std::fs::read_to_string(setup.state().join("runmig.log")).unwrap();
    has(&log, "its memory limit was changed to 16Gi");
    holder.shows(&setup, &[], None, false);
    let (mut next, _) = holder.exec(&setup, &[]);
    assert_eq!(free(&mut next), HELD);
    let said = setup.tells(&["gc"]);
    assert!(!said.contains("memory limit"), "{said}");
    // Nothing takes memory back from a process that has it.
    assert_eq!(raised.say("alloc 5000"), "ok");
    holder.shows(&setup, &[], None, true);
    raised.end();
    next.end();
    assert_eq!(holder.first.say("launch 1"), "ok");
    // A limit that was removed is a raised one.
    let removes = format!("set_device_pinned_mem_limit {} 0 0G", holder.server(&setup));
    assert_eq!(holder.tell(&setup, &[], &removes), "");
    let list = setup.migctl(&["list"]).ok().stderr;
    has(&list, "was changed to none, and its share has 4096Mi");
    holder.end(&setup);
}
