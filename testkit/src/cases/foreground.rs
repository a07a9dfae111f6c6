//! `run` in the foreground behaves as the low-level runtime's own.

use crate::bundle::NODES;
use crate::prelude::*;

pub fn gets_and_releases_its_slice(setup: &Setup) {
    let bundle = setup.asking("2g.20gb", SHOW);
    let before = bundle.bytes();
    let said = setup.run(&bundle);
    let uuid = visible(&said.stdout).unwrap().to_owned();
    assert!(uuid.starts_with("MIG-"), "{uuid}");
    assert_eq!(nodes(&said.stdout).len(), NODES, "{}", said.stdout);
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

pub fn returns_its_exit_code(setup: &Setup) {
    for code in [0, 1, 42] {
        let bundle = setup.asking("1g.10gb", &format!("exit {code}"));
        setup.try_run(&bundle).exits(code);
        setup.nothing_is_left();
    }
}

pub fn forwards_signals(setup: &Setup) {
    let script = "trap 'echo got TERM; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let bundle = setup.asking("1g.10gb", script);
    let mut command = setup.command(&["run", "-b", bundle.as_str(), &unique()]);
    let mut going = going(command.stdin(Stdio::null()));
    going.until("ready");
    until("the lease is ready", || {
        setup.the_lease()["state"] == "ready"
    });
    going.signal(Signal::SIGTERM);
    let said = going.end().exits(7);
    assert!(said.stdout.contains("got TERM"), "{}", said.stdout);
    setup.nothing_is_left();
}

pub fn forwards_standard_input(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "cat");
    let file = setup.path("input");
    fs::write(&file, "from outside\n").unwrap();
    let mut command = setup.command(&["run", "-b", bundle.as_str(), &unique()]);
    let said = going(command.stdin(File::open(&file).unwrap())).end();
    assert_eq!(said.ok().stdout, "from outside\n");
}

/// util-linux' `script` is the terminal's other end.
pub fn gives_a_terminal(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "test -t 0 && test -t 1 && tty; exit 5");
    bundle.edit(|config| config["process"]["terminal"] = serde_json::json!(true));
    let run = setup.command(&["run", "-b", bundle.as_str(), &unique()]);
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    let mut script = setup.plain("script".as_ref());
    script.args(["-qec", &words.join(" "), "/dev/null"]);
    let said = said(&mut script).exits(5);
    assert!(said.stdout.contains("/dev/pts/0"), "{}", said.stdout);
    setup.nothing_is_left();
}

/// Runs what a shell does before it becomes runmig, or the low-level runtime itself.
fn after(setup: &Setup, prepare: &str, becomes: &Command) -> Said {
    let mut shell = setup.plain("/bin/sh".as_ref());
    shell.args(["-c", &format!("{prepare} exec \"$@\""), "sh"]);
    shell.arg(becomes.get_program()).args(becomes.get_args());
    said(&mut shell)
}

/// The same with and without us; the container that asks gets what the one that does not gets.
#[track_caller]
fn the_same_as_bare(setup: &Setup, prepare: &str, options: &[&str], script: &str) -> String {
    let (asks, plain) = (setup.asking("1g.10gb", script), setup.bundle(script));
    let (one, other) = (unique(), unique());
    let asks = [&["run"], options, &["-b", asks.as_str(), &one]].concat();
    let plain = [&["run"], options, &["-b", plain.as_str(), &other]].concat();
    let ours = after(setup, prepare, &setup.command(&asks)).ok();
    let bare = after(setup, prepare, &setup.bare(&plain)).ok();
    assert_eq!(ours.stdout, bare.stdout);
    setup.nothing_is_left();
    ours.stdout
}

pub fn passes_preserved_descriptors(setup: &Setup) {
    let file = setup.path("handed");
    fs::write(&file, "through descriptor 3\n").unwrap();
    let prepare = format!("exec 3<{};", file.display());
    let said = the_same_as_bare(setup, &prepare, &["--preserve-fds", "1"], "cat <&3");
    assert_eq!(said, "through descriptor 3\n");
}

pub fn passes_sockets_of_service_manager(setup: &Setup) {
    let file = setup.path("socket");
    fs::write(&file, "through the socket\n").unwrap();
    let file = file.display();
    let prepare = format!("exec 3<{file}; export LISTEN_FDS=1 LISTEN_PID=$$;");
    let script = "echo fds=$LISTEN_FDS pid=$LISTEN_PID; cat <&3";
    let said = the_same_as_bare(setup, &prepare, &[], script);
    // crun 1.8 leaves the number of descriptors empty, with us or without.
    let is_told = said.starts_with("fds=1 pid=1\n");
    assert!(is_told || setup.low.is_crun(), "{said}");
    assert!(said.ends_with("through the socket\n"), "{said}");
}

/// Neither ours nor the driver library's.
pub fn no_stray_descriptors(setup: &Setup) {
    let script = "for fd in /proc/self/fd/*; do echo ${fd##*/}; done";
    the_same_as_bare(setup, "", &[], script);
}

pub fn runs_detached(setup: &Setup) {
    let (bundle, id) = (setup.asking("1g.10gb", "sleep 1000"), unique());
    let run = ["run", "--detach", "-b", bundle.as_str(), &id];
    setup.runmig(&run).ok();
    assert_eq!(setup.the_lease()["state"], "ready");
    setup.ends(&[&id]);
}
