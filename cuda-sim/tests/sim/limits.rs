//! "MPS: setting and reading the limit" and "MPS: how far the limit holds", with driver 580. `src/limits.rs` has the
//! rows of values and of the client's environment.

use crate::common::{Daemon, h100};

/// "The limit is exact to the MiB" and for each process. Managed memory is in it, the context too, and CUDA's total
/// stays the whole GPU.
#[test]
fn holds_each_process_to_limit() {
    let machine = h100();
    for (limit, free) in [("20141M", 19625), ("1536M", 1020)] {
        let daemon = Daemon::start(&machine).limited(limit);
        for managed in [0, 512] {
            let mut client = daemon.client();
            assert_eq!(client.ask("info"), format!("total 81079 free {free}"));
            if managed > 0 {
                assert_eq!(client.ask(&format!("managed {managed}")), "ok");
            }
            let filled = (free - managed) / 16 * 16;
            assert_eq!(client.ask("fill 16"), format!("filled {filled}"));
            let refused = "error CUDA_ERROR_OUT_OF_MEMORY";
            assert_eq!(client.ask("managed 64"), refused);
            assert_eq!(client.ask("free"), "ok");
            assert_eq!(client.free(), free);
        }
    }
    let daemon = Daemon::start(&machine).limited("100M");
    let info = daemon.client().ask("info");
    assert_eq!(info, "error CUDA_ERROR_OUT_OF_MEMORY");
}

/// "A default that is set later does not bind the running server"; the server's own limit binds
/// the next client.
#[test]
fn applies_new_limits_to_next() {
    let machine = h100();
    let daemon = Daemon::start(&machine).limited("4G");
    let mut first = daemon.client();
    assert_eq!(first.free(), 3580);
    let daemon = daemon.limited("8G");
    assert_eq!(daemon.client().free(), 3580);
    let server = daemon.server();
    let get = format!("get_device_pinned_mem_limit {server} 0");
    assert_eq!(daemon.control(&get), "4G");
    let command = format!("set_device_pinned_mem_limit {server} 0 60G");
    assert_eq!(daemon.control(&command), "");
    assert_eq!(daemon.control(&get), "60G");
    assert_eq!(daemon.client().free(), 60 * 1024 - 516);
    assert_eq!(first.free(), 3580);
}

/// A GPU that others have filled has nothing left, whatever the limit.
#[test]
fn allocates_up_to_free_memory() {
    let machine = h100();
    let daemon = Daemon::start(&machine).limited("8G");
    let mut plain = machine.plain_client();
    assert_eq!(plain.ask("alloc 78000"), "ok");
    let mut client = daemon.client();
    let free = 81079 - 78516 - 72 - 516;
    assert_eq!(client.free(), free);
    let refused = client.ask(&format!("alloc {}", free + 1));
    assert_eq!(refused, "error CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(client.ask(&format!("alloc {free}")), "ok");
    assert_eq!(plain.ask("alloc 1"), "error CUDA_ERROR_OUT_OF_MEMORY");
}
