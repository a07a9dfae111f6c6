//! MPS's memory limits. The rows are those of sharing.md, "MPS: setting and reading the limit" and
//! "MPS: how far the limit holds", measured on an H100 with driver 580.

mod common;

use common::{Client, Daemon, Machine, h100};

/// "CUDA's total stays the whole GPU; only free shows the limit".
#[test]
fn shows_limit_in_free_memory() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    assert_eq!(daemon.client().ask("info"), "total 81079 free 3580");
}

/// "The limit is exact to the MiB" with what could be allocated in 16 MiB blocks, and 4 GiB in 64.
#[test]
fn allocates_up_to_limit() {
    let machine = h100();
    let rows = [
        ("20141M", 19625, 16, 19616),
        ("3000M", 2484, 16, 2480),
        ("1536M", 1020, 16, 1008),
        ("4G", 3580, 64, 3520),
    ];
    for (limit, free, block, filled) in rows {
        let daemon = Daemon::start(&machine, "-M").limited(limit);
        let mut client = daemon.client();
        assert_eq!(client.free(), free, "{limit}");
        assert_eq!(
            client.ask(&format!("fill {block}")),
            format!("filled {filled}")
        );
        assert_eq!(client.ask("alloc 64"), "error CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(client.ask("free"), "ok");
        assert_eq!(client.free(), free, "{limit}");
    }
}

/// "Under 100M no client starts: cudaErrorMemoryAllocation".
#[test]
fn refuses_context_above_limit() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("100M");
    let output = machine
        .client_program(&daemon.pipes)
        .arg("info")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"error CUDA_ERROR_OUT_OF_MEMORY\n");
}

/// "The limit is for each process".
#[test]
fn limits_each_process() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let (mut one, mut other) = (daemon.client(), daemon.client());
    assert_eq!(one.ask("fill 64"), "filled 3520");
    assert_eq!(other.ask("fill 64"), "filled 3520");
}

/// "on 580 it is": managed memory under 4 GiB.
#[test]
fn limits_managed_memory() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let mut client = daemon.client();
    assert_eq!(client.ask("managed 3328"), "ok");
    assert_eq!(client.ask("managed 1024"), "error CUDA_ERROR_OUT_OF_MEMORY");
}

/// The answers of `get_default_device_pinned_mem_limit`, and values taken without a word.
#[test]
fn reads_default_back_in_units() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M");
    let rows = [
        ("8G", "8G"),
        ("3072M", "3G"),
        ("5000M", "4G"),
        ("20141M", "19G"),
        ("100M", "100M"),
        ("1.5G", "1M"),
        ("-1G", "17179869183G"),
    ];
    for (value, answer) in rows {
        assert_eq!(
            daemon.control(&format!("set_default_device_pinned_mem_limit 0 {value}")),
            ""
        );
        assert_eq!(
            daemon.control("get_default_device_pinned_mem_limit 0"),
            answer,
            "{value}"
        );
    }
}

/// "`nonsense` or `0G` removes the limit".
#[test]
fn removes_limit_by_bad_value() {
    let machine = h100();
    for value in ["nonsense", "0G"] {
        let daemon = Daemon::start(&machine, "-M").limited("4G").limited(value);
        assert_eq!(daemon.client().free(), 81079 - 72 - 516, "{value}");
    }
}

/// "A default that is set later does not bind the running server"; the server's own limit binds
/// the next client.
#[test]
fn applies_new_limits_to_next() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let mut first = daemon.client();
    assert_eq!(first.free(), 3580);
    let daemon = daemon.limited("8G");
    assert_eq!(daemon.client().free(), 3580);
    let server = daemon.server();
    assert_eq!(
        daemon.control(&format!("get_device_pinned_mem_limit {server} 0")),
        "4G"
    );
    let command = format!("set_device_pinned_mem_limit {server} 0 60G");
    assert_eq!(daemon.control(&command), "");
    assert_eq!(
        daemon.control(&format!("get_device_pinned_mem_limit {server} 0")),
        "60G"
    );
    assert_eq!(daemon.client().free(), 60 * 1024 - 516);
    assert_eq!(first.free(), 3580);
}

/// "A limit set by the GPU's UUID alone holds. It is not shown under the ordinal, and the daemon
/// does not check the device".
#[test]
fn sets_limit_by_uuid() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M");
    let uuid = machine.gpu_uuid(0);
    daemon.control(&format!("set_default_device_pinned_mem_limit {uuid} 4G"));
    daemon.control("set_default_device_pinned_mem_limit 7 1G");
    assert_eq!(
        daemon.control("get_default_device_pinned_mem_limit 7"),
        "1G"
    );
    assert_ne!(
        daemon.control("get_default_device_pinned_mem_limit 0"),
        "4G"
    );
    assert_eq!(daemon.client().free(), 3580);
}

/// The table of `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, all with all SM.
#[test]
fn obeys_environment_of_client() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let uuid = machine.gpu_uuid(0);
    let unlimited = 81079 - 72 - 516;
    let free = |pipes, value: &str| {
        let mut program = machine.client_program(pipes);
        program.env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", value);
        Client::start(&mut program).free()
    };
    let rows = [
        ("0=2G".to_owned(), 1532),
        (format!("{uuid}=2G"), 1532),
        ("0=16G".to_owned(), 3580),
        ("1=4G".to_owned(), unlimited),
        (
            "GPU-00000000-0000-0000-0000-000000000000=4G".to_owned(),
            unlimited,
        ),
        ("0=2G,1=4G".to_owned(), unlimited),
        ("rubbish".to_owned(), unlimited),
        ("0=0G".to_owned(), unlimited),
    ];
    for (value, expected) in rows {
        assert_eq!(free(&daemon.pipes, &value), expected, "{value}");
    }
    // "without a daemon limit it gives 15.50".
    let pipes = machine.dir().join("unlimited");
    let daemon = Daemon::start_in(&machine, &pipes, "-M", &[]);
    assert_eq!(free(&daemon.pipes, "0=16G"), 16 * 1024 - 516);
}

/// "`CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` there does not" work: in the daemon's environment.
#[test]
fn ignores_limit_in_daemon_environment() {
    let machine = h100();
    let limit = [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=5G")];
    let daemon = Daemon::start_in(&machine, &machine.dir().join("pipes"), "-M", &limit);
    assert_eq!(daemon.client().free(), 81079 - 72 - 516);
}

/// "confines its server to that GPU, which is then device 0 for limits and clients".
#[test]
fn confines_daemon_to_gpu() {
    let machine = Machine::new("--gpu L4-24GB --gpu H100-80GB --mig off");
    let uuid = machine.gpu_uuid(1);
    let confined = [("CUDA_VISIBLE_DEVICES", uuid.as_str())];
    let daemon = Daemon::start_in(&machine, &machine.dir().join("pipes"), "-M", &confined);
    let daemon = daemon.limited("4G");
    assert_eq!(daemon.client().ask("info"), "total 81079 free 3580");
    for name in ["0", &uuid] {
        let mut program = machine.client_program(&daemon.pipes);
        program.env("CUDA_VISIBLE_DEVICES", name);
        assert_eq!(Client::start(&mut program).free(), 3580, "{name}");
    }
}

/// A GPU that others have filled has nothing left, whatever the limit.
#[test]
fn allocates_up_to_free_memory() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("8G");
    let mut plain = machine.plain_client();
    assert_eq!(plain.ask("alloc 78000"), "ok");
    let mut client = daemon.client();
    let free = 81079 - 78516 - 72 - 516;
    assert_eq!(client.free(), free);
    assert_eq!(
        client.ask(&format!("alloc {}", free + 1)),
        "error CUDA_ERROR_OUT_OF_MEMORY"
    );
    assert_eq!(client.ask(&format!("alloc {free}")), "ok");
    assert_eq!(plain.ask("alloc 1"), "error CUDA_ERROR_OUT_OF_MEMORY");
}
