//! The limit holds for all processes of the container together, and for nobody else.

use super::*;
use testkit::has;

fn free(client: &mut Client) -> (u64, u64) {
    let said = client.say("info");
    let number = |at: usize| said.split(' ').nth(at).and_then(|word| word.parse().ok());
    let found = number(1).zip(number(3));
    found.unwrap_or_else(|| panic!("{said}"))
}

fn limits_container_as_whole(low: Low, keeper: Keeper) {
    let setup = on(low, keeper);
    let (one, bundle, mut first) = client(&setup, "8Gi");
    // CUDA shows the share as the GPU's size, so programs that size themselves by it need no change.
    assert_eq!(free(&mut first), (8192, 8192 - CONTEXT));
    let shown = setup.lease(&one);
    assert_eq!(shown["kind"], "share");
    assert_eq!(shown["enforcement"], "driver");
    // The level needs no memory of its own.
    assert_eq!(shown["memoryBytes"], 8192 * MIB);
    assert_eq!(shown["bookedBytes"], 8192 * MIB);
    assert!(shown["daemon"].is_null(), "{shown}");
    let cgroup = format!("/{}", bundle.cgroup());
    assert_eq!(limits(&setup), [(cgroup, 8192 * MIB)]);

    // A second process of the container gets the rest alone.
    assert_eq!(first.say("alloc 4096"), "ok");
    let mut beside = Client::exec(&setup, &one, &[]);
    let rest = 8192 - 4096 - 2 * CONTEXT;
    assert_eq!(free(&mut beside), (8192, rest));
    let more = beside.say(&format!("alloc {}", rest + 1));
    assert_eq!(more, "error CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(beside.say(&format!("alloc {rest}")), "ok");
    assert_eq!(first.say("alloc 1"), "error CUDA_ERROR_OUT_OF_MEMORY");
    let full = setup.lease(&one);
    assert_eq!(full["usedBytes"], 8192 * MIB);
    assert_eq!(full["overBytes"], 0);

    // Another container has its own share meanwhile.
    let (_, _, mut second) = client(&setup, "5000Mi");
    assert_eq!(free(&mut second), (5000, 5000 - CONTEXT));
    assert_eq!(second.say("fill 4"), format!("filled {}", 5000 - CONTEXT));
    has(&setup.tells(&["gpus"]), "13192Mi of 81079Mi in 2 shares");
    beside.end();
    first.end();
    assert_eq!(second.say("launch 1"), "ok");
    second.end();
    setup.nothing_is_left();
}

testkit::tests! {
    runc_limits_container_as_whole: limits_container_as_whole(Low::Runc, Keeper::Misc);
    dmem_limits_container_as_whole: limits_container_as_whole(Low::Runc, Keeper::Dmem);
    new_crun_limits_container_as_whole: limits_container_as_whole(Low::NewCrun, Keeper::Misc);
}

/// "Not held: managed memory", from both sides.
#[test]
fn managed_memory_is_outside_limit() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, _, mut client) = client(&setup, "2Gi");
    assert_eq!(client.say("managed 4096"), "ok");
    assert_eq!(client.say("alloc 1024"), "ok");
    let shown = setup.lease(&id);
    let used = (4096 + 1024 + CONTEXT) * MIB;
    assert_eq!(shown["usedBytes"], used);
    assert_eq!(shown["overBytes"], used - 2048 * MIB);
    client.end();
    setup.nothing_is_left();
}

#[test]
fn limit_is_there_before_start() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    let before = bundle.bytes();
    setup.create(&bundle, &id);
    let cgroup = format!("/{}", bundle.cgroup());
    assert_eq!(limits(&setup), [(cgroup, 4096 * MIB)]);
    let hooks = bundle.config()["hooks"].clone();
    let first = |stage: &str| hooks[stage][0]["args"].clone();
    let lease = setup.the_lease()["id"].as_str().unwrap().to_owned();
    let args: Vec<Value> = first("createRuntime").as_array().unwrap().clone();
    assert_eq!(args[..4], ["runmig-hook", "--limit", "--lease", &lease]);
    assert_eq!(first("poststop")[2], lease.as_str());
    setup.delete(&id);
    assert_eq!(bundle.bytes(), before);
    setup.nothing_is_left();

    // The limit has gone with its cgroup: another container in a cgroup of that name has its own.
    bundle.annotate(SHARE, "2Gi");
    let mut second = Client::run(&setup, &bundle, &unique());
    assert_eq!(free(&mut second), (2048, 2048 - CONTEXT));
    second.end();
    setup.nothing_is_left();
}

#[test]
fn other_users_and_environment_are_held() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    bundle.set_env(&[
        "CUDA_MPS_PIPE_DIRECTORY=/elsewhere",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=60G",
        "NVIDIA_GPU_MEMORY_LIMIT=60000",
    ]);
    let mut first = Client::run(&setup, &bundle, &id);
    assert_eq!(free(&mut first), (4096, 4096 - CONTEXT));
    let env = bundle.config()["process"]["env"].to_string();
    has(&env, "RUNMIG_GPU_MEMORY_FRACTION=1.0000");
    assert!(!env.contains("CUDA_MPS"), "{env}");
    assert!(!env.contains("NVIDIA_GPU_MEMORY"), "{env}");
    let around = ["--env", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=4G"];
    for options in [&["--user", "1000:1000"][..], &around] {
        let mut client = Client::exec(&setup, &id, options);
        assert_eq!(free(&mut client), (4096, 4096 - 2 * CONTEXT), "{options:?}");
        client.end();
    }
    first.end();
    setup.nothing_is_left();
}
