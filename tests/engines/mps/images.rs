//! Images and bundles in the way of the socket.

use super::*;

/// The client of a changed bundle sees its share alone.
#[track_caller]
fn is_held(change: impl FnOnce(&Bundle, &Path)) {
    let setup = on(Low::Runc);
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    change(&bundle, &bundle.path.join("rootfs"));
    let mut client = Client::run(&setup, &bundle, &id);
    assert_eq!(free(&mut client), 4096 - CONTEXT);
    client.end();
    setup.nothing_is_left();
}

#[test]
fn mount_of_engine_gives_way() {
    is_held(|bundle, _| {
        // nvidia-container-runtime mounts the host's directory there.
        fs::create_dir(bundle.path.join("pipes")).unwrap();
        let source = bundle.path.join("pipes");
        bundle.mount([bind(source, "/tmp/nvidia-mps", &["rbind", "rw"])]);
    });
}

#[test]
fn mount_on_tmp_keeps_limit() {
    let mount = json!({"destination": "/tmp", "source": "tmpfs", "type": "tmpfs"});
    is_held(|bundle, _| bundle.mount([mount]));
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
    let setup = on(Low::Runc);
    let bundle = asking(&setup, "4Gi");
    fs::write(bundle.path.join("rootfs/tmp/nvidia-mps"), "").unwrap();
    let before = bundle.bytes();
    let failed = setup.try_run(&bundle);
    assert!(!failed.status.success());
    has(&failed.stderr, "nvidia-mps");
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

#[test]
fn image_cannot_lift_limit() {
    // One bad entry would drop every limit.
    is_held(|bundle, _| bundle.set_env(&["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=4G"]));
    is_held(|bundle, _| bundle.set_env(&["CUDA_MPS_PIPE_DIRECTORY=/nowhere"]));
}

/// Returns why a changed bundle gets no daemon.
#[track_caller]
fn refusal(setup: &Setup, change: impl FnOnce(&Bundle)) -> String {
    let bundle = asking(setup, "4Gi");
    change(&bundle);
    let line = setup.refused(&bundle);
    setup.nothing_is_left();
    line
}

/// Failure: a container could miss the socket of its daemon: a mount at `/tmp` that is shared with the host, NVIDIA's runtime with `/tmp/nvidia-mps` on the host, a label under enforcing SELinux
#[test]
fn refuses_containers_that_miss_socket() {
    let setup = on(Low::Runc);
    let line = refusal(&setup, |bundle| {
        let source = bundle.path.join("rootfs/etc");
        bundle.mount([bind(source, "/tmp", &["rbind", "rw", "rshared"])]);
    });
    has(&line, "mps: mount /tmp is shared with the host");
    for (to, from, shown) in [
        ("/tmp", "/tmp", "/tmp"),
        ("/tmp", "rootfs/etc", "/tmp"),
        ("/", "rootfs", "/"),
        ("/tmp/../tmp/", "rootfs/tmp", "/tmp"),
    ] {
        let line = refusal(&setup, |bundle| {
            bundle.mount([bind(bundle.path.join(from), to, &["rbind"])]);
        });
        let words = format!("mps: mount {shown} is from outside of the container");
        has(&line, &words);
    }
    // The host's directory belongs to nobody in this test. NVIDIA's hook is taken out, so it is not an obstacle.
    if !Path::new("/tmp/nvidia-mps").exists() {
        is_held(|bundle, _| {
            bundle.edit(|config| {
                let hook = json!({"path": "/nowhere/nvidia-container-toolkit"});
                config["hooks"]["createRuntime"] = json!([hook]);
            });
        });
    }
}

/// Another container with the volume could remove the mount point.
/// Failure: an image's link at `/tmp` leads into a volume
#[test]
fn refuses_link_into_volume() {
    let setup = on(Low::Runc);
    let volume = "mps: mount /data is from outside of the container";
    for (link, to, words) in testkit::rows! {
        "tmp", "/data" => volume;
        "tmp", "var/../data" => volume;
        "tmp/nvidia-mps", "/data/mps" => volume;
        "tmp", "/etc/chain" => volume;
        "tmp", "/tmp" => "mps: the image has a loop of links at /tmp/nvidia-mps";
    } {
        let line = refusal(&setup, |bundle| {
            let rootfs = bundle.path.join("rootfs");
            fs::create_dir(rootfs.join("data")).unwrap();
            symlink("/data", rootfs.join("etc/chain")).unwrap();
            let link = rootfs.join(link);
            let _ = fs::remove_dir(&link);
            symlink(to, link).unwrap();
            let source = bundle.path.join("volume");
            fs::create_dir(&source).unwrap();
            let mut mount = bind(source, "/data", &["bind"]);
            mount["type"] = json!("none");
            bundle.mount([mount]);
        });
        has(&line, words);
    }
}

/// Its mount point could be removed through the volume.
/// Failure: a volume is mounted at an image's link that leads to `/tmp`
#[test]
fn refuses_volume_at_link_to_socket() {
    let setup = on(Low::Runc);
    for (link, to) in [("lnk", "/tmp"), ("var", "etc/../tmp/nvidia-mps")] {
        let line = refusal(&setup, |bundle| {
            symlink(to, bundle.path.join("rootfs").join(link)).unwrap();
            let source = bundle.path.join("volume");
            fs::create_dir(&source).unwrap();
            bundle.mount([bind(source, &format!("/{link}"), &["rbind"])]);
        });
        has(
            &line,
            &format!("mps: mount /{link} is from outside of the container"),
        );
    }
}

/// Failure: a folder of the image keeps users who are not root from the socket
#[test]
fn refuses_folder_closed_to_users() {
    let setup = on(Low::Runc);
    let tmpfs = |options: &[&str]| json!({"destination": "/tmp", "source": "tmpfs", "type": "tmpfs", "options": options});
    for (mode, mount) in [
        (0o700, None),
        (0o750, None),
        (0o700, Some(tmpfs(&["nosuid"]))),
        (0o1777, Some(tmpfs(&["mode=1777", "mode=0750"]))),
    ] {
        let line = refusal(&setup, |bundle| {
            chmod(bundle.path.join("rootfs/tmp"), mode);
            bundle.mount(mount);
        });
        has(
            &line,
            "mps: /tmp of the image keeps some users from the daemon's socket",
        );
    }
    is_held(|bundle, rootfs| {
        chmod(rootfs.join("tmp"), 0o700);
        bundle.mount([tmpfs(&["mode=1777"])]);
    });
    is_held(|_, rootfs| chmod(rootfs.join("tmp"), 0o711));
}

/// Failure: `linux.maskedPaths` hides the socket
#[test]
fn refuses_masks_over_socket() {
    let setup = on(Low::Runc);
    for mask in [
        "/tmp",
        "/tmp/nvidia-mps",
        "/tmp/./nvidia-mps/control",
        "/lnk",
    ] {
        let line = refusal(&setup, |bundle| {
            symlink("/tmp", bundle.path.join("rootfs/lnk")).unwrap();
            bundle.edit(|config| config["linux"]["maskedPaths"] = json!(["/proc/kcore", mask]));
        });
        has(&line, "mps: linux.maskedPaths hides /");
    }
    is_held(|bundle, _| {
        bundle.edit(|config| config["linux"]["maskedPaths"] = json!(["", "/tmp/x"]))
    });
}
