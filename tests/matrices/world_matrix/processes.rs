//! Processes that lack something, or were given something bad.

use crate::world_matrix::enter::{
    Inside, kept_namespace, kept_namespace_from, mounts, shell, through,
};
use crate::world_matrix::node::{FILLER, GONE, Node};
use testkit::faults::check;
use testkit::leftovers::remove_cgroup;
use testkit::prelude::*;

/// Programs and libraries under every name that runmig could look for, and that must never run.
pub fn hostile_environment(node: &Node) -> Inside {
    let dir = node.path("evil");
    fs::create_dir_all(&dir).unwrap();
    let program = "#!/bin/sh\necho this is hostile >&2\nexit 99\n";
    for name in "runc crun runmig runmig-slice runmig-hook nvidia-smi".split(' ') {
        testkit::runtimes::program(&dir.join(name), program);
    }
    for name in ["libnvidia-ml.so.1", "libnvidia-ml.so"] {
        fs::write(dir.join(name), "no library").unwrap();
    }
    let evil = dir.display();
    let mut inside = through(&["env"]);
    let variables = [
        format!("PATH={evil}:/usr/bin:/bin"),
        format!("HOME={evil}"),
        format!("TMPDIR={evil}/none"),
        format!("LD_LIBRARY_PATH={evil}"),
        format!("XDG_RUNTIME_DIR={evil}/none"),
        format!("NOTIFY_SOCKET={evil}/none"),
        "LD_BIND_NOW=1".to_owned(),
        "LISTEN_PID=not a number".to_owned(),
        "LISTEN_FDS=4294967295".to_owned(),
        "NVIDIA_VISIBLE_DEVICES=all".to_owned(),
        "CUDA_VISIBLE_DEVICES=".to_owned(),
        "RUST_BACKTRACE=full".to_owned(),
        "RUST_LOG=trace".to_owned(),
        "COLUMNS=0".to_owned(),
        "LANG=C.UTF-8\u{7}".to_owned(),
    ];
    inside.prefix.extend(variables);
    inside
}

/// A configuration that another user can change.
pub fn hostile_configuration(node: &Node) -> Inside {
    let file = node.path("anothers.toml");
    fs::write(&file, "state_dir = \"/nonexistent\"\n").unwrap();
    std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
    let variable = format!("RUNMIG_CONFIG={}", file.display());
    through(&["env", &variable])
}

/// In a cgroup that has room for the one process. `RLIMIT_NPROC` does not bind root.
pub fn no_more() -> Result<Inside, &'static str> {
    let name = format!("runmig-world-{}", unique());
    let hierarchies = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
    let made = hierarchies.iter().find_map(|hierarchy| {
        let dir = Path::new(hierarchy).join(&name);
        fs::create_dir(&dir).ok()?;
        let limited = fs::write(dir.join("pids.max"), "1").is_ok();
        limited.then_some(dir)
    });
    let Some(dir) = made else {
        remove_cgroup(&name);
        return Err("there is no cgroup controller for pids");
    };
    let inside = shell(&format!("echo $$ > {}/cgroup.procs", dir.display()));
    Ok(inside.and_leave(move || remove_cgroup(&name)))
}

/// A container is gone but for a process in its cgroup, which has another path in this namespace.
pub fn cgroup_namespace(node: &Node) -> Result<Inside, &'static str> {
    let options = &["--mount", "--cgroup"];
    // It would take the idle slice, or find no room.
    if node.has_idle() || node.has_lease(FILLER) {
        return Ok(kept_namespace(options, options));
    }
    let name = format!("runmig-world-{}", unique());
    let hierarchies = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(|h| Path::new(h).join(&name));
    let made = hierarchies
        .into_iter()
        .find(|dir| fs::create_dir_all(dir.join("one")).is_ok());
    let Some(dir) = made else {
        return Err("there is no cgroup controller for pids");
    };
    let behaviour = node.root().join("behaviour");
    let before = fs::read_to_string(&behaviour).unwrap_or_default();
    let lease = node.abandoned(GONE);
    node.behave(&before);
    let survivor = going(Command::new("sleep").arg("infinity"));
    fs::write(dir.join("one/cgroup.procs"), survivor.pid().to_string()).unwrap();
    check::rewrite(&node.state(), |_, body| {
        let mut leases = body["leases"].as_array_mut().unwrap().iter_mut();
        let its = leases.find(|l| l["id"] == lease.as_str());
        its.expect("a record")["cgroups"] = serde_json::json!([format!("/{name}/one")]);
    });
    let state = node.state();
    let inside = kept_namespace_from(Some(&dir), options, options);
    Ok(inside.and_leave(move || {
        let is_kept = check::records(&state).contains(&format!("lease {lease}"));
        survivor.kill();
        remove_cgroup(&name);
        let is_right = is_kept || std::thread::panicking();
        assert!(
            is_right,
            "the slice of a container that lives in its cgroup was taken"
        );
    }))
}

pub fn cgroup_v1(node: &Node) -> Result<Inside, &'static str> {
    let ours = fs::read_to_string("/proc/self/cgroup").unwrap();
    if !ours.contains(":name=systemd:") {
        return Err("the machine has no cgroup v1");
    }
    let script = "mount -t tmpfs cgroup /sys/fs/cgroup\n\
                  mkdir /sys/fs/cgroup/systemd\n\
                  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd";
    Ok(mounts(node, script))
}
