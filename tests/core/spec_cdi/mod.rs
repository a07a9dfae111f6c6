//! The driver's files, from a CDI specification as `nvidia-ctk cdi generate` writes it.

use runmig::spec::cdi::driver_files;
use runmig::spec::{Document, DriverFiles, Grant, HookCommand, HostView, Source, edit};
use runmig_lease::cdi::{self, Found, Node};
use runmig_lease::config::Config;
use runmig_lease::driver_files::find_in;
use runmig_lease::error::Result;
use runmig_lease::model::NvidiaNumbers;
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
    found_of(&Config::default().cdi_kinds, dirs)
}

fn found_of(kinds: &[String], dirs: &[&TempDir]) -> Result<Found> {
    let dirs: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
    cdi::read(&dirs, kinds, node(&|_| false))
}

/// A node with these files, each of which root may run.
fn node(is_there: &dyn Fn(&Path) -> bool) -> Node<'_> {
    Node {
        is_there,
        check_program: &|_| Ok(()),
    }
}

fn read(dirs: &[&TempDir]) -> Result<Option<DriverFiles>> {
    let files = found(dirs)?.files;
    { files.map(|it| driver_files(it.edits(&[]))) }.transpose()
}

/// A file with libcuda and a variable at its top.
fn one(value: &str) -> String {
    format!("kind: nvidia.com/gpu\ncontainerEdits: {{env: [A={value}], {LIBCUDA}}}\n")
}

const LIBCUDA: &str =
    "mounts: [{hostPath: /lib/libcuda.so.570, containerPath: /lib/libcuda.so.570}]";

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
    let document = Document::parse(&serde_json::to_vec(original).unwrap()).unwrap();
    let edited = edit(document, &grant, &NoDevices).unwrap();
    serde_json::from_slice(&edited.bytes).unwrap()
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
    let etc = dir_of(&[("nvidia.yaml", &one("etc")), ("broken.json", "{")]);
    let run = dir_of(&[
        (
            "nvidia.yaml",
            r#"{"kind": "nvidia.com/gpu", "containerEdits": {"env": ["A=run"],
                "mounts": [{"hostPath": "/l/libcuda.so", "containerPath": "/l/libcuda.so"}]}}"#,
        ),
        (
            "a.json",
            r#"{"kind": "vendor.com/net", "containerEdits": {"env": ["A=net"]}}"#,
        ),
        ("nvidia.yml", &one("yml")),
    ]);
    let gone = TempDir::new().unwrap();
    fs::remove_dir(gone.path()).unwrap();
    assert_eq!(read(&[&etc, &run, &gone]).unwrap().unwrap().env, ["A=run"]);
    assert_eq!(read(&[&etc]).unwrap().unwrap().env, ["A=etc"]);
    assert_eq!(read(&[&dir_of(&[])]).unwrap(), None);
    assert_eq!(read(&[&gone]).unwrap(), None);
}

/// As the GPU Operator leaves them, and as csv mode writes them.
/// Failure: the CDI specification has the driver's files at its devices alone, or is of a kind of the GPU Operator
#[test]
fn finds_libcuda_wherever_it_is() {
    let device = |name: &str, value: &str| {
        format!("  - {{name: \"{name}\", containerEdits: {{env: [A={value}], {LIBCUDA}}}}}\n")
    };
    let spec = |kind: &str, devices: &str| format!("kind: {kind}\ndevices:\n{devices}");
    let taken = |files: &[(&str, &str)], gpus: &[(u32, &str)]| {
        let dir = dir_of(files);
        let files = found(&[&dir]).unwrap().files;
        files.map(|it| it.edits(gpus).env.join(" "))
    };
    for kind in [
        "management.nvidia.com/gpu",
        "k8s.device-plugin.nvidia.com/gpu",
        "runtime.nvidia.com/gpu",
    ] {
        let text = spec(kind, &device("all", "all"));
        assert_eq!(
            taken(&[("x.yaml", &text)], &[]).as_deref(),
            Some("A=all"),
            "{kind}"
        );
        // nvidia.com/gpu goes first, unless it has no libcuda.
        let files = [("x.yaml", text.as_str()), ("a.yaml", &one("own"))];
        assert_eq!(taken(&files, &[]).as_deref(), Some("A=own"), "{kind}");
        let bare = "kind: nvidia.com/gpu\ncontainerEdits: {env: [A=bare]}\n";
        let files = [("x.yaml", text.as_str()), ("a.yaml", bare)];
        assert_eq!(taken(&files, &[]).as_deref(), Some("A=all"), "{kind}");
    }
    let files = [("x.yaml", &*spec("example.com/gpu", &device("all", "1")))];
    assert_eq!(taken(&files, &[]), None);
    let kinds = ["example.com/gpu".to_owned()];
    assert!(
        found_of(&kinds, &[&dir_of(&files)])
            .unwrap()
            .files
            .is_some()
    );

    let own = [
        device("0", "first"),
        device("GPU-b", "second"),
        device("gpu2", "third"),
    ]
    .concat();
    let own = spec(
        "nvidia.com/gpu",
        &format!("{own}  - {{name: \"3\", containerEdits: {{env: [A=no]}}}}\n"),
    );
    for (gpus, expected) in [
        (&[(0, "GPU-a")][..], "A=first"),
        (&[(1, "GPU-b")], "A=second"),
        (&[(2, "GPU-c")], "A=third"),
        (&[(2, "GPU-c"), (0, "GPU-a")], "A=third A=first"),
        // Its own device brings nothing, and another's library is the same driver's.
        (&[(3, "GPU-d")], "A=first"),
    ] {
        let found = taken(&[("nvidia.yaml", &own)], gpus);
        assert_eq!(found.as_deref(), Some(expected), "{gpus:?}");
    }
    // A file for each GPU.
    let [first, second] = ["0", "1"].map(|name| spec("nvidia.com/gpu", &device(name, name)));
    let files = [("a.yaml", first.as_str()), ("b.yaml", second.as_str())];
    assert_eq!(taken(&files, &[(1, "GPU-b")]).as_deref(), Some("A=1"));
    let third = spec("nvidia.com/gpu", &device("1", "other"));
    let dir = dir_of(&[files[0], files[1], ("c.yaml", &third)]);
    assert!(refused(&dir).contains("c.yaml of kind nvidia.com/gpu differ"));
    let both = format!("{own}{}", device("all", "all"));
    assert_eq!(
        taken(&[("nvidia.yaml", &both)], &[(0, "GPU-a")]).as_deref(),
        Some("A=all")
    );
    // With libcuda at the top, no device adds anything.
    let both = format!("{}devices:\n{}", one("top"), device("all", "all"));
    assert_eq!(
        taken(&[("nvidia.yaml", &both)], &[(0, "GPU-a")]).as_deref(),
        Some("A=top")
    );
}

#[test]
fn refuses_two_that_differ() {
    let dir = dir_of(&[("a.yaml", &one("1")), ("b.yaml", &one("2"))]);
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
        "cannot read CDI specification /etc/cdi/nvidia.yaml: users other than root can write to it (mode 0664); hint: chmod go-w it"
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(
        refused(&dir),
        "cannot read CDI directory /etc/cdi: users other than root can write to it (mode 0777); hint: chmod go-w it"
    );
}

#[test]
fn bad_specifications_are_named() {
    let message = |edits: &str| {
        let text = format!("kind: nvidia.com/gpu\ncontainerEdits: {edits}\n");
        refused(&dir_of(&[("n.yaml", &text)]))
    };
    let of = "CDI specification /etc/cdi/n.yaml: ";
    let hint =
        "; hint: remove it, or write it anew: nvidia-ctk cdi generate --output=/etc/cdi/n.yaml";
    assert_eq!(
        message("{env: [A]}"),
        format!("{of}\"A\" is not an environment variable{hint}")
    );
    assert_eq!(
        message("{hooks: [{hookName: x, path: /h}]}"),
        format!("{of}\"x\" is not a hook name{hint}")
    );
    assert_eq!(
        message("{hooks: [{hookName: poststop, path: h}]}"),
        format!("{of}hook h is not an absolute path{hint}")
    );
    assert_eq!(
        message("{mounts: [{hostPath: a, containerPath: /b}]}"),
        format!("{of}mount path a is not absolute{hint}")
    );
    assert!(message("{mounts: [{hostPath: /a}]}").contains("missing field `containerPath`"));
    let big = dir_of(&[("nvidia.yaml", &" ".repeat((4 << 20) + 1))]);
    assert_eq!(
        refused(&big),
        "cannot read CDI specification /etc/cdi/nvidia.yaml: longer than 4194304 bytes; hint: remove it, or write it anew: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
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
    let text = r#"{"kind":"nvidia.com/gpu","containerEdits":{"hooks":[{"hookName":"createContainer","path":"/h"}],"additionalGids":[0,44],
        "mounts":[{"hostPath":"/l/libcuda.so.1","containerPath":"/l/libcuda.so.1"}]}}"#;
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
    has(&refused(&dir), "users other than root can write to it");
    fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(elsewhere.path().join("generated")).unwrap();
    assert_eq!(
        refused(&dir),
        "cannot read CDI specification /etc/cdi/nvidia.yaml: no such file or directory; hint: remove it, or write it anew: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
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
    // a create that needs them learns what could not be read
    let config = Config::default();
    let dirs = [dir.path().to_owned()];
    let line = find_in(&dirs, &config, false, node(&|_| true))
        .unwrap_err()
        .line();
    let words =
        "cannot find a CDI specification of nvidia.com/gpu or management.nvidia.com/gpu or ";
    assert!(line.starts_with(words), "{line}");
    assert!(names.iter().all(|name| line.contains(name)), "{line}");

    fs::write(dir.path().join("nvidia.yaml"), GENERATED).unwrap();
    let with = found(&[&dir]).unwrap();
    assert_eq!(skipped(&with), lines);
    assert!(with.files.is_some());
}

/// Failure: a CDI file of NVIDIA is broken, or a link that others can change leads to it
#[test]
fn refuses_broken_files_of_nvidia() {
    for (name, text) in [
        ("nvidia.yaml", "kind: ["),
        ("nvidia.yaml", ""),
        ("nvidia.json", "{}"),
        ("gpus.yaml", "kind: nvidia.com/gpu\ncontainerEdits: ["),
    ] {
        let broken = dir_of(&[(name, text)]);
        let line = refused(&broken);
        begins_with(
            &line,
            &format!("cannot read CDI specification /etc/cdi/{name}: "),
        );
        // unless another one has them
        fs::write(broken.path().join("a.yaml"), GENERATED).unwrap();
        let found = found(&[&broken]).unwrap();
        assert!(found.files.is_some());
        assert_eq!(found.skipped.len(), 1);
    }
}

/// What a create says of a specification whose files are or are not there.
fn said(config: &Config, edits: &str, gone: &[&str]) -> (Result<DriverFiles>, Vec<String>) {
    let dir = dir_of(&[("n.yaml", &format!("kind: nvidia.com/gpu\n{edits}"))]);
    let is_there = |path: &Path| !gone.iter().any(|gone| path == Path::new(gone));
    let found = find_in(&[dir.path().to_owned()], config, false, node(&is_there));
    let shown = |line: String| line.replace(dir.path().to_str().unwrap(), "/etc/cdi");
    match found {
        Err(e) => (
            Err(runmig_lease::error::Error::new(shown(e.line()))),
            Vec::new(),
        ),
        Ok(source) => {
            let lines = source
                .warnings
                .iter()
                .map(|why| shown(why.line()))
                .collect();
            (
                driver_files(source.specification.unwrap().edits(&[])),
                lines,
            )
        }
    }
}

/// Failure: the CDI specification is older than the driver, and names files that are gone
#[test]
fn refuses_files_that_are_gone() {
    let edits = "containerEdits:\n  mounts:\n    - {hostPath: /lib/libcuda.so.570, containerPath: /lib/libcuda.so.570}\n    \
                 - {hostPath: /usr/bin/nvidia-smi, containerPath: /usr/bin/nvidia-smi, type: bind}\n    \
                 - {hostPath: /tmpfs, containerPath: /x, type: tmpfs}\n    \
                 - {hostPath: tmpfs, containerPath: /y, type: tmpfs}\n  \
                 hooks: [{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook}]\n";
    let line = |gone: &[&str]| said(&Config::default(), edits, gone).0.unwrap_err().line();
    let hint = "; hint: write it anew: nvidia-ctk cdi generate --output=/etc/cdi/n.yaml";
    for file in [
        "/lib/libcuda.so.570",
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-cdi-hook",
    ] {
        let words =
            format!("cannot use CDI specification /etc/cdi/n.yaml: {file} is missing{hint}");
        assert_eq!(line(&[file]), words);
    }
    let two = line(&["/usr/bin/nvidia-smi", "/usr/bin/nvidia-cdi-hook"]);
    let words = "/usr/bin/nvidia-cdi-hook is missing, and so is 1 other file";
    assert!(two.contains(words), "{two}");
    // Nothing of the host is at a mount without a source.
    assert!(said(&Config::default(), edits, &["/tmpfs"]).0.is_ok());
    let device = edits.replace(
        "containerEdits:",
        "devices:\n- name: all\n  containerEdits:",
    );
    let device = device
        .replace("\n  mounts", "\n   mounts")
        .replace("\n  hooks", "\n   hooks");
    let line = said(&Config::default(), &device, &["/usr/bin/nvidia-smi"])
        .0
        .unwrap_err();
    has(&line.line(), "/usr/bin/nvidia-smi is missing");
    for (name, kind, command) in testkit::rows! {
        "n.json", "nvidia.com/gpu" => "nvidia-ctk cdi generate --format=json --output=/etc/cdi/n.json";
        "n.yaml", "management.nvidia.com/gpu" => "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
    } {
        let libcuda = "/lib/libcuda.so.570";
        let mounts = serde_json::json!([{"hostPath": libcuda, "containerPath": libcuda}]);
        let text = serde_json::json!({"kind": kind, "containerEdits": {"mounts": mounts}});
        let dir = dir_of(&[(name, &text.to_string())]);
        let dirs = [dir.path().to_owned()];
        let found = find_in(&dirs, &Config::default(), false, node(&|_| false));
        let line = found
            .unwrap_err()
            .line()
            .replace(dir.path().to_str().unwrap(), "/etc/cdi");
        ends_with(&line, &format!("hint: write it anew: {command}"));
    }
}

#[test]
fn reads_specification_after_byte_order_mark() {
    for (name, text) in [
        ("n.yaml", one("1")),
        ("n.json", r#"{"kind":"nvidia.com/gpu","containerEdits":{"env":["A=1"],"mounts":[{"hostPath":"/libcuda.so.1","containerPath":"/libcuda.so.1"}]}}"#.to_owned()),
    ] {
        let dir = dir_of(&[(name, &format!("\u{feff}{text}"))]);
        assert_eq!(read(&[&dir]).unwrap().unwrap().env, ["A=1"], "{name}");
    }
}

/// Failure: users other than root can write to a hook, which would run as root
#[test]
fn refuses_hooks_that_others_can_write() {
    let dir = dir_of(&[("hook", "#!/bin/sh\n")]);
    let hook = dir.path().join("hook");
    let edits = format!(
        "{LIBCUDA}, hooks: [{{hookName: createContainer, path: {}}}]",
        hook.display()
    );
    let text = format!("kind: nvidia.com/gpu\ncontainerEdits: {{{edits}}}\n");
    let file = dir_of(&[("n.yaml", &text)]);
    let here = Node {
        is_there: &|_| true,
        ..Node::HERE
    };
    let find = || {
        let dirs = [file.path().to_owned()];
        find_in(&dirs, &Config::default(), false, here)
    };
    for (mode, why) in [
        (0o755, None),
        (
            0o777,
            Some("users other than root can write to it (mode 0777); hint: chmod go-w it"),
        ),
        (
            0o644,
            Some("it is not an executable file; hint: write it anew: "),
        ),
    ] {
        fs::set_permissions(&hook, fs::Permissions::from_mode(mode)).unwrap();
        match (find(), why) {
            (found, None) => assert!(found.is_ok()),
            (found, Some(why)) => has(
                &found.unwrap_err().line(),
                &format!("hook {}: {why}", hook.display()),
            ),
        }
    }
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    has(&find().unwrap_err().line(), "chmod go-w it");
}

/// Failure: the CDI specification names the socket of a daemon that does not run: persistenced, fabric manager, MPS
#[test]
fn leaves_out_missing_sockets() {
    for gone in [
        "/run/nvidia-persistenced/socket",
        "/var/run/nvidia-fabricmanager/socket",
        "/run/nvidia/driver/run/nvidia-persistenced",
        "/tmp/nvidia-mps",
        "/run/nvidia/mps/0/pipe/control",
        "/run/mps/shm",
        "/srv/x.sock",
    ] {
        let edits = format!(
            "containerEdits:\n  mounts:\n  - {{hostPath: {gone}, containerPath: /s}}\n  \
             - {{hostPath: /lib/libcuda.so.1, containerPath: /lib/libcuda.so.1}}\n"
        );
        let (files, warnings) = said(&Config::default(), &edits, &[gone]);
        assert_eq!(files.unwrap().mounts.len(), 1, "{gone}");
        assert_eq!(warnings.len(), 1, "{gone}");
        let words =
            format!("containers do not get {gone}, which CDI specification /etc/cdi/n.yaml names");
        assert!(warnings[0].starts_with(&words), "{warnings:?}");
        let (files, warnings) = said(&Config::default(), &edits, &[]);
        assert_eq!(
            (files.unwrap().mounts.len(), warnings.len()),
            (2, 0),
            "{gone}"
        );
    }
    for library in [
        "/run/nvidia/driver/lib/libx.so.1",
        "/run/nvidia-driver/lib/libx.so.1",
        "/run/nvidia-driver/bin/nvidia-smi",
        "/usr/bin/nvidia-persistenced",
    ] {
        let edits = format!(
            "containerEdits:\n  mounts:\n  - {{hostPath: {library}, containerPath: /x}}\n  \
             - {{hostPath: /lib/libcuda.so.1, containerPath: /lib/libcuda.so.1}}\n"
        );
        let (files, _) = said(&Config::default(), &edits, &[library]);
        assert!(files.unwrap_err().line().contains(library), "{library}");
    }
}

#[test]
fn skips_hooks_by_name() {
    let hooks = "hooks: [{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, chmod, --mode, chown]}, \
                 {hookName: createContainer, path: /usr/bin/nvidia-ctk, args: [nvidia-ctk, hook, update-ldcache]}]";
    let edits = format!("containerEdits: {{{LIBCUDA}, {hooks}}}\n");
    let left = |names: &[&str]| {
        let config = Config {
            driver_hooks_skip: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Config::default()
        };
        // A program that nobody calls may be missing.
        let gone = match names {
            [] => "/usr/bin/x",
            _ => "/usr/bin/nvidia-cdi-hook",
        };
        said(&config, &edits, &[gone])
            .0
            .map(|files| files.hooks.len())
    };
    assert_eq!(left(&[]).unwrap(), 2);
    assert_eq!(left(&["chmod"]).unwrap(), 1);
    assert_eq!(left(&["nvidia-cdi-hook", "update-ldcache"]).unwrap(), 0);
    assert_eq!(left(&["/usr/bin/nvidia-cdi-hook"]).unwrap(), 1);
    assert!(
        left(&["/opt/nvidia-cdi-hook"]).is_err(),
        "it is another program"
    );
    assert!(left(&["chown"]).is_err(), "it is the value of an option");
    assert!(left(&["nvidia-ctk"]).is_err(), "another program is missing");
}

#[test]
fn container_may_have_libcuda_already() {
    let dir = dir_of(&[(
        "n.yaml",
        "kind: nvidia.com/gpu\ncontainerEdits: {env: [A=1]}\n",
    )]);
    let broken = dir_of(&[("nvidia.yaml", "kind: [")]);
    let find = |dir: &TempDir, choice: &str, others_bring| {
        let config = Config::parse(&format!("driver_files = \"{choice}\"")).unwrap();
        let found = find_in(
            &[dir.path().to_owned()],
            &config,
            others_bring,
            node(&|_| false),
        );
        found
            .map(|source| source.warnings.len())
            .map_err(|e| e.line())
    };
    let line = find(&dir, "auto", false).unwrap_err();
    begins_with(&line, "cannot find libcuda in CDI specification ");
    has(
        &line,
        "hint: run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    );
    has(&line, "set driver_files = \"none\"");
    assert_eq!(find(&dir, "auto", true), Ok(0));
    assert_eq!(find(&broken, "auto", true), Ok(1), "it is told");
    assert!(find(&broken, "auto", false).is_err());
    assert!(find(&dir, "cdi", true).is_err());
    for choice in ["none", "nvidia-runtime"] {
        assert_eq!(find(&broken, choice, false), Ok(0));
    }
}
