//! Pids, start times and cgroup paths of a record, seen from other namespaces than its writer's.

use testkit::prelude::*;
use testkit::process::take_over;

const ID: &str = "victim";

/// The command, started by another one with these arguments.
fn under(before: &[&str], command: &Command) -> Command {
    let mut wrapped = Command::new(before[0]);
    wrapped.args(&before[1..]).arg(command.get_program());
    take_over(&mut wrapped, command);
    wrapped.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    wrapped
}

const OTHER_PIDS: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc"];
const OTHER_CGROUPS: &[&str] = &["unshare", "--cgroup"];

/// In a mount namespace of its own, after a shell command.
fn after(script: &str) -> [&str; 6] {
    ["unshare", "--mount", "sh", "-c", script, "sh"]
}

/// The container has its slice yet, and gc said why it keeps it.
#[track_caller]
fn keeps(world: &World, before: &[&str], why: &str) {
    let ours = world.instances();
    let gc = said(&mut under(before, &world.migctl(&["gc"]))).ok();
    gc.says("kept").says(why);
    assert_eq!(world.instances(), ours);
}

/// Failure: `gc`, `release` or a create without room runs in another pid namespace than the container's engine
#[test]
fn keeps_leases_of_other_pid_namespace() {
    let world = World::small();
    world.create(ID);
    let why = "runmig cannot see from here whether it lives: its processes are of pid namespace ";
    keeps(&world, OTHER_PIDS, why);
    let release = world.migctl(&["release", ID]);
    let line = said(&mut under(OTHER_PIDS, &release)).refused();
    has(&line, "cannot release the slice of container victim: ");
    has(&line, "hint: run migctl gc as root on the host");
    let list = said(&mut under(OTHER_PIDS, &world.migctl(&["list"]))).ok();
    list.warns("whether container victim lives");
    assert!(world.migctl(&["list"]).output().unwrap().stderr.is_empty());
    world.ends(&[ID]);
}

#[test]
fn create_without_room_keeps_unseen_containers() {
    let world = World::small();
    let ids = world.full();
    let all = world.instances();
    let refused = said(&mut under(OTHER_PIDS, &world.create_command(ID)));
    refused.refused_for("leases are kept (4) because");
    assert_eq!(world.instances(), all);
    world.ends(&ids);
}

/// A `/proc` that is empty, of another pid namespace, or that hides others; and shifted start times.
/// Failure: `gc`, `release` or a create without room runs in another pid namespace than the container's engine, in another time namespace, which shifts start times
/// Failure: `/proc` is empty, of another pid namespace, or hides other processes; or `gc` runs in a user namespace
#[test]
fn keeps_leases_where_proc_lies() {
    let world = World::small();
    world.create(ID);
    let foreign = ["unshare", "--pid", "--fork"];
    let shifted = ["unshare", "--time", "--boottime", "100000", "--fork"];
    let hides =
        "mount -t proc -o hidepid=2 proc /proc && exec setpriv --bounding-set -sys_ptrace \"$@\"";
    for (before, why) in testkit::rows! {
        &after("mount -t tmpfs none /proc && exec \"$@\"")[..] => "/proc does not show this process's namespaces";
        &foreign => "/proc is of another pid namespace";
        &after(hides) => "no CAP_SYS_PTRACE";
        &["unshare", "--user", "--map-root-user"] => "not root on the host";
        &shifted => "its start times are of time namespace ";
    } {
        keeps(&world, before, why);
    }
    let refused = said(&mut under(&foreign, &world.create_command("other")));
    refused.refused_for("cannot record a container's processes: /proc");
    world.ends(&[ID]);
}

/// Init is dead, and runmig cannot read the other processes of its cgroup.
/// Failure: `gc`, `release` or a create without room runs in another pid namespace than the container's engine, in another cgroup namespace, with other paths
#[test]
fn keeps_cgroups_of_other_namespace() {
    let world = World::small();
    world.abandoned(ID);
    let why = "its cgroups are of cgroup namespace ";
    keeps(&world, OTHER_CGROUPS, why);
    world.nobody_is_left();
}

/// The first pid namespace shows all others, so there the slices of one that has ended come back.
/// Failure: the engine ran in a pid namespace that has ended
#[test]
fn collects_what_ended_pid_namespaces_held() {
    let own = fs::read_link("/proc/self/ns/pid").unwrap();
    if own.to_str() != Some("pid:[4026531836]") {
        return skip("these tests do not run in the first pid namespace");
    }
    let world = World::small();
    let script = "\"$@\" && echo made && read end";
    let before: Vec<&str> = [OTHER_PIDS, &["sh", "-c", script, "sh"]].concat();
    let mut first = under(&before, &world.create_command(ID));
    // The container's init ends with this process, whose number there is another.
    first.env("STUB_RUNTIME_TEST_PID", "1");
    let mut first = going(first.stdin(Stdio::piped()));
    first.until("made");
    keeps(&world, &["env"], "; process ");
    // Its first process takes all others with it.
    children(first.pid()).into_iter().for_each(kill);
    first.end();
    until("it is seen to have ended", || {
        world.gc().ok();
        world.leases().is_empty()
    });
    world.as_if_nothing_had_been().unwrap();
}
