//! The changes of an edit to a config.json, and its refusals.

mod mounts;
mod rules;

use crate::{device, grant};
use runmig::spec::{self, Document, MemoryShare, Source, edit, strip};
use runmig_lease::cdi::{self, Edits};
use runmig_lease::error::Result;
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use testkit::prelude::*;

const UUID: &str = "MIG-3a2f1c9e-0000-5000-8000-000000000001";

fn nodes() -> Vec<DeviceNode> {
    let nodes = [
        device("/dev/nvidiactl", 195, 255),
        device("/dev/nvidia0", 195, 0),
        device("/dev/nvidia-uvm", 507, 0),
        device("/dev/nvidia-caps/nvidia-cap12", 511, 12),
        device("/dev/nvidia-caps/nvidia-cap13", 511, 13),
    ];
    nodes.into()
}

fn numbers() -> NvidiaNumbers {
    NvidiaNumbers {
        majors: vec![195, 507, 511],
        drm: vec![(226, 1), (226, 129)],
    }
}

/// A host where the name tells what is behind it.
fn host(path: &Path) -> Result<Source> {
    let number = |major, minor| Source::CharDevice { major, minor };
    Ok(match path.to_str().unwrap() {
        "/dev" | "/srv/link-to-dev" => Source::Dev,
        "/dev/nvidia4" | "/srv/harmless" => number(195, 4),
        "/dev/nvidia0" => number(195, 0),
        "/dev/nvidiactl" => number(195, 255),
        "/dev/nvidia-caps/nvidia-cap21" => number(511, 21),
        "/dev/dri/card1" => number(226, 1),
        "/dev/zero" => number(1, 5),
        "/dev/nvidia-caps" | "/proc/driver/nvidia" => Source::Driver,
        "/absent" => Source::Absent,
        _ => Source::Other,
    })
}

fn edited(original: &Value, driver: &Edits) -> Result<Vec<u8>> {
    edited_for(original, driver, None)
}

fn edited_for(original: &Value, driver: &Edits, share: Option<MemoryShare>) -> Result<Vec<u8>> {
    let (nodes, numbers) = (nodes(), numbers());
    let mut grant = grant(&[UUID], &nodes, driver, &numbers);
    grant.hook.args = vec!["--config".into(), "/etc/runmig/config.toml".into()];
    grant.hook.limits = share.is_some();
    grant.share = share;
    let document = Document::parse(&serde_json::to_vec(original).unwrap())?;
    let edited = edit(document, &grant, &host);
    edited.map(|edited| edited.bytes)
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {"args": ["sh"], "env": ["PATH=/bin"]},
        "linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}},
    });
    change(&mut config);
    config
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Files of a driver that bring a variable.
fn with_env(variable: &str) -> Edits {
    Edits {
        env: vec![variable.to_owned()],
        ..Edits::default()
    }
}

/// Files of a driver that are mounted at these places.
fn driver_mounts(places: &[&str]) -> Edits {
    let mount = |place: &&str| cdi::Mount {
        host_path: "/srv".into(),
        container_path: place.into(),
        options: None,
        typ: None,
    };
    Edits {
        mounts: places.iter().map(mount).collect(),
        ..Edits::default()
    }
}

fn done(original: &Value) -> Value {
    parsed(&edited(original, &Edits::default()).unwrap())
}

fn refused(original: &Value) -> String {
    edited(original, &Edits::default()).unwrap_err().line()
}

#[test]
fn adds_slice_and_keeps_rest() {
    let original = r#"{"ociVersion":"1.0.2","process":{"args":["sh"],"env":["A=1","NVIDIA_VISIBLE_DEVICES=all","B=2","NVIDIA_VISIBLE_DEVICES=0"],"odd":18446744073709551616},"x":{"z":1,"a":1e+400},"hooks":{"poststop":[{"path":"/theirs"}],"prestart":[]},"linux":{"y":null,"resources":{"devices":[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":10,"minor":200,"access":"rwm"}],"pids":{"limit":5}}},"annotations":{"k":"v"}}"#;
    let (nodes, numbers) = (nodes(), numbers());
    let driver = Edits::default();
    let grant = grant(&[UUID], &nodes[..1], &driver, &numbers);
    let document = Document::parse(original.as_bytes()).unwrap();
    let bytes = edit(document, &grant, &host).unwrap().bytes;
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        r#"{"ociVersion":"1.0.2","process":{"args":["sh"],"env":["A=1","NVIDIA_VISIBLE_DEVICES=MIG-3a2f1c9e-0000-5000-8000-000000000001","B=2"],"odd":18446744073709551616},"x":{"z":1,"a":1e+400},"hooks":{"poststop":[{"path":"/h/runmig-hook","args":["runmig-hook","--lease","4f2a"],"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":30},{"path":"/theirs"}],"prestart":[]},"linux":{"y":null,"resources":{"devices":[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":10,"minor":200,"access":"rwm"},{"allow":true,"type":"c","major":195,"minor":255,"access":"rwm"}],"pids":{"limit":5}},"devices":[{"path":"/dev/nvidiactl","type":"c","major":195,"minor":255,"fileMode":438}]},"annotations":{"k":"v"}}"#
    );
}

#[test]
fn absent_and_null_are_made() {
    for original in [
        json!({"process": {}, "linux": {}}),
        json!({"process": {"env": null}, "linux": {"devices": null, "resources": null}, "hooks": null, "mounts": null, "annotations": null}),
        json!({"process": {}, "linux": {"resources": {"devices": null}}, "hooks": {"poststop": null}}),
    ] {
        let after = done(&original);
        assert_eq!(after["linux"]["devices"].as_array().unwrap().len(), 5);
        let rules = after["linux"]["resources"]["devices"].as_array().unwrap();
        assert_eq!(rules.len(), 6);
        assert_eq!(rules[0], json!({"allow": false, "access": "rwm"}));
        let env = json!([format!("NVIDIA_VISIBLE_DEVICES={UUID}")]);
        assert_eq!(after["process"]["env"], env);
        assert_eq!(after["hooks"]["poststop"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn refuses_config_without_sections() {
    for (config, line) in testkit::rows! {
        json!({"linux": {}}) => "config.json has no process: no GPU can be put into it";
        json!({"process": {}, "linux": null}) => "config.json has no linux: no GPU can be put into it";
        json!({"process": {}, "linux": []}) => "linux in config.json is not an object";
        json!({"process": {"env": ["A=1", 2]}, "linux": {}}) => "process.env in config.json is not an array of strings";
    } {
        assert_eq!(refused(&config), line);
    }
}

#[test]
fn overwrites_devices_chosen_by_image() {
    let after = done(&with(|c| {
        c["process"]["env"] = json!([
            "NVIDIA_MIG_CONFIG_DEVICES=all",
            "NVIDIA_DRIVER_CAPABILITIES=compute",
            "NVIDIA_VISIBLE_DEVICES",
            "NVIDIA_MIG_MONITOR_DEVICES=all",
            "NVIDIA_REQUIRE_CUDA=cuda>=12",
            "NVIDIA_IMEX_CHANNELS=0",
            "DOCKER_RESOURCE_GPU=all",
            "DOCKER_RESOURCE_NVIDIA-GPU=GPU-1",
            "CUDA_VISIBLE_DEVICES=0",
            "NVIDIA_VISIBLE_DEVICES=void",
        ])
    }));
    let expected = json!([
        "NVIDIA_DRIVER_CAPABILITIES=compute",
        format!("NVIDIA_VISIBLE_DEVICES={UUID}"),
        "NVIDIA_REQUIRE_CUDA=cuda>=12",
        "CUDA_VISIBLE_DEVICES=0",
    ]);
    assert_eq!(after["process"]["env"], expected);
}

/// The container has one device. CUDA sees none at all if this variable names another.
#[test]
fn stale_choice_of_devices_goes() {
    let after = |value: &str| {
        let entry = format!("CUDA_VISIBLE_DEVICES{value}");
        let original = with(|c| c["process"]["env"] = json!([entry, "CUDA_VISIBLE_DEVICES_X=7"]));
        let env = done(&original)["process"]["env"].clone();
        let env = env.as_array().unwrap();
        let last = format!("NVIDIA_VISIBLE_DEVICES={UUID}");
        assert_eq!(env.last().unwrap(), &last);
        assert!(env.contains(&json!("CUDA_VISIBLE_DEVICES_X=7")));
        env.contains(&json!(entry))
    };
    for stays in ["=0", "= 0", &format!("={UUID}")] {
        assert!(after(stays), "{stays}");
    }
    for goes in [
        &format!("={}", &UUID[..12]),
        &format!("=0,{UUID}"),
        "=GPU-3a2f1c9e-0000-5000-8000-000000000001",
        "=MIG-GPU-3a2f1c9e-0000-5000-8000-000000000001/1/0",
    ] {
        assert!(!after(goes), "{goes}");
    }
    let numbers = "=1 =0,7 =7,0 =0,0 = =-1 =all =void =NoDevFiles =99999999999999999999";
    for goes in numbers.split(' ').chain([""]) {
        assert!(!after(goes), "{goes}");
    }
}

/// Two devices, and a variable that the driver's files bring.
#[test]
fn choice_among_several_devices_stays() {
    let after = |value: &str| {
        let (nodes, numbers) = (nodes(), numbers());
        let entry = format!("CUDA_VISIBLE_DEVICES={value}");
        let driver = with_env(&entry);
        let grant = grant(&["GPU-1", "GPU-2"], &nodes, &driver, &numbers);
        let original = serde_json::to_vec(&with(|_| {})).unwrap();
        let edited = edit(Document::parse(&original).unwrap(), &grant, &host).unwrap();
        let env = parsed(&edited.bytes)["process"]["env"].clone();
        let stays = env.as_array().unwrap().contains(&json!(entry));
        let told = edited.removed.iter().any(|what| what.starts_with(&entry));
        assert_ne!(stays, told, "{value}: {:?}", edited.removed);
        stays
    };
    for stays in ["0", "1", "1,0", "GPU-2", "GPU-2,GPU-1", "0, 1"] {
        assert!(after(stays), "{stays}");
    }
    for goes in [
        "2", "0,1,2", "1,1", "GPU-2,0", "GPU-", "GPU-3", "0,", ",0", "0;1",
    ] {
        assert!(!after(goes), "{goes}");
    }
}

/// docker puts them there for `--gpus`, and compose for a reservation.
#[test]
fn takes_out_nvidias_hooks() {
    let hook = |path: &str| json!({"path": path, "args": ["x", "prestart"]});
    let ours = hook("/usr/bin/nvidia-cdi-hook");
    let theirs = hook("/opt/nvidia-container-toolkit/x");
    let original = with(|c| {
        c["hooks"] = json!({
            "prestart": [hook("/usr/bin/nvidia-container-runtime-hook")],
            "createRuntime": [theirs, hook("/usr/local/nvidia/toolkit/nvidia-container-toolkit")],
            "poststart": [hook("nvidia-container-toolkit"), ours],
        });
    });
    let after = done(&original);
    assert_eq!(after["hooks"]["prestart"], Value::Null);
    assert_eq!(after["hooks"]["createRuntime"], json!([theirs]));
    assert_eq!(after["hooks"]["poststart"], json!([ours]));
}

#[test]
fn replaces_nodes_at_granted_paths() {
    let kept = json!({"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229});
    let block = json!({"path": "/dev/b", "type": "b", "major": 195, "minor": 1});
    let after = done(&with(|c| {
        c["linux"]["devices"] = json!([
            kept,
            {"path": "/dev/nvidia4", "type": "c", "major": 195, "minor": 4},
            {"path": "/dev/x", "type": "u", "major": 511, "minor": 21},
            {"path": "/dev/dri/card1", "type": "c", "major": 226, "minor": 1},
            {"path": "/dev//./nvidia0", "type": "c", "major": 1, "minor": 5},
            block,
        ])
    }));
    let devices = after["linux"]["devices"].as_array().unwrap();
    assert_eq!(&devices[..2], [kept, block]);
    let paths: Vec<&Value> = devices[2..].iter().map(|d| &d["path"]).collect();
    let granted: Vec<PathBuf> = nodes().into_iter().map(|node| node.path).collect();
    assert_eq!(json!(paths), json!(granted));
}

#[test]
fn annotations_that_bring_devices_are_refused() {
    let annotated = |value: &str| with(|c| c["annotations"] = json!({"cdi.k8s.io/a": value}));
    assert_eq!(
        refused(&annotated("vendor.com/net=1,nvidia.com/gpu=all")),
        "annotation cdi.k8s.io/a asks for vendor.com/net=1,nvidia.com/gpu=all beside what the container asks of runmig; hint: ask by one of the two, not by both"
    );
    assert!(refused(&annotated("management.nvidia.com/gpu=all")).starts_with("annotation"));
    done(&annotated("vendor.com/net=1"));
    let keyed = |key: &str, value: &str| with(|c| c["annotations"] = json!({key: value}));
    for (key, value) in [
        ("nvidia.cdi.k8s.io/x", "nvidia.com/gpu=all"),
        ("example.com/devices", "nvidia.com/gpu=0"),
        ("no-domain", "vendor.com/net=1, runtime.nvidia.com/gpu=0"),
        ("example.com/devices", "NVIDIA.com/gpu=0"),
        ("example.com/devices", "runmig.dev/slice=1"),
        ("example.com/devices", "gpus.runmig.example/slice=1"),
        // without a vendor nvidia-container-runtime takes it for a GPU of its own
        ("nvidia.cdi.k8s.io/x", "all"),
        ("cdi.k8s.io/x", "vendor.com/net=1,0"),
        ("cdi.k8s.io/x", ""),
    ] {
        let line = refused(&keyed(key, value));
        assert!(
            line.contains("beside what the container asks of runmig"),
            "{key}={value}: {line}"
        );
    }
    for (key, value) in testkit::rows! {
        "example.com/driver" => "nvidia.com";
        "example.com/all" => "all";
        "example.com/url" => "https://nvidia.com/gpu=0";
        "example.com/devices" => "notnvidia.com/gpu=0";
        "example.com/json" => r#"{"runmig.dev/slice":"1g.10gb","a":"b=c"}"#;
        "nvidia.cdi.k8s.io/x" => "vendor.com/net=1";
    } {
        done(&keyed(key, value));
    }
    let systemd = |name: &str| {
        with(|c| c["annotations"] = json!({format!("org.systemd.property.{name}"): "'auto'"}))
    };
    assert_eq!(
        refused(&systemd("DevicePolicy")),
        "annotation org.systemd.property.DevicePolicy changes which devices the container can open; hint: leave it out: runmig gives the container the devices of its GPU"
    );
    done(&systemd("CollectMode"));
}

#[test]
fn edits_stripped_file_alike() {
    let original = with(|c| c["hooks"] = json!({"prestart": [{"path": "/p"}]}));
    let first = edited(&original, &Edits::default()).unwrap();
    let stripped = strip(&first, &numbers()).unwrap();
    let tree = parsed(&stripped);
    assert_eq!(tree["hooks"], json!({"prestart": [{"path": "/p"}]}));
    assert_eq!(tree["process"]["env"], json!(["PATH=/bin"]));
    assert_eq!(tree["linux"]["devices"], json!([]));
    let rules = json!([{"allow": false, "access": "rwm"}]);
    assert_eq!(tree["linux"]["resources"]["devices"], rules);
    assert_eq!(edited(&tree, &Edits::default()).unwrap(), first);
}

/// A share's limits come from runmig alone, and a slice keeps the image's.
/// The limit is there before any other hook acts, and neither an edit of an edit nor a strip leaves runmig's hook.
#[test]
fn limit_comes_before_other_hooks() {
    let hook = json!({"hookName": "createRuntime", "path": "/cdi"});
    let driver: Edits = serde_json::from_value(json!({"hooks": [hook]})).unwrap();
    let share = MemoryShare {
        memory_mib: 8192,
        total_mib: 8192,
    };
    let original = with(|c| c["hooks"] = json!({"createRuntime": [{"path": "/theirs"}]}));
    let bytes = edited_for(&original, &driver, Some(share)).unwrap();
    let once = parsed(&bytes);
    let hooks = once["hooks"]["createRuntime"].as_array().unwrap();
    let args = "runmig-hook --limit --lease 4f2a --config /etc/runmig/config.toml";
    assert_eq!(hooks[0]["args"], json!(args.split(' ').collect::<Vec<_>>()));
    assert_eq!(hooks[1]["path"], "/theirs");
    assert_eq!(hooks.len(), 3);
    assert!(spec::peek(&bytes).unwrap().marked);
    let twice = edited_for(&once, &driver, Some(share)).unwrap();
    assert_eq!(parsed(&twice), once);
    let stripped = parsed(&strip(&bytes, &numbers()).unwrap());
    assert_eq!(stripped["hooks"]["createRuntime"], json!(hooks[1..]));
    assert!(stripped["hooks"]["poststop"].is_null());
    // Another program may have removed the other hook.
    let left = with(|c| c["hooks"] = json!({"createRuntime": [hooks[0]]}));
    let left = serde_json::to_vec(&left).unwrap();
    assert!(spec::peek(&left).unwrap().marked);
    let plain = parsed(&strip(&left, &numbers()).unwrap());
    assert!(plain.get("hooks").is_none(), "{plain}");
}

#[test]
fn share_replaces_limits_of_image() {
    let mine = [
        "CUDA_MPS_PIPE_DIRECTORY=/x",
        "NVIDIA_GPU_MEMORY_LIMIT=9",
        "CUDA_DEVICE_MEMORY_LIMIT=9",
        "CUDA_DEVICE_SM_LIMIT=9",
        "RUNMIG_GPU_MEMORY=9",
        "CUDA_VISIBLE_DEVICES=0",
    ];
    let original = with(|config| config["process"]["env"] = json!(mine));
    let driver = with_env("CUDA_MPS_LOG_DIRECTORY=/y");
    let share = MemoryShare {
        memory_mib: 8192,
        total_mib: 81_079,
    };
    let env = |share| {
        let bytes = edited_for(&original, &driver, share).unwrap();
        parsed(&bytes)["process"]["env"].clone()
    };
    let expected = json!([
        "RUNMIG_GPU_MEMORY=8589934592",
        "CUDA_VISIBLE_DEVICES=0",
        format!("NVIDIA_VISIBLE_DEVICES={UUID}"),
        "RUNMIG_GPU_MEMORY_FRACTION=0.1010",
    ]);
    assert_eq!(env(Some(share)), expected);
    assert_eq!(env(None).as_array().unwrap().len(), mine.len() + 2);
    // Without its original a file loses what runmig set.
    let bytes = edited_for(&original, &driver, Some(share)).unwrap();
    let stripped = parsed(&strip(&bytes, &numbers()).unwrap());
    let env = json!(["CUDA_VISIBLE_DEVICES=0"]);
    assert_eq!(stripped["process"]["env"], env);
}
