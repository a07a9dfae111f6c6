//! Images and bundles in the way of the socket.

use super::*;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Returns the free memory that the client of a changed bundle sees.
fn seen(change: impl FnOnce(&Bundle, &Path)) -> Option<u64> {
    let setup = on(Low::Runc)?;
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    change(&bundle, &bundle.path.join("rootfs"));
    let mut client = Client::run(&setup, &bundle, &id);
    let free = free(&mut client);
    client.end();
    setup.nothing_is_left();
    Some(free)
}

#[track_caller]
fn is_held(change: impl FnOnce(&Bundle, &Path)) {
    if let Some(free) = seen(change) {
        assert_eq!(free, 4096 - CONTEXT);
    }
}

fn mount(bundle: &Bundle, mount: Value) {
    bundle.edit(|config| config["mounts"].as_array_mut().unwrap().push(mount));
}

#[test]
fn mount_of_engine_gives_way() {
    is_held(|bundle, _| {
        // nvidia-container-runtime mounts the host's directory there.
        fs::create_dir(bundle.path.join("pipes")).unwrap();
        let source = bundle.path.join("pipes");
        let options = json!(["rbind", "rw"]);
        mount(
            bundle,
            json!({"destination": "/tmp/nvidia-mps", "source": source, "type": "bind", "options": options}),
        );
    });
}

#[test]
fn mount_on_tmp_keeps_limit() {
    is_held(|bundle, _| {
        mount(
            bundle,
            json!({"destination": "/tmp", "source": "tmpfs", "type": "tmpfs"}),
        );
    });
}

#[test]
fn links_of_image_lead_to_socket() {
    is_held(|_, rootfs| {
        fs::remove_dir(rootfs.join("tmp")).unwrap();
        fs::create_dir_all(rootfs.join("var/tmp")).unwrap();
        symlink("/var/tmp", rootfs.join("tmp")).unwrap();
    });
    is_held(|_, rootfs| symlink("/etc", rootfs.join("tmp/nvidia-mps")).unwrap());
}

#[test]
fn read_only_root_keeps_limit() {
    is_held(|bundle, _| bundle.edit(|config| config["root"]["readonly"] = true.into()));
}

#[test]
fn file_at_socket_folder_fails_create() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let bundle = asking(&setup, "4Gi");
    fs::write(bundle.path.join("rootfs/tmp/nvidia-mps"), "").unwrap();
    let before = bundle.bytes();
    let failed = setup.runmig(&["run", "-b", bundle.as_str(), &unique()]);
    assert!(!failed.status.success());
    assert!(failed.stderr.contains("nvidia-mps"), "{}", failed.stderr);
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

#[test]
fn image_cannot_lift_limit() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    // One bad entry would drop every limit.
    for entry in [
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=4G",
        "CUDA_MPS_PIPE_DIRECTORY=/nowhere",
    ] {
        let (id, bundle) = (unique(), asking(&setup, "4Gi"));
        bundle.edit(|config| {
            config["process"]["env"]
                .as_array_mut()
                .unwrap()
                .push(entry.into())
        });
        let mut client = Client::run(&setup, &bundle, &id);
        assert_eq!(free(&mut client), 4096 - CONTEXT, "{entry}");
        client.end();
    }
    setup.nothing_is_left();
}

/// The rows of the promise that `mps` does not make, as the container and the operator see them.
#[test]
fn process_can_go_round_its_limit() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let (id, _, mut first) = client(&setup, "4Gi");
    assert_eq!(free(&mut first), 4096 - CONTEXT);
    for variable in [
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G,1=4G",
        "CUDA_MPS_PIPE_DIRECTORY=/nowhere",
    ] {
        let mut client = Client::exec(&setup, &id, &["--env", variable]);
        assert!(free(&mut client) > 4096, "{variable}");
        // It shows once the container holds more than its share.
        assert_eq!(lease(&setup, &id)["overBytes"], 0);
        assert_eq!(client.say("alloc 6000"), "ok");
        let over = lease(&setup, &id)["overBytes"].as_u64().unwrap();
        assert!(over >> 20 > 1900, "{variable}: {over}");
        client.end();
    }
    first.end();
    setup.nothing_is_left();
}

/// Returns the reason for which a changed bundle gets no daemon.
#[track_caller]
fn refusal(setup: &Setup, change: impl FnOnce(&Bundle)) -> String {
    let bundle = asking(setup, "4Gi");
    change(&bundle);
    let line = refused_bundle(setup, &bundle);
    setup.nothing_is_left();
    line
}

#[test]
fn refuses_containers_that_miss_socket() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let line = refusal(&setup, |bundle| {
        let options = json!(["rbind", "rw", "rshared"]);
        let source = bundle.path.join("rootfs/etc");
        mount(
            bundle,
            json!({"destination": "/tmp", "source": source, "type": "bind", "options": options}),
        );
    });
    assert!(
        line.contains("mps: mount /tmp is shared with the host"),
        "{line}"
    );
    // The host's directory belongs to nobody in this test, so the hook alone is no obstacle.
    if !Path::new("/tmp/nvidia-mps").exists() {
        let line = refusal(&setup, |bundle| {
            let host = json!({"destination": "/tmp", "source": "/tmp", "type": "bind", "options": ["rbind"]});
            mount(bundle, host);
        });
        let words = "mps: the mount of /tmp would leave /tmp/nvidia-mps on the host";
        assert!(line.contains(words), "{line}");
        is_held(|bundle, _| {
            bundle.edit(|config| {
                let hook = json!({"path": "/usr/bin/true", "args": ["nvidia-container-toolkit"]});
                config["hooks"]["createRuntime"] = json!([hook]);
            });
        });
    }
}
