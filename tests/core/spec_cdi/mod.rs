//! The driver's files, from a CDI specification as `nvidia-ctk cdi generate` writes it.

use runmig::spec::cdi::{self, Found};
use runmig::spec::{DriverFiles, Grant, HookCommand, HostView, Source, edit};
use runmig_lease::error::Result;
use runmig_lease::model::NvidiaNumbers;
use tempfile::TempDir;
use testkit::prelude::*;

const GENERATED: &str = include_str!("nvidia-cdi.yaml");

fn dir_of(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    dir
}

fn found(dirs: &[&TempDir]) -> Result<Found> {
    let dirs: Vec<&Path> = dirs.iter().map(|dir| dir.path()).collect();
    cdi::read(&dirs)
}

fn read(dirs: &[&TempDir]) -> Result<Option<DriverFiles>> {
    found(dirs).map(|found| found.files)
}

fn refused(dir: &TempDir) -> String {
    let line = read(&[dir]).unwrap_err().line();
    line.replace(dir.path().to_str().unwrap(), "/etc/cdi")
}

struct NoDevices;

impl HostView for NoDevices {
    fn source(&self, _: &Path) -> Result<Source> {
        Ok(Source::Other)
    }
}

fn edited(original: &Value, driver: &DriverFiles) -> Value {
    let numbers = NvidiaNumbers {
        majors: vec![195],
        drm: vec![],
    };
    let grant = Grant {
        door: None,
        uuids: &["MIG-1"],
        nodes: &[],
        hook: HookCommand {
            path: "/h".into(),
            leases: vec!["a".into()],
            args: vec![],
            env: vec![],
            timeout_s: 1,
            limits: false,
        },
        driver,
        numbers: &numbers,
        share: None,
    };
    let bytes = edit(&serde_json::to_vec(original).unwrap(), &grant, &NoDevices).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn edits_in_nvidia_ctks_files() {
    let driver = read(&[&dir_of(&[("nvidia.yaml", GENERATED)])])
        .unwrap()
        .unwrap();
    let after = edited(
        &json!({
            "process": {"env": ["PATH=/bin"]},
            "linux": {},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/usr/bin/nvidia-smi", "source": "/stale", "options": ["bind"]},
            ],
            "hooks": {"createContainer": [{"path": "/theirs"}]},
        }),
        &driver,
    );
    assert_eq!(
        after["process"]["env"],
        json!([
            "PATH=/bin",
            "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu",
            "NVIDIA_VISIBLE_DEVICES=MIG-1"
        ])
    );
    assert_eq!(after["linux"]["devices"], json!([]));
    let mounts = after["mounts"].as_array().unwrap();
    assert_eq!(mounts.len(), 1 + 21);
    assert_eq!(
        mounts
            .iter()
            .filter(|m| m["destination"] == "/usr/bin/nvidia-smi")
            .collect::<Vec<_>>(),
        [&json!({
            "destination": "/usr/bin/nvidia-smi",
            "source": "/usr/bin/nvidia-smi",
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]
        })]
    );
    let hooks = after["hooks"]["createContainer"].as_array().unwrap();
    assert_eq!(hooks.len(), 5);
    assert_eq!(hooks[0], json!({"path": "/theirs"}));
    assert_eq!(
        hooks[2],
        json!({
            "path": "/usr/bin/nvidia-cdi-hook",
            "args": ["nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=570.124.06"],
            "env": ["NVIDIA_CTK_DEBUG=false"]
        })
    );
    // once more, over what is already there
    assert_eq!(edited(&after, &driver), after);
}

#[test]
fn later_directory_wins() {
    let one = |value: &str| format!("kind: nvidia.com/gpu\ncontainerEdits:\n  env: [A={value}]\n");
    let etc = dir_of(&[("nvidia.yaml", &one("etc")), ("broken.json", "{")]);
    let run = dir_of(&[
        (
            "nvidia.yaml",
            r#"{"kind": "nvidia.com/gpu", "containerEdits": {"env": ["A=run"]}}"#,
        ),
        (
            "a.json",
            r#"{"kind": "vendor.com/net", "containerEdits": {"env": ["A=net"]}}"#,
        ),
        ("nvidia.yml", &one("yml")),
    ]);
    let gone = TempDir::new().unwrap().path().join("gone");
    let dirs = [etc.path(), run.path(), &gone];
    assert_eq!(cdi::read(&dirs).unwrap().files.unwrap().env, ["A=run"]);
    assert_eq!(read(&[&etc]).unwrap().unwrap().env, ["A=etc"]);
    assert_eq!(read(&[&dir_of(&[])]).unwrap(), None);
    assert_eq!(cdi::read(&[&gone]).unwrap().files, None);
    let without = dir_of(&[("nvidia.yaml", "kind: nvidia.com/gpu\ndevices: []\n")]);
    assert_eq!(read(&[&without]).unwrap(), Some(DriverFiles::default()));
}

#[test]
fn refuses_two_that_differ() {
    let dir = dir_of(&[
        (
            "a.yaml",
            "kind: nvidia.com/gpu\ncontainerEdits: {env: [A=1]}\n",
        ),
        (
            "b.yaml",
            "kind: nvidia.com/gpu\ncontainerEdits: {env: [A=2]}\n",
        ),
    ]);
    assert_eq!(
        refused(&dir),
        "CDI specifications /etc/cdi/a.yaml and /etc/cdi/b.yaml of kind nvidia.com/gpu differ; hint: keep one of them"
    );
    fs::copy(dir.path().join("a.yaml"), dir.path().join("b.yaml")).unwrap();
    assert_eq!(read(&[&dir]).unwrap().unwrap().env, ["A=1"]);
}

#[test]
fn refuses_files_writable_by_others() {
    let dir = dir_of(&[("nvidia.yaml", GENERATED)]);
    let path = dir.path().join("nvidia.yaml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    assert_eq!(
        refused(&dir),
        "cannot read CDI specification /etc/cdi/nvidia.yaml: others than root can write to it (mode 0664); hint: chmod go-w it"
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(
        refused(&dir),
        "cannot read CDI directory /etc/cdi: others than root can write to it (mode 0777); hint: chmod go-w it"
    );
}

#[test]
fn bad_specifications_are_named() {
    let message = |edits: &str| {
        let text = format!("kind: nvidia.com/gpu\ncontainerEdits: {edits}\n");
        refused(&dir_of(&[("n.yaml", &text)]))
    };
    let of = "CDI specification /etc/cdi/n.yaml: ";
    assert_eq!(
        message("{env: [A]}"),
        format!("{of}\"A\" is no environment variable")
    );
    assert_eq!(
        message("{hooks: [{hookName: x, path: /h}]}"),
        format!("{of}\"x\" is no hook name")
    );
    assert_eq!(
        message("{hooks: [{hookName: poststop, path: h}]}"),
        format!("{of}hook h is no absolute path")
    );
    assert_eq!(
        message("{mounts: [{hostPath: a, containerPath: /b}]}"),
        format!("{of}mount path a is not absolute")
    );
    assert!(message("{mounts: [{hostPath: /a}]}").contains("missing field `containerPath`"));
    let big = dir_of(&[("nvidia.yaml", &" ".repeat((4 << 20) + 1))]);
    assert_eq!(
        refused(&big),
        "cannot read CDI specification /etc/cdi/nvidia.yaml: longer than 4194304 bytes"
    );
    let mut laughs = "a0: &a0 [x]\n".to_owned();
    for i in 1..40 {
        let before = format!("*a{}, ", i - 1).repeat(9);
        laughs.push_str(&format!("a{i}: &a{i} [{before}]\n"));
    }
    laughs.push_str("kind: nvidia.com/gpu\ncontainerEdits: {env: *a39}\n");
    let line = refused(&dir_of(&[("n.yaml", &laughs)]));
    assert!(line.starts_with("cannot read CDI specification"), "{line}");
}

#[test]
fn adds_environment_to_bare_hook() {
    let text = r#"{"kind":"nvidia.com/gpu","containerEdits":{"hooks":[{"hookName":"createContainer","path":"/h"}],"additionalGids":[0,44]}}"#;
    let driver = read(&[&dir_of(&[("n.json", text)])]).unwrap().unwrap();
    let original = json!({"process": {"user": {"uid": 0, "additionalGids": [1]}}, "linux": {}});
    let after = edited(&original, &driver);
    assert_eq!(
        after["hooks"]["createContainer"],
        json!([{"path": "/h", "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}])
    );
    assert_eq!(
        after["process"]["user"],
        json!({"uid": 0, "additionalGids": [1, 44]})
    );
}

#[test]
fn follows_links_to_roots_files() {
    let elsewhere = dir_of(&[("generated", GENERATED)]);
    let dir = dir_of(&[]);
    let link = dir.path().join("nvidia.yaml");
    symlink(elsewhere.path().join("generated"), &link).unwrap();
    let linked = read(&[&dir]).unwrap();
    assert_eq!(linked, read(&[&dir_of(&[("n.yaml", GENERATED)])]).unwrap());
    assert!(linked.is_some());
    // a user who can replace the target would run hooks as root
    fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let line = refused(&dir);
    has(&line, "others than root can write to it");
    fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(elsewhere.path().join("generated")).unwrap();
    assert_eq!(
        refused(&dir),
        "cannot read CDI specification /etc/cdi/nvidia.yaml: no such file or directory"
    );
}

/// Another vendor's file is no reason to refuse a container.
/// Failure: a CDI file of another vendor is broken, or others can write to it
#[test]
fn passes_over_broken_files_of_others() {
    let dir = dir_of(&[
        ("broken.json", "{\"kind\": \"vendor.com/net\","),
        ("binary.yaml", "\0\u{1}"),
        ("open.yaml", "kind: vendor.com/x"),
        ("fine.json", "{\"kind\": \"vendor.com/y\"}"),
    ]);
    let open = fs::Permissions::from_mode(0o666);
    fs::set_permissions(dir.path().join("open.yaml"), open).unwrap();
    symlink("nowhere", dir.path().join("gone.json")).unwrap();
    let names = ["binary.yaml", "broken.json", "gone.json", "open.yaml"];
    let skipped = |found: &Found| -> Vec<String> {
        let lines = found.skipped.iter().map(|why| why.line());
        lines
            .map(|line| line.replace(dir.path().to_str().unwrap(), "/etc/cdi"))
            .collect()
    };
    let none = found(&[&dir]).unwrap();
    assert_eq!(none.files, None);
    let lines = skipped(&none);
    assert_eq!(lines.len(), names.len(), "{lines:?}");
    for (line, name) in lines.iter().zip(names) {
        let start = format!("cannot read CDI specification /etc/cdi/{name}: ");
        assert!(line.starts_with(&start), "{line}");
    }
    // a caller that requires them learns what could not be read
    let line = none.required().unwrap_err().line();
    assert!(
        line.starts_with("cannot find a CDI specification of nvidia.com/gpu in /etc/cdi or"),
        "{line}"
    );
    assert!(names.iter().all(|name| line.contains(name)), "{line}");

    fs::write(dir.path().join("nvidia.yaml"), GENERATED).unwrap();
    let with = found(&[&dir]).unwrap();
    assert_eq!(skipped(&with), lines);
    assert!(!with.required().unwrap().mounts.is_empty());
}

/// Failure: a CDI file of NVIDIA is broken, or a link that others can change leads to it
#[test]
fn refuses_broken_files_of_nvidia() {
    for (name, text) in [
        ("nvidia.yaml", "kind: ["),
        ("gpus.yaml", "kind: nvidia.com/gpu\ncontainerEdits: ["),
    ] {
        let broken = dir_of(&[(name, text)]);
        let line = refused(&broken);
        assert!(
            line.starts_with(&format!("cannot read CDI specification /etc/cdi/{name}: ")),
            "{line}"
        );
        // unless another one has them
        fs::write(broken.path().join("a.yaml"), GENERATED).unwrap();
        let found = found(&[&broken]).unwrap();
        assert!(found.files.is_some());
        assert_eq!(found.skipped.len(), 1);
    }
}
