//! Finds the processes that have a slice open, in any descriptor table.

use std::sync::mpsc::channel;
use testkit::prelude::*;

/// A table of descriptors that is a thread's own shows below that thread alone.
/// Failure: a thread with its own descriptor table has the slice open
#[test]
fn finds_descriptor_of_one_thread() {
    let (world, made) = World::with_idle_slice();
    let instance = format!("gpu0/mig/gi{}/ci0/access", made.gi);
    let capabilities = world.machine().join("proc/driver/nvidia/capabilities");
    let file = capabilities.join(instance);
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
    world.tidy_up(&["b"]);
}
