//! Finds the processes that have a slice open, in any descriptor table.

use std::fs::File;
use std::sync::mpsc::channel;
use testkit::faults::strace;
use testkit::prelude::*;

/// A table of descriptors that is a thread's own shows below that thread alone.
/// Failure: a thread with its own descriptor table has the slice open
#[test]
fn finds_descriptor_of_one_thread() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.create("a");
    world.delete("a");
    let made = world.the_instance();
    let access = format!(
        "proc/driver/nvidia/capabilities/gpu0/mig/gi{}/ci0/access",
        made.gi
    );
    let file = world.machine().join(access);
    let (opened, is_open) = channel();
    let (close, closes) = channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: numbers only; what this thread opens from now on is its own.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let open = File::open(file).unwrap();
        opened.send(()).unwrap();
        let _ = closes.recv();
        drop(open);
    });
    is_open.recv().unwrap();
    world.create("b");
    // Not handed out: it made room for a new one.
    assert_ne!(world.the_instance().generation, made.generation);
    drop(close);
    thread.join().unwrap();
    world.delete("b");
    world.configure("");
    world.gc().ok();
    world.as_if_nothing_had_been().unwrap();
}

/// Without a `statx` that asks no server, runmig cannot look at the files of other processes.
/// Failure: the kernel does not tell without the server, or a filter forbids `statx`
#[test]
fn hands_out_nothing_unseen() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.create("a");
    world.delete("a");
    let made = world.the_instance();
    let create = world.create_command("b");
    let mut traced = Command::new("strace");
    traced.args(["-f", "-o", "/dev/null", "-e", "inject=statx:error=ENOSYS"]);
    traced.arg(create.get_program()).args(create.get_args());
    traced.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    traced.envs(create.get_envs().filter_map(|(k, v)| Some((k, v?))));
    // It ends with the container, which it traces too.
    let traced = going(traced.current_dir(world.path("")).stdin(Stdio::null()));
    until("the container is there", || {
        let leases = world.leases();
        leases
            .iter()
            .any(|l| l["container"] == "b" && l["state"] == "ready")
    });
    traced.kill();
    let log = std::fs::read_to_string(world.state().join("runmig.log")).unwrap();
    has(&log, "open files cannot be looked at");
    assert_ne!(world.the_instance().generation, made.generation);
    world.delete("b");
    world.configure("");
    world.gc().ok();
    world.as_if_nothing_had_been().unwrap();
}
