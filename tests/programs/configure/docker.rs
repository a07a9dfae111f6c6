//! daemon.json, which docker itself finds in order.

use crate::configure::place::{Place, RUNMIG};
use testkit::prelude::*;

const CONFIG: &str = "/etc/docker/daemon.json";

// docs/engines.md: migctl configure docker
// docs/engines.md: migctl configure docker --remove
#[test]
fn daemon_json_gains_only_the_runtime() {
    let program = built("docker", "dockerd").or_else(|| on_path("dockerd"));
    let Some(program) = program else {
        return skip_until_full("dockerd is not there; run scripts/engines docker");
    };
    let place = Place::new().of("docker", &program);
    for text in [
        None,
        Some(""),
        Some("\n"),
        Some("{}"),
        Some("{}\n"),
        Some("{\n}\n"),
        Some("{\"runtimes\": {} }"),
        Some("{\"runtimes\": null}"),
        Some("{\"runtimes\":null, \"default-runtime\": null, \"debug\": true}\n"),
        Some("\u{feff}{\"debug\": true}"),
        Some("\u{feff}{\n  \"runtimes\": null\n}\n"),
        Some("\u{feff}"),
        Some("{\n  \"debug\": true,\n  \"runtimes\": {\n  }\n}\n"),
        Some("{\"log-level\":\"warn\"}"),
        Some("{\n    \"log-opts\": { \"max-size\": \"10m\" },\n    \"data-root\": \"/x\"\n}\n"),
        Some("{\n\t\"runtimes\": {\n\t\t\"o\": {\"path\": \"/bin/o\"}\n\t},\n\t\"debug\": true\n}"),
    ] {
        text.into_iter().for_each(|text| place.write(CONFIG, text));
        place.there_and_back(|| {
            let file = place.path(CONFIG);
            let mut validate = Command::new(&program);
            validate.arg("--validate").arg("--config-file").arg(&file);
            // dockerd looks for its docker-proxy there.
            validate.env("PATH", program.parent().unwrap());
            said(&mut validate).ok();
            let after: Value = serde_json::from_str(&place.read(CONFIG)).unwrap();
            assert_eq!(after["runtimes"]["runmig"]["path"], RUNMIG);
            if text.is_none() {
                let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/docker-config/daemon.json");
                assert_eq!(place.read(CONFIG), fs::read_to_string(shipped).unwrap());
            }
        });
    }
    // dockerd validates these before they are written.
    place.configure(&["--set-as-default"]).ok();
    place.configure(&["--name", "runmig-x"]).ok();
}
