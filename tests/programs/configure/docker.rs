//! daemon.json, which docker itself finds in order.

use crate::configure::place::{Place, RUNMIG, originals};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use testkit::runtimes::{built, on_path};
use testkit::{said, skip};

const CONFIG: &str = "/etc/docker/daemon.json";

fn docker() -> Option<(Place, String)> {
    let program = built("docker", "dockerd").or_else(|| on_path("dockerd"));
    if program.is_none() {
        skip("dockerd is not there; run scripts/engines docker");
    }
    Some((Place::new(), program?.display().to_string()))
}

// docs/engines.md: migctl configure docker
// docs/engines.md: migctl configure docker --remove
#[test]
fn daemon_json_gains_only_the_runtime() {
    let Some((place, program)) = docker() else {
        return;
    };
    let arguments = ["docker", "--executable", &program];
    for text in [
        None,
        Some(""),
        Some("\n"),
        Some("{}"),
        Some("{}\n"),
        Some("{\n}\n"),
        Some("{\"runtimes\": {} }"),
        Some("{\n  \"debug\": true,\n  \"runtimes\": {\n  }\n}\n"),
        Some("{\"log-level\":\"warn\"}"),
        Some("{\n    \"log-opts\": { \"max-size\": \"10m\" },\n    \"data-root\": \"/x\"\n}\n"),
        Some(
            "{\n\t\"runtimes\": {\n\t\t\"other\": {\"path\": \"/usr/bin/other\"}\n\t},\n\t\"debug\": true\n}",
        ),
    ] {
        if let Some(text) = text {
            place.write(CONFIG, text);
        }
        place.there_and_back(&arguments, || {
            let file = place.path(CONFIG);
            let mut validate = Command::new(&program);
            validate.arg("--validate").arg("--config-file").arg(&file);
            // dockerd looks for its docker-proxy there.
            validate.env("PATH", Path::new(&program).parent().unwrap());
            said(&mut validate).ok();
            let after: serde_json::Value = serde_json::from_str(&place.read(CONFIG)).unwrap();
            assert_eq!(after["runtimes"]["runmig"]["path"], RUNMIG);
            if text.is_none() {
                let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/docker-config/daemon.json");
                assert_eq!(
                    place.read(CONFIG),
                    std::fs::read_to_string(shipped).unwrap()
                );
            }
        });
    }
}

#[test]
fn removal_restores_daemon_json() {
    let Some((place, program)) = docker() else {
        return;
    };
    let arguments = ["docker", "--executable", &program];
    let default = [&arguments[..], &["--set-as-default"]].concat();
    let other = [
        &arguments[..],
        &["--runtime-path", "/usr/local/bin/runmig-x"],
    ]
    .concat();
    // A remove leaves nothing if nothing was there, whatever the settings in between.
    for text in [None, Some(""), Some("{}\n"), Some("{\"debug\": true}")] {
        if let Some(text) = text {
            place.write(CONFIG, text);
        }
        let before = place.files();
        symlink("runmig", place.path("/usr/local/bin/runmig-x")).unwrap();
        for run in [&arguments[..], &default, &other, &default, &arguments] {
            place.configure(run).ok();
        }
        let two = [&arguments[..], &["--name", "runmig-x"]].concat();
        place.configure(&two).ok();
        for name in ["runmig", "runmig-x"] {
            let remove = ["--remove", "--name", name];
            place.configure(&[&arguments[..], &remove].concat()).ok();
        }
        assert_eq!(place.files(), before);
    }
    place.write(CONFIG, "{\"debug\": true}");
    place.configure(&default).ok();
    let wanted = "{\n  \"debug\": true,\n  \"runtimes\": {\n    \"runmig\": {\n      \"path\": \"/usr/local/bin/runmig\"\n    }\n  },\n  \
                  \"default-runtime\": \"runmig\"\n}\n";
    assert_eq!(place.read(CONFIG), wanted);
    // Somebody changes the file meanwhile, and only the entry goes.
    place.write(CONFIG, &wanted.replace("true", "false"));
    let again = place.configure(&default).ok().stdout;
    assert!(again.contains("nothing to change"), "{again}");
    place
        .configure(&[&arguments[..], &["--remove"]].concat())
        .ok();
    assert_eq!(place.read(CONFIG), "{\n  \"debug\": false\n}\n");
    place.write(CONFIG, "{\"debug\": true}");
    place.configure(&arguments).ok();
    assert_eq!(originals(&place.files()).len(), 1);
    place
        .configure(&[&arguments[..], &["--remove"]].concat())
        .ok();
    assert_eq!(place.read(CONFIG), "{\"debug\": true}");
    assert_eq!(originals(&place.files()), [""; 0]);
}

#[test]
fn refuses_to_replace_other_settings() {
    let Some((place, program)) = docker() else {
        return;
    };
    let arguments = ["docker", "--executable", &program];
    let default = [&arguments[..], &["--set-as-default"]].concat();
    place.write(CONFIG, "{\"default-runtime\": \"nvidia\"}");
    place.refused(&default, "its default-runtime is nvidia");
    place.write(CONFIG, "{\n  \"runtimes\": {}\n  \"debug\": true }");
    place.refused(
        &arguments,
        "change /etc/docker/daemon.json: expected `,` or `}` at line 3",
    );
    place.write(CONFIG, "[]");
    place.refused(&arguments, "is not a JSON object");
    place.write(
        CONFIG,
        "{\"runtimes\": {\"runmig\": {\"path\": \"/usr/bin/kata\"}}}",
    );
    place.refused(
        &arguments,
        "its runtime runmig is {\"path\":\"/usr/bin/kata\"}; hint: choose another name",
    );
    let more =
        "{\"runtimes\": {\"runmig\": {\"path\": \"/opt/runmig\", \"runtimeArgs\": [\"--debug\"]}}}";
    place.write(CONFIG, more);
    place.refused(
        &arguments,
        "its runtime runmig is {\"path\":\"/opt/runmig\"",
    );
    let crun = [&arguments[..], &["--name", "crun"]].concat();
    place.refused(
        &crun,
        "cannot register --name crun: engines know it as a low-level runtime",
    );
    let drop_in = [&arguments[..], &["--drop-in", "/etc/docker/x.json"]].concat();
    place.refused(&drop_in, "docker reads one file and no drop-ins");
}
