//! A create that is refused: what is said, where, and that nothing has changed.

use crate::prelude::*;

/// The call fails with this line, which may name `{bundle}`, `{config}`, `{state}`, `{machine}`,
/// `{dir}`, `{gpu}` and `{id}`, on standard error and in the log; and nothing has changed.
#[track_caller]
pub fn refused(setup: &Setup, bundle: &Bundle, line: &str) {
    let before = std::fs::read(bundle.file()).ok();
    let names = bundle.names();
    let (id, log) = (unique(), setup.path(&format!("log-{}", unique())));
    let log_options = ["--log", log.to_str().unwrap(), "--log-format=json"];
    let create = ["create", "--bundle", bundle.as_str(), &id];
    let mut call = setup.command(&[&log_options[..], &create].concat());
    let was = setup.machine.instances();
    let told = said(&mut call).refused();

    let mut wanted = format!("runmig: {line}");
    for (name, path) in [
        ("{bundle}", &bundle.path),
        ("{config}", &setup.config()),
        ("{state}", &setup.state()),
        ("{machine}", &setup.machine.dir()),
        ("{dir}", &setup.path("")),
    ] {
        let path = path.display().to_string();
        wanted = wanted.replace(name, path.trim_end_matches('/'));
    }
    wanted = wanted.replace("{id}", &id);
    wanted = wanted.replace("{gpu}", &setup.machine.gpu_uuid(0));
    assert_eq!(told, wanted);

    let logged = std::fs::read_to_string(&log).expect("the log");
    let parsed = |line| serde_json::from_str(line).expect(line);
    let logged: Vec<Value> = logged.lines().map(parsed).collect();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert_eq!(logged[0]["level"], "error");
    assert_eq!(logged[0]["msg"], told.as_str());
    assert!(logged[0]["time"].as_str().unwrap().ends_with('Z'));

    assert_eq!(std::fs::read(bundle.file()).ok(), before);
    assert_eq!(bundle.names(), names);
    assert_eq!(setup.machine.instances(), was);
}
