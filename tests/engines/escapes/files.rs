//! Files of ours that are not what we left there, and files of others' that are not what they say:
//! the state directory, the log, locks, bundles. Nothing is written through them, nothing is read
//! from them, and nothing waits for them.

use nix::sys::stat::Mode;
use std::os::unix::fs::chown;
use testkit::prelude::*;

fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o600)).unwrap();
}

#[track_caller]
fn create_is_refused(setup: &Setup, words: &str) {
    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    has(&setup.refused(&bundle), words);
    assert_eq!(bundle.bytes(), before);
    setup.machine.is_empty();
}

/// Neither a create nor a look or a release accepts it.
#[test]
fn refuses_state_directory_of_others() {
    let setup = Setup::of(Low::Runc);
    let (_, id) = setup.made("1g.10gb", "sleep 1000");
    let (state, ledger) = (setup.state(), setup.state().join("ledger.json"));
    let operations = setup.state().join("operations");
    let instance = setup.machine.the_instance();
    for (dir, hostile) in [
        (&state, 0o777),
        (&state, 0o1777),
        (&state, 0o770),
        (&operations, 0o777),
        (&operations, 0o1777),
        (&ledger, 0o602),
    ] {
        chmod(dir, hostile);
        for arguments in [&["list"][..], &["gc"], &["release", &id]] {
            let line = setup.migctl(arguments).refused();
            has(&line, "users other than root can write to it");
        }
        let other = setup.asking("1g.10gb", "true");
        let line = setup.refused(&other);
        has(&line, "users other than root can write to it");
        assert_eq!(setup.machine.instances(), std::slice::from_ref(&instance));
        chmod(dir, if *dir == ledger { 0o600 } else { 0o700 });
    }
    chown(&state, Some(65534), None).unwrap();
    setup.migctl(&["gc"]).refused_for("belongs to user 65534");
    chown(&state, Some(0), None).unwrap();
    setup.the_lease();
    setup.ends(&[&id]);
}

/// A delete of what has no lease goes on, however hostile the directory.
#[test]
fn delete_ignores_hostile_state_directory() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.bundle("sleep 1000");
    let id = unique();
    setup.create(&bundle, &id);
    fs::create_dir_all(setup.state().join("operations")).unwrap();
    chmod(setup.state(), 0o777);
    setup.delete(&id);
    let left = fs::read_dir(setup.state()).unwrap().count();
    assert_eq!(left, 1, "and no log in it");
}

/// runmig creates nothing at the target of another user's link.
#[test]
fn refuses_link_to_foreign_directory() {
    let setup = Setup::of(Low::Runc);
    let theirs = setup.path("theirs");
    fs::create_dir(&theirs).unwrap();
    chmod(&theirs, 0o777);
    symlink(&theirs, setup.state()).unwrap();
    create_is_refused(&setup, "users other than root can write to it");
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);

    fs::remove_file(setup.state()).unwrap();
    symlink(theirs.join("deep/er"), setup.state()).unwrap();
    create_is_refused(&setup, "open state directory");
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);

    fs::remove_file(setup.state()).unwrap();
    fs::write(setup.state(), "").unwrap();
    let words = "it is not a folder; hint: set state_dir to a folder";
    create_is_refused(&setup, words);
    fs::remove_file(setup.state()).unwrap();
    let real = setup.path("real");
    fs::create_dir(&real).unwrap();
    fs::create_dir(setup.state()).unwrap();
    symlink(&real, setup.state().join("operations")).unwrap();
    create_is_refused(&setup, "is not a folder");
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
    setup.machine.is_empty();
}

/// Locks that are something else: an error, at once.
#[test]
fn locks() {
    let setup = Setup::of(Low::Runc);
    fs::create_dir_all(setup.state()).unwrap();
    chmod(setup.state(), 0o700);
    let victim = setup.path("victim");
    fs::write(&victim, "the host's").unwrap();
    let lock = setup.state().join("ledger.lock");
    symlink(&victim, &lock).unwrap();
    create_is_refused(&setup, "ledger.lock");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "the host's");
    let listed = setup.migctl(&["list"]).refused();
    has(&listed, "is not a regular file; hint: remove it");
    fs::remove_file(&lock).unwrap();
    fifo(&lock);
    create_is_refused(&setup, "not a regular file");
    fs::remove_file(&lock).unwrap();
    setup.nothing_is_left();
}

/// A ledger that is a pipe, a link or another user's file blocks no call and destroys nothing.
#[test]
fn ledgers_that_are_none() {
    let setup = Setup::of(Low::Runc);
    fs::create_dir_all(setup.state()).unwrap();
    chmod(setup.state(), 0o700);
    let ledger = setup.state().join("ledger.json");
    type Made = (&'static str, fn(&Path));
    let make: [Made; 4] = [
        ("not a regular file", fifo),
        ("it is a link", |at| symlink("/etc/shadow", at).unwrap()),
        ("longer than 67108864 bytes", |at| {
            fs::File::create(at).unwrap().set_len(1 << 40).unwrap();
        }),
        ("belongs to user 65534", |at| {
            fs::write(at, "").unwrap();
            chown(at, Some(65534), None).unwrap();
        }),
    ];
    for (why, make) in make {
        make(&ledger);
        setup.migctl(&["list"]).refused_for(why);
        create_is_refused(&setup, why);
        let bundle = setup.bundle("true");
        setup.run(&bundle);
        fs::remove_file(&ledger).unwrap();
    }
}

/// `runmig.log` is ours or it is not written.
#[test]
fn never_writes_to_foreign_log() {
    let setup = Setup::of(Low::Runc);
    fs::create_dir_all(setup.state()).unwrap();
    chmod(setup.state(), 0o700);
    let (log, victim) = (setup.state().join("runmig.log"), setup.path("victim"));
    fs::write(&victim, "the host's").unwrap();
    let run = || {
        let bundle = setup.asking("1g.10gb", "true");
        setup.run(&bundle);
        setup.nothing_is_left();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "the host's");
        fs::remove_file(&log).unwrap();
    };
    symlink(&victim, &log).unwrap();
    run();
    fs::hard_link(&victim, &log).unwrap();
    run();
    fifo(&log);
    run();
    symlink("/dev/tty", &log).unwrap();
    run();
    // and a directory that runmig creates is root's alone
    let bundle = setup.asking("1g.10gb", "true");
    setup.run(&bundle);
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o600);
}

/// `--log` is the engine's word, root's; what it leads to may not hold us up or make us loud.
#[test]
fn tolerates_any_log_of_engine() {
    let setup = Setup::of(Low::Runc);
    let pipe = setup.path("pipe");
    fifo(&pipe);
    let others = [
        "/dev/full",
        "/dev/null",
        "/proc/self/mem",
        "/",
        "/nowhere/x",
        "",
    ];
    for log in [&[pipe.to_str().unwrap()], &others[..]].concat() {
        let bundle = setup.asking("nonsense", "true");
        let create = ["--log", log, "create", "-b", bundle.as_str(), &unique()];
        setup
            .runmig(&create)
            .refused_for("neither a profile nor an amount");
    }
    setup.machine.is_empty();
}

/// A file beside config.json becomes config.json again, with hooks that run as root: another user's
/// does not.
#[test]
fn ignores_planted_sidecar() {
    let setup = Setup::of(Low::Runc);
    let (bundle, id) = setup.made("1g.10gb", "true");
    let sidecar = bundle.path.join("config.json.runmig");
    let ours = fs::read(&sidecar).unwrap();
    setup.delete(&id);

    // Right in every word but for whose it is: the hash of what is there now, and an original.
    use sha2::Digest;
    let hash = |bytes: &[u8]| -> String {
        let hash = sha2::Sha256::digest(bytes);
        hash.iter().map(|b| format!("{b:02x}")).collect()
    };
    let end = ours.iter().position(|b| *b == b'\n').unwrap();
    let mut header: Value = serde_json::from_slice(&ours[..end]).unwrap();
    let mut evil = bundle.config();
    let marker = setup.path("marker");
    let hook = json!({"path": "/bin/touch", "args": ["touch", marker]});
    evil["hooks"]["createRuntime"] = json!([hook]);
    let evil = serde_json::to_vec(&evil).unwrap();
    header["written"] = json!([hash(&bundle.bytes())]);
    header["original"] = json!(hash(&evil));
    let planted = [header.to_string().as_bytes(), b"\n", &evil].concat();
    let before = bundle.bytes();
    for (owner, bits) in [(65534, 0o600), (0, 0o666)] {
        fs::write(&sidecar, &planted).unwrap();
        chown(&sidecar, Some(owner), None).unwrap();
        chmod(&sidecar, bits);
        setup.run(&bundle);
        assert!(!marker.exists(), "its hook ran");
        assert_eq!(bundle.bytes(), before);
        setup.nothing_is_left();
    }
    // Ours, it would be taken: the trial is worth something.
    fs::write(&sidecar, &planted).unwrap();
    chmod(&sidecar, 0o600);
    setup.run(&bundle);
    assert!(marker.exists());
}

/// Any caller of the hook chooses its standard input.
#[test]
fn bounds_foreign_states() {
    let setup = Setup::of(Low::Runc);
    let (_, id) = setup.made("1g.10gb", "sleep 1000");
    let lease = setup.the_lease()["id"].as_str().unwrap().to_owned();
    let config = setup.config().display().to_string();
    let state = |id: &str| {
        format!(r#"{{"ociVersion":"1.0.2","id":"{id}","status":"stopped","bundle":"/"}}"#)
    };
    let hook = |lease: &str, input: &Path| {
        let mut hook = setup.plain(&setup.program("runmig-hook"));
        hook.args(["--lease", lease, "--config", &config]);
        let said = going(hook.stdin(File::open(input).unwrap())).end().ok();
        let is_harmless = !said.stderr.contains('\u{1b}') && said.stderr.len() < 8192;
        assert!(is_harmless, "{}", said.stderr);
        setup.machine.the_instance();
    };
    for (lease, input) in [
        (lease.as_str(), state("other")),
        (&lease, state("\\u001b[2J")),
        (&lease, format!("{}{}", state(&id), " ".repeat(2 << 20))),
        (&lease, String::new()),
        ("../../etc/passwd", state(&id)),
        ("", state(&id)),
        (&"x".repeat(100_000), state(&id)),
        // the container's own, while it lives
        (&lease, state(&id)),
    ] {
        let file = setup.path("input");
        fs::write(&file, input).unwrap();
        hook(lease, &file);
    }
    hook(&lease, Path::new("/dev/zero"));
    setup.ends(&[&id]);
}

/// A configuration that is a pipe, or that others can replace.
#[test]
fn refuses_bad_configuration() {
    let setup = Setup::of(Low::Runc);
    let text = fs::read(setup.config()).unwrap();
    fs::remove_file(setup.config()).unwrap();
    fifo(&setup.config());
    create_is_refused(&setup, "not a regular file");
    fs::remove_file(setup.config()).unwrap();

    let dir = setup.path("open-to-all");
    fs::create_dir(&dir).unwrap();
    chmod(&dir, 0o777);
    fs::write(dir.join("config.toml"), &text).unwrap();
    symlink(dir.join("config.toml"), setup.config()).unwrap();
    create_is_refused(&setup, "users other than root can write to it");
    let mut list = setup.plain(&setup.program("migctl"));
    assert!(said(list.arg("list")).refused().contains("open-to-all"));
}
