//! Mounts that bring devices.

use crate::spec_edit::{done, driver_mounts, edited, parsed, refused, with};
use testkit::prelude::*;

fn with_mount(mount: Value) -> Value {
    with(|c| {
        c["mounts"] = json!([{"destination": "/proc", "type": "proc", "source": "proc"}, mount])
    })
}

/// A folder of the driver hides nothing that the user mounts below it.
#[test]
fn driver_folders_stand_before_mounts_below() {
    for (users, files, expected) in testkit::rows! {
        "/proc /usr/local /usr/local/nvidia/mine", "/usr/local/nvidia" =>
            "/proc /usr/local /usr/local/nvidia /usr/local/nvidia/mine";
        "/a/b/c /a/d", "/a /a/d/e" => "/a /a/b/c /a/d /a/d/e";
        "/proc /usr/localhost", "/usr/local" => "/proc /usr/localhost /usr/local";
        // what the user himself has covered
        "/a/b/c /a", "/a/b" => "/a/b/c /a /a/b";
    } {
        let mount = |to: &str| json!({"destination": to, "type": "tmpfs", "source": "tmpfs"});
        let users: Vec<Value> = users.split(' ').map(mount).collect();
        let files: Vec<&str> = files.split(' ').collect();
        let original = with(|c| c["mounts"] = json!(users));
        let after = parsed(&edited(&original, &driver_mounts(&files)).unwrap());
        let after = after["mounts"].as_array().unwrap();
        let shown: Vec<&str> = { after.iter() }
            .map(|m| m["destination"].as_str().unwrap())
            .collect();
        assert_eq!(shown.join(" "), expected);
    }
}

#[test]
fn removes_mounts_of_other_devices() {
    let bind = |source: &str, destination: &str| json!({"destination": destination, "source": source, "options": ["rbind", "ro"]});
    for (source, destination) in [
        ("/dev/nvidia4", "/dev/nvidia4"),
        ("/srv/harmless", "/data"),
        ("/dev/nvidia-caps/nvidia-cap21", "/x"),
        ("/dev/nvidia-caps", "/x"),
        ("/dev/dri/card1", "/dev/dri/card1"),
        ("/proc/driver/nvidia", "/proc/driver/nvidia"),
        // these stand where a node of the slice has to be
        ("/dev/zero", "/dev/nvidiactl"),
        ("/srv", "/dev/./nvidia-caps"),
        // asks nvidia-container-runtime for all
        ("/dev/null", "/var/run/nvidia-container-devices/all"),
        ("/dev/null", "/var/run//nvidia-container-devicesall"),
        ("/dev/null", "/x/../run/nvidia-container-devices0"),
        // leads to an MPS daemon of the host
        ("/srv", "/tmp/nvidia-mps"),
        ("/srv", "/tmp/./nvidia-mps/control"),
    ] {
        let typed = json!({"destination": destination, "source": source, "type": "bind"});
        for mount in [bind(source, destination), typed] {
            let after = done(&with_mount(mount));
            let left = after["mounts"].as_array().unwrap().len();
            assert_eq!(left, 1, "{source} {destination}");
        }
    }
    for mount in [
        bind("/dev/zero", "/dev/nvidia4"),
        bind("/dev/nvidia0", "/dev/nvidia0"),
        bind("/absent", "/x"),
        bind("/", "/host"),
        json!({"destination": "/x", "source": "/dev/nvidia4", "type": "tmpfs"}),
    ] {
        assert_eq!(done(&with_mount(mount.clone()))["mounts"][1], mount);
    }
}

#[test]
fn refuses_mounted_host_dev() {
    for mount in [
        json!({"destination": "/dev", "source": "/dev", "options": ["bind"]}),
        json!({"destination": "/mnt", "source": "/srv/link-to-dev", "type": "bind"}),
        json!({"destination": "/x", "source": "devtmpfs", "type": "devtmpfs"}),
        json!({"destination": "/../dev/", "source": "/srv", "type": "bind"}),
    ] {
        let words = "gives the container the devices of the host; hint: mount the devices that it needs, not /dev";
        has(&refused(&with_mount(mount)), words);
    }
}
