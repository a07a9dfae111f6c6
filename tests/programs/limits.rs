//! `[policy]`, held by creates that are processes of their own.

use testkit::prelude::*;

const NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";

fn asking(world: &World, id: &str, slice: &str, namespace: &str) -> Command {
    let all = [("runmig.dev/slice", slice), (NAMESPACE, namespace)];
    world.bundle_saying(id, &all);
    world.create_command(id)
}

#[track_caller]
fn refused(world: &World, id: &str, slice: &str, namespace: &str, words: &str) {
    said(&mut asking(world, id, slice, namespace)).refused_for(words);
}

#[track_caller]
fn create(world: &World, id: &str, slice: &str, namespace: &str) {
    said(&mut asking(world, id, slice, namespace)).ok();
}

/// Two that ask at once do not both get the last there is.
/// Failure: several concurrent requests for the last slice of a limit
#[test]
fn limits_many_creates_at_once() {
    let world = World::of(SMALL, 2);
    world.configure("[[policy.limit]]\nnamespace = \"*\"\nslices = 2\n");
    let ids: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
    for (id, team) in ids.iter().zip(["team-a", "team-b"].into_iter().cycle()) {
        asking(&world, id, world.profile, team);
    }
    let (made, refused) = world.create_at_once(&ids);
    assert_eq!((made.len(), refused.len()), (4, 4));
    for line in refused {
        let words = "has 2 of 2 slices ([[policy.limit]] 1); hint: run migctl list to see which; ask again \
                     when one ends";
        has(&line, "namespace team-");
        has(&line, words);
    }
    let leases = world.leases();
    for team in ["team-a", "team-b"] {
        let of = leases.iter().filter(|l| l["namespace"] == team);
        assert_eq!(of.count(), 2, "{team}");
    }
    world.ends(&made);
}

/// The dead are collected before somebody is told that they have too much: under CRI-O nobody else may
/// come to it for long.
#[test]
fn frees_share_of_ended_container() {
    let world = World::small();
    world.configure("[[policy.limit]]\nnamespace = \"*\"\nslices = 1\n");
    // Another alternative that no GPU has does not make it hopeless.
    for (id, slice) in [("two", "1g.6gb"), ("three", "7g.80gb,1g.6gb")] {
        asking(&world, "one", "1g.6gb", "team-a");
        world.abandoned("one");
        create(&world, id, slice, "team-a");
        world.all_go(&[id]);
    }
}

#[test]
fn memory_leaves_the_next_alternative() {
    let world = World::small();
    world.configure("[[policy.limit]]\nnamespace = \"*\"\nmemory = \"12Gi\"\n");
    let list = "4g.24gb,2g.12gb,1g.6gb";
    create(&world, "one", list, "team-a");
    assert_eq!(world.lease_of("one")["profile"], "2g.12gb");
    let line = said(&mut asking(&world, "two", list, "team-a")).refused();
    has(
        &line,
        "namespace team-a has 11968Mi of 12Gi of memory, and ",
    );
    has(&line, "Mi are asked for ([[policy.limit]] 1)");
    create(&world, "three", "1g.6gb", "team-b");
    world.all_go(&["one", "three"]);
}

#[test]
fn profiles_that_nobody_may_have() {
    let world = World::small();
    world.configure("[policy]\nprofiles = [\"2g.*\"]\n");
    let why = "4g.24gb is not allowed (policy.profiles); hint: request 2g.*";
    refused(&world, "one", "4g.24gb", "n", why);
    let why = "no profile that policy.profiles allows has 20Gi of memory";
    refused(&world, "three", "20Gi", "n", why);
    // The smallest that it may have.
    create(&world, "two", "1Gi", "n");
    assert_eq!(world.lease_of("two")["profile"], "2g.12gb");
    world.all_go(&["two"]);
}

#[test]
fn gpus_that_are_for_others() {
    let world = World::of(SMALL, 3);
    let text = "[policy]\nexclude_gpus = [0]\n\
                [[policy.reserve]]\ngpus = [1]\nnamespace = \"team-a\"\n";
    world.configure(text);
    let gpu = |id: &str| world.lease_of(id)["gpuIndex"].as_u64().unwrap();
    create(&world, "b", "4g.24gb", "team-b");
    assert_eq!(gpu("b"), 2);
    let why = "cannot allocate 4g.24gb: too few memory slices are free";
    refused(&world, "c", "4g.24gb", "team-b", why);
    create(&world, "a", "4g.24gb", "team-a");
    assert_eq!(gpu("a"), 1);
    world.all_go(&["a", "b"]);
}

/// The login counts, whatever root of that login says of itself.
#[test]
fn limits_user_by_login() {
    let world = World::small();
    world.configure("[[policy.limit]]\nuser = \"*\"\nslices = 1\n");
    let logged_in = |user: u32, id: &str| {
        let create = asking(&world, id, world.profile, "n");
        let mut shell = Command::new("/bin/sh");
        let script = format!("echo {user} >/proc/self/loginuid && exec \"$@\"");
        shell.args(["-c", &script, "sh"]).arg(create.get_program());
        shell.args(create.get_args()).env_clear();
        for (name, value) in create.get_envs() {
            value.map(|value| shell.env(name, value));
        }
        shell
    };
    let mut tried = Command::new("/bin/sh");
    tried.args(["-c", "echo 1 >/proc/self/loginuid"]);
    if !Path::new("/proc/self/loginuid").exists() || !said(&mut tried).status.success() {
        skip("the kernel keeps no logins, or this is one");
        return;
    }
    said(&mut logged_in(1000, "one")).ok();
    let why = "user 1000 has 1 of 1 slices ([[policy.limit]] 1)";
    said(&mut logged_in(1000, "two")).refused_for(why);
    said(&mut logged_in(2000, "three")).ok();
    // A daemon's containers belong to no user.
    create(&world, "four", world.profile, "n");
    create(&world, "five", world.profile, "n");
    world.all_go(&["one", "three", "four", "five"]);
}

/// A waiting request reserves nothing on GPUs that it may not use.
#[test]
fn excluded_request_blocks_no_other() {
    let world = World::of(SMALL, 2);
    world.configure("[[policy.reserve]]\ngpus = [1]\nnamespace = \"team-a\"\n");
    create(&world, "one", "2g.12gb", "team-b");
    let large = world.waits("large", &[("runmig.dev/slice", "4g.24gb")]);
    create(&world, "two", world.profile, "team-a");
    assert_eq!(world.lease_of("two")["gpuIndex"], 1);
    let why = "the free slots are reserved for 1 earlier request";
    refused(&world, "three", world.profile, "team-b", why);
    world.delete("one");
    large.end().ok();
    world.all_go(&["large", "two"]);
}
