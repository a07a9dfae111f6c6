//! Engines that are killed, hooks that never run, run twice or come late: a container that runs keeps
//! its slice, and one that does not releases it.

use testkit::prelude::*;

const ID: &str = "victim";

fn signal(pid: i32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
}

/// Under containerd the low-level runtime ends with its front, also when that is killed before its
/// child could ask for it: here the child is stopped at its very first step, until its parent has told
/// it to begin and is dead.
#[test]
fn runtime_dies_with_early_killed_front() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let log = world.path("log");
    let asks = [
        ("runmig.dev/slice", world.profile),
        ("io.kubernetes.cri.container-type", "container"),
    ];
    world.bundle_saying(ID, &asks);
    let to_log = ["-f", "-o", log.to_str().unwrap()];
    let stops = ["-e", "trace=close", "-e", "inject=close:signal=STOP:when=1"];
    let create = world.create_command(ID).into();
    let strace = strace::traced(&create, &[&to_log[..], &stops].concat()).going();
    let stopped = |n: usize| -> i32 {
        let mut pid = None;
        until("it is stopped", || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let mut stops = log.lines().filter(|l| l.contains("--- stopped by SIGSTOP"));
            pid = stops.nth(n).and_then(|l| l.split(' ').next()?.parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    };
    let front = stopped(0);
    signal(front, Signal::SIGCONT);
    let child = stopped(1);
    // It has told its child to begin, and waits for its end.
    stands_still(front);
    kill(front);
    signal(child, Signal::SIGCONT);
    strace.end();
    let log = fs::read_to_string(&log).unwrap();
    let ended = |l: &str| l.starts_with(&child.to_string()) && l.contains("+++ exited with 127");
    assert!(log.lines().any(ended), "{log}");
    world.nobody_is_left();
}

/// Failure: the low-level runtime cannot go on record, since the ledger stays locked for too long
#[test]
fn runs_nothing_off_the_record() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    world.configure("lock_timeout = \"50ms\"");
    // runmig makes this call once: after the edit, and before it has a child.
    let delays = ["-e", "inject=signalfd4:delay_enter=3000000"];
    let silent = ["-f", "-o", "/dev/null", "-e", "trace=signalfd4"];
    let create = world.create_command(ID).into();
    let create = strace::traced(&create, &[&silent[..], &delays].concat()).going();
    until("the bundle is edited", || {
        world.uuid_in_bundle(ID).is_some()
    });
    let ledger = File::open(world.state().join("ledger.lock")).unwrap();
    ledger.lock().unwrap();
    let created = create.end().exits(1);
    drop(ledger);
    created.warns("cannot lock the ledger");
    assert_eq!(world.living_init(ID), None);
    world.nobody_is_left();
}

/// Failure: `delete` fails, or the container runs
#[test]
fn failed_delete_releases_nothing() {
    let world = World::small();
    world.create(ID);
    let ours = world.the_instance();
    said(&mut world.runmig(&["delete", ID])).exits(1);
    world.behave("delete-fails");
    said(&mut world.runmig(&["delete", "--force", ID])).exits(1);
    assert_eq!(world.the_instance(), ours);
    world.nothing_lost_nothing_given_twice().unwrap();
}

/// The original is restored by the hook, by the create that failed, by the delete alone, and after a kill by gc or by the
/// next create of the bundle.
/// Failure: the low-level runtime's create fails, with or without hooks
/// Failure: the low-level runtime rewrites `config.json`, as nvidia-container-runtime does
#[test]
fn create_that_fails_or_is_rewritten_leaves_nothing() {
    let world = World::small();
    let is_over = || world.as_if_nothing_had_been().unwrap();
    for more in ["", "create-fails-early", "create-fails-late"] {
        for with in [
            "",
            "no-hooks",
            "rewrites-config",
            "rewrites-config\nno-hooks",
        ] {
            world.behave(&format!("{with}\n{more}"));
            said(&mut world.create_command(ID)).exits(i32::from(!more.is_empty()));
            if more.is_empty() {
                world.delete(ID);
            }
            is_over();
        }
    }
    for collected in [true, false] {
        world.behave("rewrites-config");
        world.abandoned(ID);
        match collected {
            true => drop(world.gc().ok()),
            false => world.comes_and_goes(ID),
        }
        is_over();
    }
}

/// A reader of a bundle's directory can lock it, which blocks no call.
/// Failure: a user locks a bundle's directory
#[test]
fn ignores_foreign_lock_on_bundle() {
    let world = World::small();
    let bundle = world.bundle(ID);
    let theirs = File::open(&bundle).unwrap();
    theirs.lock().unwrap();
    world.behave("no-hooks");
    world.comes_and_goes(ID);
    world.behave("");
    world.comes_and_goes(ID);
    world.as_if_nothing_had_been().unwrap();
}

/// By another path, and while the first create is at work.
/// Failure: two concurrent creates of one bundle
#[test]
fn refuses_second_create_of_a_bundle() {
    let world = World::small();
    let (create, mut pipe) = world.halted(ID, "create-waits");
    let link = world.path("link");
    symlink(world.bundle(ID), &link).unwrap();
    let mut second = world.runmig(&["create", "--bundle"]);
    let named = format!("bundle {} is in use by another create", link.display());
    said(second.arg(&link).arg("second")).refused_for(&named);
    world.behave("");
    pipe.write_all(b"g").unwrap();
    create.end().ok();
    world.delete(ID);
    fs::remove_file(link).unwrap();
    world.as_if_nothing_had_been().unwrap();
}

/// As crun is by SIGPIPE, when another hook ends before it has read its standard input.
/// Failure: the low-level runtime fails or dies during a delete: SIGPIPE kills crun when a hook ends before it has read its standard input
#[test]
fn delete_tells_fate_of_slice() {
    let world = World::small();
    let runtime = world.bare(&[]).get_program().to_owned();
    let killed = |deletes: &str| {
        let front = world.path("runc");
        let delete = format!("{} \"$@\"", runtime.display());
        let body = format!("{}; kill -PIPE $$", deletes.replace("DELETE", &delete));
        script(&front, &body);
        world.configure_runtime(&front);
        let ended = said(&mut world.runmig(&["delete", "--force", ID]));
        world.configure("");
        assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{ended:?}");
        ended.stderr
    };
    world.create(ID);
    let ours = world.the_instance();
    let init = world.living_init(ID).unwrap();
    let by = "runmig: the low-level runtime was killed by signal 13";
    let runs = format!("its init, process {init}, runs");
    let keeps = format!("{by}; container {ID} keeps its slice ({runs})\n");
    assert_eq!(killed("true"), keeps);
    assert_eq!(world.the_instance(), ours);

    world.behave("delete-fails");
    let failed = said(&mut world.runmig(&["delete", "--force", ID])).exits(1);
    failed.warns("the low-level runtime exited with status 1; container victim keeps its slice");
    assert_eq!(world.the_instance(), ours);

    world.behave("no-hooks");
    let released = format!("{by}; the slice of container {ID} is released\n");
    assert_eq!(killed("DELETE"), released);
    world.as_if_nothing_had_been().unwrap();
}

/// Only the front may say that the low-level runtime has run, and only for a delete.
#[test]
fn create_cannot_claim_to_be_over() {
    let world = World::small();
    let bundle = world.bundle(ID);
    let mut create = world.program("runmig-slice");
    create.arg("--low-level-runtime-ended=exit:0");
    create.arg("--root").arg(world.root());
    create.args(["create", "--bundle"]).arg(bundle).arg(ID);
    said(&mut create).exits(1).warns("is for a delete alone");
    world.as_if_nothing_had_been().unwrap();
}

/// A killed container takes a while to end on a busy machine, and runc's delete does not wait for its cgroup.
/// Failure: a container takes a while to end after its `delete`, on a busy machine
#[test]
fn delete_waits_for_dying_container() {
    let world = World::small();
    let runtime = world.bare(&[]).get_program().to_owned();
    world.create(ID);
    world.behave("no-hooks");
    let (front, delete) = (world.path("runc"), runtime.display());
    let dies_later = format!("(sleep 1; {delete} \"$@\") <&- >/dev/null 2>&1 &");
    script(&front, &dies_later);
    world.configure_runtime(&front);
    let deleted = world.delete(ID);
    world.configure("");
    assert_eq!(deleted.stderr, "");
    world.as_if_nothing_had_been().unwrap();
}

/// The container is gone and its slice is not: the engine hears success, the operator the reason.
/// Failure: a delete of a container succeeds, but its slice cannot be released
#[test]
fn delete_tells_why_slice_stays() {
    let world = World::small();
    world.create(ID);
    world.behave("no-hooks");
    let call = "nvmlGpuInstanceDestroy";
    world.fault(call, 1, None, Outcome::Return(999));
    world.delete(ID).warns("(NVML 999)");
    world.no_faults();
    world.nobody_is_left();
}

/// Only the delete is left to release the slice.
/// Failure: an upgrade moves the low-level runtime under a container
#[test]
fn delete_survives_moved_low_level_runtime() {
    let world = World::small();
    world.create(ID);
    world.move_runtime();
    world.behave("no-hooks");
    world.ends(&[ID]);
}

/// The other low-level runtime would not see it either: nothing is made before that is known.
#[test]
fn refuses_second_container_of_moved_runtime() {
    let world = World::small();
    world.create(ID);
    let ours = world.the_instance();
    world.move_runtime();
    world.refuses(ID, "exists already");
    assert_eq!(world.the_instance(), ours);
    world.ends(&[ID]);
}

/// The engine sees the signal; of the two programs, only the one that failed may leave a core.
/// Failure: the low-level runtime crashes (SIGSEGV, SIGABRT, SIGQUIT)
#[test]
fn crash_of_runtime_dumps_one_core() {
    use std::os::unix::process::CommandExt;
    let world = World::small();
    world.behave("create-crashes");
    let mut create = world.create_command(ID);
    // SAFETY: system calls only, between fork and exec.
    unsafe {
        create.pre_exec(|| {
            let mut core = std::mem::zeroed::<libc::rlimit>();
            libc::getrlimit(libc::RLIMIT_CORE, &mut core);
            core.rlim_cur = core.rlim_max;
            libc::setrlimit(libc::RLIMIT_CORE, &core);
            Ok(())
        });
    }
    let status = said(&mut create).status;
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert!(!status.core_dumped());
    world.behave("");
    world.as_if_nothing_had_been().unwrap();
}
