//! `[policy]` by the login of a user; the rest of it is in `sessions/limits.txt`.

use testkit::prelude::*;

const NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";

fn asking(world: &World, id: &str) -> Command {
    let all = [("runmig.dev/slice", world.profile), (NAMESPACE, "n")];
    world.bundle_saying(id, &all);
    world.create_command(id)
}

/// The login counts, whatever root of that login says of itself.
#[test]
fn limits_user_by_login() {
    let world = World::small();
    world.configure("[[policy.limit]]\nuser = \"*\"\nslices = 1\n");
    let logged_in = |user: u32, id: &str| {
        let create = asking(&world, id);
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
    said(&mut asking(&world, "four")).ok();
    said(&mut asking(&world, "five")).ok();
    world.all_go(&["one", "three", "four", "five"]);
}
