//! Ways out of the limit, each from inside of a container, with the outcome that docs/sharing-limits.md states.

use super::*;

/// Lets the processes of a bundle's container have capabilities, and write to its root.
fn with_rights(bundle: &Bundle, rights: &[&str]) {
    bundle.edit(|config| {
        config["root"]["readonly"] = json!(false);
        for set in ["bounding", "effective", "permitted"] {
            let set = config["process"]["capabilities"][set].as_array_mut();
            set.unwrap().extend(rights.iter().map(|right| json!(right)));
        }
    });
}

/// A script in a container, with what a client needs.
fn shell(setup: &Setup, holder: &Holder, script: &str) -> Command {
    let library = cuda::library(&setup.machine);
    let exec = ["exec", "--env", &library, &holder.id];
    setup.command(&[&exec[..], &["/bin/sh", "-c", script]].concat())
}

/// Runs a script in a container, and returns what it says.
#[track_caller]
fn inside(setup: &Setup, holder: &Holder, script: &str) -> String {
    let said = said(&mut shell(setup, holder, script)).ok();
    said.stdout + &said.stderr
}

/// Starts a client by a script in a container, which ends with the client.
fn client_after(setup: &Setup, holder: &Holder, script: &str) -> Client {
    let script = format!("{script}\nexec {} -", cuda::CLIENT);
    Client::of(&mut shell(setup, holder, &script))
}

#[test]
fn environment_lifts_limit_by_two_variables() {
    let setup = on_two(Low::Runc);
    let holder = Holder::start(&setup);
    for (variable, expected, is_around) in testkit::rows! {
        "CUDA_MPS_PIPE_DIRECTORY=/nowhere", None => true;
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=rubbish", None => false;
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=4G", None => false;
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=0G", None => false;
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=16G", Some(HELD) => false;
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G", Some(2048 - CONTEXT) => false;
        "CUDA_MPS_LOG_DIRECTORY=/nowhere", Some(HELD) => false;
        "CUDA_VISIBLE_DEVICES=0", Some(HELD) => false;
    } {
        let (mut client, pid) = holder.exec(&setup, &["--env", variable]);
        let free = free(&mut client);
        let is_right = expected.map_or(free > MEMORY, |e| free == e);
        assert!(is_right, "{variable}: {free}");
        let around = if is_around { vec![pid] } else { Vec::new() };
        holder.shows(&setup, &around, None, false);
        client.end();
    }
    // Another GPU is not there, with MPS and without.
    for more in [&[][..], &ELSEWHERE] {
        let library = cuda::library(&setup.machine);
        let first = ["exec", "--env", &library, "--env", "CUDA_VISIBLE_DEVICES=1"];
        let last = [&holder.id, cuda::CLIENT, "info"];
        let said = setup.runmig(&[&first[..], more, &last].concat());
        assert_eq!(said.exits(1).stdout, "error CUDA_ERROR_NO_DEVICE\n");
    }
    holder.end(&setup);
}

/// Root of the container changes the running server alone: docs/sharing-limits.md names the limit, which shows.
#[test]
fn root_reaches_only_its_own_server() {
    let setup = on(Low::Runc);
    let mut neighbour = Holder::start(&setup);
    let mut holder = Holder::start(&setup);
    let (server, other) = (holder.server(&setup), neighbour.server(&setup));
    let tell = |command: &str| holder.tell(&setup, &[], command);
    assert_eq!(tell("get_server_list"), format!("{server}\n"));
    let refused = tell("set_default_device_pinned_mem_limit 0 16G");
    begins_with(&refused, "Insufficient privileges for UID 0.");
    assert!(tell("quit").starts_with("Not enough privilege"));
    assert!(lives(holder.daemon(&setup)));
    assert_eq!(tell("start_server -uid 1000"), "");
    assert_eq!(holder.server(&setup), server);
    // A neighbour's server and clients are not those of this daemon.
    let raise = format!("set_device_pinned_mem_limit {other} 0 16G");
    tell(&raise);
    neighbour.shows(&setup, &[], None, false);
    holder.shows(&setup, &[], None, false);
    let (mut second, pid) = holder.exec(&setup, &[]);
    let mut victims = neighbour.pids();
    victims.retain(|pid| is_client(*pid));
    for victim in &victims {
        assert!(tell(&format!("terminate_client {server} {victim}")).contains("not found"));
    }
    assert_eq!(neighbour.first.say("launch 1"), "ok");
    // Root may end the work of its own siblings.
    assert_eq!(tell(&format!("terminate_client {server} {pid}")), "0\n");
    assert!(second.say("launch 1").starts_with("error "));
    assert_eq!(holder.first.say("launch 1"), "ok");
    drop(second);
    neighbour.first.end();
    holder.end(&setup);
}

#[test]
fn another_uid_only_looks() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    let server = holder.server(&setup);
    let (mut second, pid) = holder.exec(&setup, &[]);
    let tell = |command: &str| holder.tell(&setup, &["--user", "1000:1000"], command);
    assert_eq!(tell("get_server_list"), format!("{server}\n"));
    let limit = tell(&format!("get_device_pinned_mem_limit {server} 0"));
    assert_eq!(limit, "4G\n");
    for refused in [
        format!("set_device_pinned_mem_limit {server} 0 16G"),
        "set_default_device_pinned_mem_limit 0 16G".to_owned(),
        format!("terminate_client {server} {pid}"),
    ] {
        let said = tell(&refused);
        begins_with(&said, "Insufficient privileges for UID 1000.");
    }
    assert!(tell("quit").starts_with("Not enough privilege"));
    holder.shows(&setup, &[], None, false);
    assert_eq!(second.say("launch 1"), "ok");
    assert_eq!(holder.first.say("launch 1"), "ok");
    second.end();
    holder.end(&setup);
}

/// Root of a user namespace with shifted ids is another user for the daemon.
#[test]
fn shifted_root_raises_no_limit() {
    let setup = on(Low::Runc);
    let (id, bundle) = (unique(), setup.bundle("exec sleep 1000"));
    bundle.annotate(SHARE, "4Gi");
    cuda::put(&bundle, &setup.machine, &["-"]);
    bundle.shift_ids();
    let mut shift = Command::new("chown");
    shift.args(["-R", "100000:100000"]);
    said(shift.arg(bundle.path.join("rootfs"))).ok();
    let first = Client::of(&mut setup.on_its_dev(&["run", "-b", bundle.as_str(), &id]));
    let holder = Holder::of(&setup, id, bundle, first);
    let said = holder.raises(&setup);
    begins_with(&said, "Insufficient privileges for UID 100000.");
    holder.shows(&setup, &[], None, false);
    holder.end(&setup);
}

/// A daemon in the container has no limit. Its server is no client of any daemon, and so it shows.
#[test]
fn own_daemon_shows_by_its_server() {
    let setup = on(Low::Runc);
    let mut holder = Holder::with(&setup, |bundle| {
        with_rights(bundle, &[]);
        bundle.edit(|config| {
            // The simulated daemon knows processes by their numbers in its own namespace.
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.retain(|namespace| namespace["type"] != "pid");
        });
    });
    let own = ["--env", "CUDA_MPS_PIPE_DIRECTORY=/tmp/own"];
    let program = control(&setup);
    let run = [&holder.id, program.to_str().unwrap(), "-f", "-M"];
    let mut daemon = going(&mut setup.command(&[&["exec"], &own[..], &run].concat()));
    let socket = holder.bundle.path.join("rootfs/tmp/own/control");
    until("it listens", || {
        assert!(daemon.ended().is_none(), "{}", daemon.said_so_far());
        socket.exists()
    });
    let (mut unheld, pid) = holder.exec(&setup, &own);
    assert!(free(&mut unheld) > MEMORY);
    let lease = holder.lease(&setup);
    let around = lease["around"].as_array().unwrap();
    assert_eq!(around.len(), 1, "{lease:#}");
    let server = i32::try_from(around[0].as_i64().unwrap()).unwrap();
    let is_its = server != pid && holder.pids().contains(&server);
    assert!(is_its, "{lease:#}");
    assert_eq!(holder.first.say("launch 1"), "ok");
    drop((unheld, daemon));
    holder.dies(&setup);
}

#[test]
fn socket_cannot_be_unmounted_without_rights() {
    let setup = on(Low::Runc);
    let holder = Holder::with(&setup, |bundle| with_rights(bundle, &[]));
    let script = "/bin/busybox umount /tmp/nvidia-mps; /bin/busybox mount -t tmpfs none /tmp/nvidia-mps; \
                  /bin/busybox rm /tmp/nvidia-mps/control; /bin/busybox mv /tmp/nvidia-mps /tmp/away; \
                  /bin/busybox rmdir /tmp/nvidia-mps; true";
    let said = inside(&setup, &holder, script);
    assert_eq!(said.lines().count(), 5, "{said}");
    let (mut next, _) = holder.exec(&setup, &[]);
    assert_eq!(free(&mut next), HELD);
    holder.shows(&setup, &[], None, false);
    next.end();
    holder.end(&setup);
}

#[test]
fn mount_over_socket_is_around() {
    let setup = on(Low::Runc);
    let mut neighbour = Holder::start(&setup);
    for script in [
        "mount -t tmpfs none /tmp/nvidia-mps",
        "umount /tmp/nvidia-mps",
        "mount -o remount,bind,rw /tmp/nvidia-mps && /bin/busybox rm /tmp/nvidia-mps/control",
    ] {
        let holder = Holder::with(&setup, |bundle| with_rights(bundle, &["CAP_SYS_ADMIN"]));
        inside(&setup, &holder, &format!("/bin/busybox {script}"));
        let (mut unheld, pid) = holder.exec(&setup, &[]);
        assert!(free(&mut unheld) > MEMORY, "{script}");
        holder.shows(&setup, &[pid], None, false);
        neighbour.shows(&setup, &[], None, false);
        unheld.end();
        holder.first.end();
    }
    let (mut next, _) = neighbour.exec(&setup, &[]);
    assert_eq!(free(&mut next), HELD);
    next.end();
    assert_eq!(neighbour.first.say("launch 1"), "ok");
    neighbour.end(&setup);
}

#[test]
fn nodes_of_other_gpus_stay_shut() {
    let setup = on_two(Low::Runc);
    let devices = fs::read_to_string(setup.machine.dir().join("proc/devices")).unwrap();
    let mut majors = devices
        .lines()
        .filter_map(|line| line.trim().strip_suffix(" nvidia"));
    let major = majors.next().unwrap_or_else(|| panic!("{devices}"));
    let holder = Holder::with(&setup, |bundle| with_rights(bundle, &["CAP_MKNOD"]));
    let script = format!(
        "for n in 0 1; do /bin/busybox mknod /tmp/n$n c {major} $n; ( : </tmp/n$n ) 2>&1; done; \
         ls /dev | /bin/busybox grep nvidia"
    );
    let said = inside(&setup, &holder, &script);
    let why = |node: &str| {
        let line = said.lines().find(|line| line.contains(node));
        line.unwrap_or_else(|| panic!("{said}")).to_lowercase()
    };
    // No driver is behind the nodes: the granted one passes the kernel's rule.
    assert!(why("/tmp/n0").contains("no such device"), "{said}");
    assert!(why("/tmp/n1").contains("not permitted"), "{said}");
    assert!(!said.lines().any(|line| line == "nvidia1"), "{said}");
    holder.end(&setup);
}

/// A container with a writable cgroup mount has its own cgroup and those below, in which it stays visible.
#[test]
fn move_below_own_cgroup_stays_visible() {
    let setup = on(Low::Runc);
    let mut holder = Holder::with(&setup, |bundle| {
        with_rights(bundle, &[]);
        bundle.edit(|config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.retain(|mount| mount["destination"] != "/sys/fs/cgroup");
            let options = json!(["nosuid", "noexec", "nodev", "rw"]);
            mounts.push(json!({
                "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": options,
            }));
        });
    });
    let script = "for at in /sys/fs/cgroup /sys/fs/cgroup/*; do
        mkdir $at/below && [ -e $at/below/cgroup.procs ] || continue
        for file in cpuset.cpus cpuset.mems; do [ ! -e $at/$file ] || cat $at/$file >$at/below/$file; done
        echo 0 >$at/below/cgroup.procs
        echo 0 >$at/../cgroup.procs
        done 2>/dev/null
        export CUDA_MPS_PIPE_DIRECTORY=/nowhere";
    let before = holder.pids();
    let mut unheld = client_after(&setup, &holder, script);
    assert!(free(&mut unheld) > MEMORY);
    let mut moved: Vec<i32> = holder.pids().difference(&before).copied().collect();
    moved.retain(|pid| is_client(*pid));
    assert_eq!(moved.len(), 1, "{moved:?}");
    let where_it_is = fs::read_to_string(format!("/proc/{}/cgroup", moved[0])).unwrap();
    has(&where_it_is, "/below");
    holder.shows(&setup, &moved, None, false);
    drop(unheld);
    assert_eq!(holder.first.say("launch 1"), "ok");
    holder.end(&setup);
}

/// With the host's cgroups in the container, as no engine mounts them by itself, a process can leave. It is foreign on
/// the GPU then, and its memory counts as taken.
#[test]
fn process_outside_its_cgroup_is_foreign() {
    let setup = on(Low::Runc);
    let mut holder = Holder::with(&setup, |bundle| {
        with_rights(bundle, &[]);
        bundle.mount([bind("/sys/fs/cgroup", "/cgroups", &["rbind", "rw"])]);
    });
    let script = "for at in /cgroups /cgroups/*; do [ ! -e $at/cgroup.procs ] || echo 0 >$at/cgroup.procs; done 2>/dev/null
        export CUDA_MPS_PIPE_DIRECTORY=/nowhere";
    let mut gone = client_after(&setup, &holder, script);
    assert_eq!(gone.say("alloc 2000"), "ok");
    holder.shows(&setup, &[], None, false);
    let used = holder.lease(&setup)["usedBytes"].as_u64();
    assert_eq!(used, Some(CONTEXT << 20));
    let gpus = setup.json(&["gpus", "-o", "json"]);
    let foreign = &gpus["items"][0]["foreignBytes"];
    assert_eq!(*foreign, (2000 + CONTEXT) << 20, "{gpus:#}");
    // It is no process of the container for the collector either.
    let said = setup.tells(&["gc"]);
    assert!(!said.contains("bypass"), "{said}");
    assert_eq!(gone.say("launch 1"), "ok");
    gone.end();
    assert_eq!(holder.first.say("launch 1"), "ok");
    holder.end(&setup);
}

#[test]
fn many_processes_stay_held() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    let script = format!(
        "exec 3<&0; n=0; while [ $n -lt 60 ]; do {} info hold <&3 & n=$((n + 1)); done; wait",
        cuda::CLIENT
    );
    let (input, _end) = std::io::pipe().unwrap();
    let many = going(shell(&setup, &holder, &script).stdin(input));
    let answers = || {
        let said = many.said_so_far();
        let with = |start: &str| said.lines().filter(|line| line.starts_with(start)).count();
        (with("total "), with("error "), said)
    };
    until("each has its answer", || answers().0 + answers().1 == 60);
    // The server takes 48 clients, and the first is one of them. The others are refused, and do not compute.
    let (held, refused, said) = answers();
    assert_eq!((held, refused), (47, 13), "{said}");
    has(&said, "error CUDA_ERROR_DEVICE_UNAVAILABLE");
    let is_held =
        |line: &str| line.starts_with("error") || line.ends_with(&format!(" free {HELD}"));
    assert!(said.lines().all(is_held), "{said}");
    // Their contexts together are more than the share.
    holder.shows(&setup, &[], None, true);
    drop(many);
    assert_eq!(holder.first.say("launch 1"), "ok");
    holder.dies(&setup);
}
