//! Records of a pid namespace that has ended. Other namespaces are in the session `liveness`.

use testkit::prelude::*;
use testkit::process::take_over;

const ID: &str = "victim";

/// The first pid namespace shows all others, so there the slices of one that has ended come back.
/// Failure: the engine ran in a pid namespace that has ended
#[test]
fn collects_what_ended_pid_namespaces_held() {
    let own = fs::read_link("/proc/self/ns/pid").unwrap();
    if own.to_str() != Some("pid:[4026531836]") {
        return skip("these tests do not run in the first pid namespace");
    }
    let world = World::small();
    let create = world.create_command(ID);
    let mut first = Command::new("unshare");
    let script = "\"$@\" && echo made && read end";
    first.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"]);
    first.arg(create.get_program());
    take_over(&mut first, &create);
    first.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    // The container's init ends with this process, whose number there is another.
    first.env("STUB_RUNTIME_TEST_PID", "1");
    let mut first = going(first.stdin(Stdio::piped()));
    first.until("made");
    let ours = world.instances();
    world.gc().ok().says("kept").says("; process ");
    assert_eq!(world.instances(), ours);
    // Its first process takes all others with it.
    children(first.pid()).into_iter().for_each(kill);
    first.end();
    until("it is seen to have ended", || {
        world.gc().ok();
        world.leases().is_empty()
    });
    world.as_if_nothing_had_been().unwrap();
}
