//! The poststop hook: one that knows its lease, one out of hooks.d that does not, and every state
//! that it can be given. It exits 0 whatever happens.

use std::io::{Seek, SeekFrom};
use testkit::prelude::*;

/// Calls the hook with this on standard input.
pub fn hook(setup: &Setup, arguments: &[&str], state: &[u8]) -> Said {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(state).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut command = setup.plain(&setup.program("runmig-hook"));
    going(command.args(arguments).stdin(file)).end()
}

fn state(id: &str, bundle: &str) -> Vec<u8> {
    let state = json!({"ociVersion": "1.0.2", "id": id, "status": "stopped", "bundle": bundle});
    serde_json::to_vec(&state).unwrap()
}

/// A container that is gone, with an unreleased slice: its machine, its id and its bundle.
fn forgotten() -> (Setup, String, Bundle) {
    let setup = Setup::of(Low::Runc);
    let (bundle, id) = setup.made("1g.10gb", "true");
    let (program, away) = (setup.program("runmig-hook"), setup.path("away"));
    std::fs::rename(&program, &away).unwrap();
    let _ = said(&mut setup.bare(&["delete", "--force", &id]));
    std::fs::rename(&away, &program).unwrap();
    setup.machine.the_instance();
    (setup, id, bundle)
}

/// Runs the hook twice for a container that is gone, which gives its slice back in silence.
fn releases(forgotten: (Setup, String, Bundle), arguments: &[&str], annotations: Value) {
    let (setup, id, bundle) = forgotten;
    let mut state: Value = serde_json::from_slice(&state(&id, bundle.as_str())).unwrap();
    state["annotations"] = annotations;
    for _ in 0..2 {
        let said = hook(&setup, arguments, state.to_string().as_bytes()).ok();
        assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));
        setup.nothing_is_left();
    }
}

#[test]
fn releases_by_container_and_bundle() {
    releases(forgotten(), &[], json!({}));
}

/// With annotations as long as those of a config.json may be.
/// Failure: the hook's state has megabytes of annotations
#[test]
fn releases_by_lease() {
    for annotations in [json!({}), json!({"long": "x".repeat(16 << 20)})] {
        let forgotten = forgotten();
        let lease = forgotten.0.the_lease();
        let by_lease = ["--lease", lease["id"].as_str().unwrap()];
        releases(forgotten, &by_lease, annotations);
    }
}

/// The lease is as it was, after each.
#[test]
fn refuses_what_is_no_state() {
    let (setup, id, bundle) = forgotten();
    let lease = setup.the_lease()["id"].as_str().unwrap().to_owned();
    let read = "runmig-hook: cannot read the container's state from standard input";
    let other = unique();
    for (arguments, state, line) in testkit::rows! {
        &[][..], vec![] => format!("{read}: it is empty\n");
        &[], vec![0; (97 << 20) + 1] => format!("{read}: longer than 101711872 bytes\n");
        &[], b"not json".to_vec() => format!("{read}: expected ident at line 1 column 2\n");
        &[], b"{\"id\":\"c\"".to_vec() => format!("{read}: EOF while parsing an object at line 1 column 9\n");
        &[], b"{\"id\":\"c\"}".to_vec() => format!("{read}: missing field `bundle` at line 1 column 10\n");
        // Foreign, and there is nothing of ours to do.
        &[], state(&other, bundle.as_str()) => String::new();
        &[], state(&id, "/elsewhere") => String::new();
        &["--lease", "0123456789abcdef"], state(&id, "/") => String::new();
        &["--lease", &lease], state(&other, bundle.as_str()) =>
            format!("runmig-hook: the state is of container {other}, the lease of container {id}\n");
        &["--rubbish"], state(&id, bundle.as_str()) => "runmig-hook: argument --rubbish is unknown\n".to_owned();
    } {
        let said = hook(&setup, arguments, &state).ok();
        assert_eq!(said.stderr, line, "{arguments:?}");
        assert_eq!(said.stdout, "");
        assert_eq!(setup.the_lease()["id"], lease);
        setup.machine.the_instance();
    }
}

/// A hook that comes late does not take the slice of one that runs.
#[test]
fn spares_a_running_container() {
    let setup = Setup::of(Low::Runc);
    let (bundle, id) = setup.made("1g.10gb", "sleep 1000");
    let said = hook(&setup, &[], &state(&id, bundle.as_str())).ok();
    let words = "runmig-hook: the container still runs: its init, process ";
    begins_with(&said.stderr, words);
    setup.machine.the_instance();
    setup.ends(&[&id]);
}
