//! The limit holds, and the end of one container is nobody else's.

use super::*;

fn limits_each_container(low: Low) {
    let setup = on(low);
    let bundle = asking(&setup, "8Gi");
    cuda::put(&bundle, &setup.machine, &["-"]);
    let (before, one) = (bundle.bytes(), unique());
    let mut first = Client::of(&mut setup.command(&["run", "-b", bundle.as_str(), &one]));
    // CUDA's total stays that of the whole GPU. Only free shows the limit.
    let info = format!("total 22522 free {}", 8192 - CONTEXT);
    assert_eq!(first.say("info"), info);
    let shown = testkit::sharing::ready(&setup, &one);
    assert_eq!([&shown["kind"], &shown["enforcement"]], ["share", "mps"]);
    assert_eq!(shown["memoryBytes"], 8u64 << 30);
    // The server of the daemon is booked on top.
    assert_eq!(shown["bookedBytes"], (8192u64 + 128) << 20);
    assert_eq!(shown["daemon"]["alive"], true);

    let (two, _, mut second) = client(&setup, "5000Mi");
    assert_eq!(free(&mut second), 5000 - CONTEXT);
    // A container that takes all that it finds gets its own share, and the others go on.
    assert_eq!(second.say("fill 16"), "filled 4736");
    assert_eq!(second.say("alloc 64"), "error CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(first.say("alloc 4096"), "ok");
    let used = setup.lease(&two);
    assert_eq!(used["usedBytes"], (CONTEXT + 4736) << 20);
    assert_eq!(used["overBytes"], 0);
    let gpus = setup.tells(&["gpus"]);
    let booked = format!("{}Mi of 22522Mi in 2 shares", 8320 + 5128);
    has(&gpus, &booked);
    second.end();
    assert_eq!(first.say("launch 1"), "ok");
    first.end();
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

testkit::tests! {
    runc_limits_each_container: limits_each_container(Low::Runc);
    crun_limits_each_container: limits_each_container(Low::Crun);
}

#[test]
fn fraction_contains_its_overhead() {
    let setup = on(Low::Runc);
    let mut all: Vec<_> = (0..4).map(|_| client(&setup, "1/4")).collect();
    for (id, _, client) in &mut all {
        assert_eq!(free(client), 22522 / 4 - 128 - CONTEXT);
        assert_eq!(setup.lease(id)["bookedBytes"], (22522u64 / 4) << 20);
    }
    for (_, _, client) in all {
        client.end();
    }
    setup.nothing_is_left();
}

#[test]
fn exec_and_other_users_are_held() {
    let setup = on(Low::Runc);
    let (id, _, mut first) = client(&setup, "4Gi");
    assert_eq!(free(&mut first), 4096 - CONTEXT);
    for options in [&[][..], &["--user", "1000:1000"]] {
        let mut client = Client::exec(&setup, &id, options);
        // The limit is for each process.
        assert_eq!(free(&mut client), 4096 - CONTEXT, "{options:?}");
        client.end();
    }
    first.end();
    setup.nothing_is_left();
}

/// Failure: a fault, or a kill inside a kernel, of one container with a share at `mps`
#[test]
fn kill_ends_no_other_containers_work() {
    let setup = on(Low::Runc);
    let (_, bundle, mut first) = client(&setup, "4Gi");
    let (_, _, mut second) = client(&setup, "4Gi");
    let (_, _, mut third) = client(&setup, "4Gi");
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.say("alloc 64"), "ok");
    }
    assert_eq!(first.say("spin"), "ok");
    let init = in_cgroup(&bundle.cgroup());
    init.into_iter().for_each(kill);
    assert_eq!(third.say("fault"), "error CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(second.say("launch 1"), "ok");
    until("the first share is released", || setup.leases().len() == 2);
    assert_eq!(second.say("launch 1"), "ok");
    drop(first);
    third.end();
    second.end();
    setup.nothing_is_left();
}

#[test]
fn container_gets_socket_alone() {
    let setup = on(Low::Runc);
    let bundle = asking(&setup, "4Gi");
    let script = "echo SOCKET $(ls /tmp/nvidia-mps); echo x >/tmp/nvidia-mps/x; find /dev -name 'nvidia*' -type c -exec ls -l \
                  '{}' ';'; env";
    bundle.edit(|config| {
        config["process"]["args"] = json!(["/bin/sh", "-c", script]);
        config["root"]["readonly"] = false.into();
    });
    bundle.set_env(&["CUDA_MPS_PIPE_DIRECTORY=/elsewhere"]);
    let said = setup.run(&bundle);
    begins_with(&said.stdout, "SOCKET control\n");
    has(&said.stderr, "Read-only file system");
    assert!(!said.stdout.contains("CUDA_MPS"), "{}", said.stdout);
    assert!(!nodes(&said.stdout).keys().any(|node| node.contains("caps")));
    let fraction = 4096.0 / 22522.0 - 0.00005;
    said.says(&format!("RUNMIG_GPU_MEMORY_FRACTION={fraction:.4}\n"));
    setup.nothing_is_left();
}

/// Failure: the engine has a narrow umask
#[test]
fn umask_of_engine_keeps_limit() {
    let setup = on(Low::Runc);
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    cuda::put(&bundle, &setup.machine, &["-"]);
    bundle.edit(|config| {
        config["process"]["user"] = json!({"uid": 1000, "gid": 1000});
    });
    // The low-level runtime makes mount points under that umask too.
    let machine = setup.machine.dir();
    let rootfs = bundle.path.join("rootfs");
    fs::create_dir_all(rootfs.join(machine.strip_prefix("/").unwrap())).unwrap();
    let run = setup.command(&["run", "-b", bundle.as_str(), &id]);
    let mut under_umask = Command::new("sh");
    under_umask.args(["-c", "umask 0077; exec \"$0\" \"$@\""]);
    under_umask.arg(run.get_program()).args(run.get_args());
    under_umask.env("RUNMIG_CONFIG", setup.config());
    let mut client = Client::of(&mut under_umask);
    assert_eq!(free(&mut client), 4096 - CONTEXT);
    client.end();
    setup.nothing_is_left();
}
