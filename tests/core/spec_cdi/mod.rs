//! The driver's files, from a CDI specification as `nvidia-ctk cdi generate` writes it.

use runmig::spec::{Document, Source, edit};
use runmig_lease::cdi::{self, Edits, Found, Node};
use runmig_lease::config::Config;
use runmig_lease::driver_files::{self, find_in};
use runmig_lease::error::{Error, Result};
use runmig_lease::model::NvidiaNumbers;
use testkit::prelude::*;

const GENERATED: &str = include_str!("nvidia-cdi.yaml");

fn dir_of(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    chmod(dir.path(), 0o755);
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        chmod(&path, 0o644);
    }
    dir
}

/// A line of an error, with the folder as /etc/cdi.
fn shown(e: &Error, dir: &TempDir) -> String {
    e.line().replace(dir.path().to_str().unwrap(), "/etc/cdi")
}

/// Searches a folder for the files of a node.
fn find(dir: &TempDir, config: &Config, node: Node<'_>) -> Result<driver_files::Source> {
    find_in(&[dir.path().to_owned()], config, false, node)
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

fn read(dirs: &[&TempDir]) -> Result<Option<Edits>> {
    Ok(found(dirs)?.files.map(|it| it.edits(&[])))
}

/// A file with libcuda and a variable at its top.
fn one(value: &str) -> String {
    format!("kind: nvidia.com/gpu\ncontainerEdits: {{env: [A={value}], {LIBCUDA}}}\n")
}

const LIBCUDA: &str =
    "mounts: [{hostPath: /lib/libcuda.so.570, containerPath: /lib/libcuda.so.570}]";

fn refused(dir: &TempDir) -> String {
    shown(&read(&[dir]).unwrap_err(), dir)
}

fn edited(original: &Value, driver: &Edits) -> Value {
    let numbers = NvidiaNumbers {
        majors: vec![195],
        drm: vec![],
    };
    let grant = crate::grant(&["MIG-1"], &[], driver, &numbers);
    let document = Document::parse(&serde_json::to_vec(original).unwrap()).unwrap();
    let edited = edit(document, &grant, &|_| Ok(Source::Other)).unwrap();
    serde_json::from_slice(&edited.bytes).unwrap()
}

#[test]
fn edits_in_nvidia_ctks_files() {
    let dir = dir_of(&[("nvidia.yaml", GENERATED)]);
    let driver = read(&[&dir]).unwrap().unwrap();
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
    let env = json!([
        "PATH=/bin",
        "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu",
        "NVIDIA_VISIBLE_DEVICES=MIG-1"
    ]);
    assert_eq!(after["process"]["env"], env);
    assert_eq!(after["linux"]["devices"], json!([]));
    let mounts = after["mounts"].as_array().unwrap();
    assert_eq!(mounts.len(), 1 + 21);
    let smi = json!({
        "destination": "/usr/bin/nvidia-smi",
        "source": "/usr/bin/nvidia-smi",
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    });
    let at_smi = mounts.iter().filter(|m| m["destination"] == smi["source"]);
    assert_eq!(at_smi.collect::<Vec<_>>(), [&smi]);
    let hooks = after["hooks"]["createContainer"].as_array().unwrap();
    assert_eq!(hooks.len(), 5);
    assert_eq!(hooks[0], json!({"path": "/theirs"}));
    let compat = json!({
        "path": "/usr/bin/nvidia-cdi-hook",
        "args": ["nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=570.124.06"],
        "env": ["NVIDIA_CTK_DEBUG=false"]
    });
    assert_eq!(hooks[2], compat);
    // once more, over what is already there
    assert_eq!(edited(&after, &driver), after);
}

#[test]
fn later_directory_wins() {
    let etc = dir_of(&[("nvidia.yaml", &one("etc")), ("broken.json", "{")]);
    let in_json = r#"{"kind": "nvidia.com/gpu", "containerEdits": {"env": ["A=run"],
        "mounts": [{"hostPath": "/l/libcuda.so", "containerPath": "/l/libcuda.so"}]}}"#;
    let others = r#"{"kind": "vendor.com/net", "containerEdits": {"env": ["A=net"]}}"#;
    let run = dir_of(&[
        ("nvidia.yaml", in_json),
        ("a.json", others),
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
        let bare = "kind: nvidia.com/gpu\ncontainerEdits: {env: [A=bare]}\n";
        // nvidia.com/gpu goes first, unless it has no libcuda.
        for (own, expected) in [("", "A=all"), (&one("own"), "A=own"), (bare, "A=all")] {
            let files = [("x.yaml", text.as_str()), ("a.yaml", own)];
            let files = &files[..1 + usize::from(!own.is_empty())];
            assert_eq!(taken(files, &[]).as_deref(), Some(expected), "{kind} {own}");
        }
    }
    let files = [("x.yaml", &*spec("example.com/gpu", &device("all", "1")))];
    assert_eq!(taken(&files, &[]), None);
    let kinds = ["example.com/gpu".to_owned()];
    let of_kind = found_of(&kinds, &[&dir_of(&files)]).unwrap();
    assert!(of_kind.files.is_some());

    let named = [("0", "first"), ("GPU-b", "second"), ("gpu2", "third")];
    let own = named.map(|(name, value)| device(name, value)).concat();
    let none = "  - {name: \"3\", containerEdits: {env: [A=no]}}\n";
    let own = spec("nvidia.com/gpu", &format!("{own}{none}"));
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
    let all = device("all", "all");
    for (both, expected) in testkit::rows! {
        format!("{own}{all}") => "A=all";
        // With libcuda at the top, no device adds anything.
        format!("{}devices:\n{all}", one("top")) => "A=top";
    } {
        let found = taken(&[("nvidia.yaml", &both)], &[(0, "GPU-a")]);
        assert_eq!(found.as_deref(), Some(expected));
    }
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
    chmod(&path, 0o664);
    assert_eq!(
        refused(&dir),
        "cannot read CDI specification /etc/cdi/nvidia.yaml: users other than root can write to it (mode 0664); hint: chmod go-w it"
    );
    chmod(&path, 0o644);
    chmod(dir.path(), 0o777);
    assert_eq!(
        refused(&dir),
        "cannot read CDI directory /etc/cdi: users other than root can write to it (mode 0777); hint: chown root: /etc/cdi && chmod go-w /etc/cdi"
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
    for (edits, why) in testkit::rows! {
        "{env: [A]}" => "\"A\" is not an environment variable";
        "{hooks: [{hookName: x, path: /h}]}" => "\"x\" is not a hook name";
        "{hooks: [{hookName: poststop, path: h}]}" => "hook h is not an absolute path";
        "{mounts: [{hostPath: a, containerPath: /b}]}" => "mount path a is not absolute";
    } {
        assert_eq!(message(edits), format!("{of}{why}{hint}"));
    }
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
    begins_with(&line, "cannot read CDI specification");
}

#[test]
fn adds_environment_to_bare_hook() {
    let text = r#"{"kind":"nvidia.com/gpu","containerEdits":{"hooks":[{"hookName":"createContainer","path":"/h"}],"additionalGids":[0,44],
        "mounts":[{"hostPath":"/l/libcuda.so.1","containerPath":"/l/libcuda.so.1"}]}}"#;
    let driver = read(&[&dir_of(&[("n.json", text)])]).unwrap().unwrap();
    let original = json!({"process": {"user": {"uid": 0, "additionalGids": [1]}}, "linux": {}});
    let after = edited(&original, &driver);
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let hooks = json!([{"path": "/h", "env": [path]}]);
    assert_eq!(after["hooks"]["createContainer"], hooks);
    let user = json!({"uid": 0, "additionalGids": [1, 44]});
    assert_eq!(after["process"]["user"], user);
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
    chmod(elsewhere.path(), 0o777);
    has(&refused(&dir), "users other than root can write to it");
    chmod(elsewhere.path(), 0o755);
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
    chmod(dir.path().join("open.yaml"), 0o666);
    symlink("nowhere", dir.path().join("gone.json")).unwrap();
    let names = ["binary.yaml", "broken.json", "gone.json", "open.yaml"];
    let skipped = |found: &Found| -> Vec<String> {
        found.skipped.iter().map(|why| shown(why, &dir)).collect()
    };
    let none = found(&[&dir]).unwrap();
    assert_eq!(none.files, None);
    let lines = skipped(&none);
    assert_eq!(lines.len(), names.len(), "{lines:?}");
    for (line, name) in lines.iter().zip(names) {
        let start = format!("cannot read CDI specification /etc/cdi/{name}: ");
        begins_with(line, &start);
    }
    // a create that needs them learns what could not be read
    let needing = find(&dir, &Config::default(), node(&|_| true));
    let line = needing.unwrap_err().line();
    let kinds = "nvidia.com/gpu or management.nvidia.com/gpu or ";
    begins_with(
        &line,
        &format!("cannot find a CDI specification of {kinds}"),
    );
    names.iter().for_each(|name| has(&line, name));

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
        let start = format!("cannot read CDI specification /etc/cdi/{name}: ");
        begins_with(&refused(&broken), &start);
        // unless another one has them
        fs::write(broken.path().join("a.yaml"), GENERATED).unwrap();
        let found = found(&[&broken]).unwrap();
        assert!(found.files.is_some());
        assert_eq!(found.skipped.len(), 1);
    }
}

/// What a create says of a specification whose files are or are not there.
fn said(config: &Config, edits: &str, gone: &[&str]) -> (Result<Edits>, Vec<String>) {
    let dir = dir_of(&[("n.yaml", &format!("kind: nvidia.com/gpu\n{edits}"))]);
    let is_there = |path: &Path| !gone.iter().any(|gone| path == Path::new(gone));
    match find(&dir, config, node(&is_there)) {
        Err(e) => (Err(Error::new(shown(&e, &dir))), Vec::new()),
        Ok(source) => {
            let warnings = source.warnings.iter().map(|why| shown(why, &dir));
            let files = source.specification.unwrap().edits(&[]);
            (Ok(files), warnings.collect())
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
    let (smi, hook) = ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-cdi-hook");
    for file in ["/lib/libcuda.so.570", smi, hook] {
        let words = format!("specification /etc/cdi/n.yaml: {file} is missing{hint}");
        assert_eq!(line(&[file]), format!("cannot use CDI {words}"));
    }
    let words = format!("{hook} is missing, and so is 1 other file");
    has(&line(&[smi, hook]), &words);
    // Nothing of the host is at a mount without a source.
    assert!(said(&Config::default(), edits, &["/tmpfs"]).0.is_ok());
    let (_, body) = edits.split_once("containerEdits:").unwrap();
    let body = body.replace("\n  mounts", "\n   mounts");
    let body = body.replace("\n  hooks", "\n   hooks");
    let device = format!("devices:\n- name: all\n  containerEdits:{body}");
    let refused = said(&Config::default(), &device, &[smi]).0.unwrap_err();
    has(&refused.line(), "/usr/bin/nvidia-smi is missing");
    for (name, kind, command) in testkit::rows! {
        "n.json", "nvidia.com/gpu" => "nvidia-ctk cdi generate --format=json --output=/etc/cdi/n.json";
        "n.yaml", "management.nvidia.com/gpu" => "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
    } {
        let libcuda = "/lib/libcuda.so.570";
        let mounts = json!([{"hostPath": libcuda, "containerPath": libcuda}]);
        let text = json!({"kind": kind, "containerEdits": {"mounts": mounts}});
        let dir = dir_of(&[(name, &text.to_string())]);
        let found = find(&dir, &Config::default(), node(&|_| false));
        let line = shown(&found.unwrap_err(), &dir);
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
    let path = hook.display();
    let edits = format!("{LIBCUDA}, hooks: [{{hookName: createContainer, path: {path}}}]");
    let text = format!("kind: nvidia.com/gpu\ncontainerEdits: {{{edits}}}\n");
    let file = dir_of(&[("n.yaml", &text)]);
    let here = Node {
        is_there: &|_| true,
        ..Node::HERE
    };
    let find = || find(&file, &Config::default(), here);
    for (mode, why) in testkit::rows! {
        0o777 => "users other than root can write to it (mode 0777); hint: chmod go-w it";
        0o644 => "it is not an executable file; hint: write it anew: ";
    } {
        chmod(&hook, mode);
        has(&find().unwrap_err().line(), &format!("hook {path}: {why}"));
    }
    chmod(&hook, 0o755);
    assert!(find().is_ok());
    chmod(dir.path(), 0o777);
    has(&find().unwrap_err().line(), " && chmod go-w ");
}

/// Failure: the CDI specification names the socket of a daemon that does not run: persistenced, fabric manager, MPS
#[test]
fn leaves_out_missing_sockets() {
    let said = |file: &str, gone: &[&str]| {
        let edits = format!(
            "containerEdits:\n  mounts:\n  - {{hostPath: {file}, containerPath: /s}}\n  \
             - {{hostPath: /lib/libcuda.so.1, containerPath: /lib/libcuda.so.1}}\n"
        );
        said(&Config::default(), &edits, gone)
    };
    for gone in [
        "/run/nvidia-persistenced/socket",
        "/var/run/nvidia-fabricmanager/socket",
        "/run/nvidia/driver/run/nvidia-persistenced",
        "/tmp/nvidia-mps",
        "/run/nvidia/mps/0/pipe/control",
        "/run/mps/shm",
        "/srv/x.sock",
    ] {
        let (files, warnings) = said(gone, &[gone]);
        assert_eq!(files.unwrap().mounts.len(), 1, "{gone}");
        assert_eq!(warnings.len(), 1, "{gone}");
        let words =
            format!("containers do not get {gone}, which CDI specification /etc/cdi/n.yaml names");
        begins_with(&warnings[0], &words);
        let (files, warnings) = said(gone, &[]);
        let counts = (files.unwrap().mounts.len(), warnings.len());
        assert_eq!(counts, (2, 0), "{gone}");
    }
    for library in [
        "/run/nvidia/driver/lib/libx.so.1",
        "/run/nvidia-driver/lib/libx.so.1",
        "/run/nvidia-driver/bin/nvidia-smi",
        "/usr/bin/nvidia-persistenced",
    ] {
        let (files, _) = said(library, &[library]);
        has(&files.unwrap_err().line(), library);
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
        let (files, _) = said(&config, &edits, &[gone]);
        files.ok().map(|files| files.hooks.len())
    };
    for (names, hooks) in testkit::rows! {
        &[][..] => Some(2);
        &["chmod"] => Some(1);
        &["nvidia-cdi-hook", "update-ldcache"] => Some(0);
        &["/usr/bin/nvidia-cdi-hook"] => Some(1);
        // Another program, the value of an option, and another program that is missing.
        &["/opt/nvidia-cdi-hook"] => None;
        &["chown"] => None;
        &["nvidia-ctk"] => None;
    } {
        assert_eq!(left(names), hooks, "{names:?}");
    }
}

#[test]
fn container_may_have_libcuda_already() {
    let bare = "kind: nvidia.com/gpu\ncontainerEdits: {env: [A=1]}\n";
    let dir = dir_of(&[("n.yaml", bare)]);
    let broken = dir_of(&[("nvidia.yaml", "kind: [")]);
    let find = |dir: &TempDir, choice: &str, others_bring| {
        let config = Config::parse(&format!("driver_files = \"{choice}\"")).unwrap();
        let dirs = [dir.path().to_owned()];
        let found = find_in(&dirs, &config, others_bring, node(&|_| false));
        let warnings = found.map(|source| source.warnings.len());
        warnings.map_err(|e| e.line())
    };
    let line = find(&dir, "auto", false).unwrap_err();
    begins_with(&line, "cannot find libcuda in CDI specification ");
    let command = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
    has(&line, &format!("hint: run {command}"));
    has(&line, "set driver_files = \"none\"");
    assert_eq!(find(&dir, "auto", true), Ok(0));
    assert_eq!(find(&broken, "auto", true), Ok(1), "it is told");
    assert!(find(&broken, "auto", false).is_err());
    assert!(find(&dir, "cdi", true).is_err());
    for choice in ["none", "nvidia-runtime"] {
        assert_eq!(find(&broken, choice, false), Ok(0));
    }
}
