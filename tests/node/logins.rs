//! Limits for the user who logged in, which the kernel keeps through sudo.

use super::install::configure;
use super::machine::{IMAGE, Node, quote};
use super::slices::{ASK, STAYS};

/// Allows each user one slice until this is dropped.
struct Limited<'a>(&'a Node);

impl Limited<'_> {
    #[track_caller]
    fn new(node: &Node) -> Limited<'_> {
        node.ok(&configure("[[policy.limit]]\nuser = \"*\"\nslices = 1\n"));
        Limited(node)
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        self.0.run(&configure(""));
    }
}

pub fn limits_a_login_user(node: &Node) {
    node.ok("useradd --create-home --shell /bin/bash alice
             echo 'alice ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/alice
             install -d -m700 -o alice -g alice ~alice/.ssh
             install -m600 -o alice -g alice ~/.ssh/authorized_keys ~alice/.ssh/
             id --user alice");
    let limited = Limited::new(node);
    let uid = node.ok("id --user alice");
    let start = |how: &str| {
        let script = quote(STAYS);
        format!(
            "podman --runtime runmig run {how} --network=none {ASK} {IMAGE} /bin/sh -c {script}"
        )
    };
    let run = start("--detach");
    let show = "echo $(cat /proc/self/loginuid)";
    let first = node.login("alice", &format!("{show}; sudo {run}"));
    assert!(first.ok().stdout.starts_with(&format!("{uid}\n")));
    let second = node.login("alice", &format!("sudo {run}")).exits(126);
    second.warns(&format!("user {uid} has 1 of 1 slices"));
    // A unit has no login user, and so no limit.
    node.ok(&format!("systemd-run --quiet --collect {}", start("")));
    node.until("[ \"$(migctl list -o json | grep -c '\"ready\"')\" = 2 ]");
    node.ok("podman rm --all --force --time=0");
    drop(limited);
    node.nothing_is_left();
}
