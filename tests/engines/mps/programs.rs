//! Control programs that fail, hang and lie. Each stands before the real one.

use super::*;

/// Puts a script in the place of the control program. In it, `$REAL` is that program.
fn put(setup: &Setup, script: &str) -> PathBuf {
    let file = setup.path("control");
    let text = format!("#!/bin/sh\nREAL={}\n{script}", control(setup).display());
    testkit::runtimes::program(&file, &text);
    setup.configure(&format!("sharing.mps_control = \"{}\"", file.display()));
    file
}

/// A create is refused for this reason, and leaves nothing.
#[track_caller]
fn refused_for(setup: &Setup, words: &str) {
    has(&setup.refused(&asking(setup, "4Gi")), words);
    setup.nothing_is_left();
}

/// Puts a script in its place that answers a command by itself, and passes all else on.
pub fn answering(setup: &Setup, command: &str, answer: &str) {
    let script = format!(
        "[ $# = 0 ] || exec $REAL \"$@\"\nread line\ncase $line in\n{command}*) {answer} ;;\n\
         *) echo \"$line\" | $REAL ;;\nesac\n"
    );
    put(setup, &script);
}

/// Failure: the MPS control program is missing, old, or can be changed by others
#[test]
fn names_program_that_cannot_be_used() {
    let setup = on(Low::Runc);
    let file = put(&setup, "exec $REAL \"$@\"\n");
    chmod(&file, 0o777);
    refused_for(&setup, "mps: cannot use control program");
    refused_for(&setup, "users other than root can write to it");
    fs::remove_file(&file).unwrap();
    refused_for(&setup, "/control: no such file or directory");
    put(&setup, "exec sleep 1000\n");
    refused_for(&setup, "did not end in time");
    // That of driver 550 knows no server for several users.
    put(&setup, "echo '  -d  background'\n");
    refused_for(&setup, "has no server for several users");
}

/// Failure: an MPS daemon ends at once, hangs, refuses the limit, or tells another one
#[test]
fn daemon_that_fails_leaves_nothing() {
    let setup = on(Low::Runc);
    let start = |what: &str| format!("[ \"$1\" = -f ] || exec $REAL \"$@\"\n{what}\n");
    put(&setup, &start("echo cannot find the driver >&2; exit 3"));
    let words = "the MPS daemon has ended: it exited with status 3: cannot find the driver";
    refused_for(&setup, words);
    put(&setup, &start("exec sleep 1000"));
    refused_for(&setup, "did not listen within 5 s");
}

#[test]
fn limit_counts_only_as_read_back() {
    let setup = on(Low::Runc);
    for (command, answer, words) in testkit::rows! {
        "set_default", "echo not allowed" => "to the setting it said \"not allowed\"";
        "get_default", "echo 5G" => "the MPS daemon tells the limit as \"5G\" and not as 4G after 4096Mi was set";
        "get_default", "exit 1" => "does not take \"get_default_device_pinned_mem_limit 0\"";
        "get_default", "exec sleep 1000" => "did not end in time";
    } {
        answering(&setup, command, answer);
        refused_for(&setup, words);
    }
}

#[test]
fn next_level_takes_over() {
    let setup = on(Low::Runc);
    let none = "sharing.enforcement = [\"mps\", \"none\"]";
    setup.configure(none);
    has(&setup.tells(&["explain", "--share", "4Gi"]), "level mps");
    fs::remove_file(control(&setup)).unwrap();
    has(&setup.tells(&["explain", "--share", "4Gi"]), "level none");
}

#[test]
fn state_directory_too_deep_is_named() {
    let setup = on(Low::Runc);
    let config = fs::read_to_string(setup.config()).unwrap();
    let deep = setup.path(&"d".repeat(60));
    let state = setup.state().display().to_string();
    let changed = config.replace(&state, &deep.display().to_string());
    assert_ne!(config, changed);
    fs::write(setup.config(), changed).unwrap();
    refused_for(&setup, "bytes, more than 107");
}

#[test]
fn program_inherits_no_ignored_signal() {
    let setup = on(Low::Runc);
    let seen = setup.path("seen");
    let script = format!(
        "[ \"$1\" = -f ] && grep SigIgn /proc/self/status >{}\nexec $REAL \"$@\"\n",
        seen.display()
    );
    put(&setup, &script);
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.create(&bundle, &id);
    let signals = fs::read_to_string(seen).unwrap();
    let ignored = signals.trim().strip_prefix("SigIgn:\t").unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    // The C library keeps signals 32 and 33 to itself.
    assert_eq!(ignored & !(3 << 31), 0, "{signals}");
    setup.ends(&[&id]);
}
