//! daemon.json, which docker itself finds in order.

use crate::configure::place::{Place, RUNMIG, originals};
use testkit::prelude::*;

const CONFIG: &str = "/etc/docker/daemon.json";

fn docker() -> Option<(Place, PathBuf)> {
    let program = built("docker", "dockerd").or_else(|| on_path("dockerd"));
    if program.is_none() {
        skip_until_full("dockerd is not there; run scripts/engines docker");
    }
    let program = program?;
    Some((Place::new().of("docker", &program), program))
}

// docs/engines.md: migctl configure docker
// docs/engines.md: migctl configure docker --remove
#[test]
fn daemon_json_gains_only_the_runtime() {
    let Some((place, program)) = docker() else {
        return;
    };
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
}

#[test]
fn removal_restores_daemon_json() {
    let Some((place, _)) = docker() else { return };
    let default = ["--set-as-default"];
    let other = ["--runtime-path", "/usr/local/bin/runmig-x"];
    // A remove leaves nothing if nothing was there, whatever the settings in between.
    for text in [None, Some(""), Some("{}\n"), Some("{\"debug\": true}")] {
        text.into_iter().for_each(|text| place.write(CONFIG, text));
        let before = place.files();
        symlink("runmig", place.path("/usr/local/bin/runmig-x")).unwrap();
        for run in [&[][..], &default, &other, &default, &[]] {
            place.configure(run).ok();
        }
        place.configure(&["--name", "runmig-x"]).ok();
        for name in ["runmig", "runmig-x"] {
            place.configure(&["--remove", "--name", name]).ok();
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
    place.configure(&default).ok().says("nothing to change");
    place.configure(&["--remove"]).ok();
    assert_eq!(place.read(CONFIG), "{\n  \"debug\": false\n}\n");
    place.write(CONFIG, "{\"debug\": true}");
    place.configure(&[]).ok();
    assert_eq!(originals(&place.files()).len(), 1);
    place.configure(&["--remove"]).ok();
    assert_eq!(place.read(CONFIG), "{\"debug\": true}");
    assert_eq!(originals(&place.files()), [""; 0]);
}

#[test]
fn refuses_to_replace_other_settings() {
    let Some((place, _)) = docker() else { return };
    place.write(CONFIG, "{\"default-runtime\": \"nvidia\"}");
    place.refused(&["--set-as-default"], "its default-runtime is nvidia");
    for (text, words) in testkit::rows! {
        "{\n  \"runtimes\": {}\n  \"debug\": true }" =>
            "change /etc/docker/daemon.json: expected `,` or `}` at line 3";
        "[]" => "is not a JSON object";
        "{\"runtimes\": {\"a\": {\"path\": \"/a\"}}, \"runtimes\": {\"b\": {\"path\": \"/b\"}}}" =>
            "change /etc/docker/daemon.json: \"runtimes\" occurs twice; hint: correct the file";
        "{\"runtimes\": {\"runmig\": {\"path\": \"/usr/bin/kata\"}}}" =>
            "its runtime runmig is {\"path\":\"/usr/bin/kata\"}; hint: choose another name";
        "{\"runtimes\": {\"runmig\": {\"path\": \"/opt/runmig\", \"runtimeArgs\": [\"--debug\"]}}}" =>
            "its runtime runmig is {\"path\":\"/opt/runmig\"";
    } {
        place.write(CONFIG, text);
        place.refused(&[], words);
    }
    for (option, value, words) in testkit::rows! {
        "--name", "crun" => "cannot register --name crun: engines know it as a low-level runtime";
        "--drop-in", "/etc/docker/x.json" => "docker reads one file and no drop-ins";
    } {
        place.refused(&[option, value], words);
    }
}

/// A stand-in whose `--validate` refuses a file with this word.
fn stub(refuses: &str) -> Place {
    let validates = format!(
        "[ \"$1\" = --validate ] || exit 0
         ! grep -q '{refuses}' \"$3\" || {{ echo unable to configure: {refuses} >&2; exit 1; }}"
    );
    Place::stub_that("docker", "Docker version 29.9.3, build x", &validates)
}

/// dockerd would not start with a setting in both.
#[test]
fn refuses_what_flags_say_too() {
    let place = stub("nothing");
    let refused = |words: &str| drop(place.refused(&[], words));
    let vendor = "/usr/lib/systemd/system/docker.service";
    let drop_in = "/etc/systemd/system/docker.service.d/nvidia.conf";
    let start = "[Service]\nExecStart=/usr/bin/dockerd -H fd:// $DOCKER_OPTS";
    let add = "--add-runtime=nvidia=/usr/bin/nvidia-container-runtime";
    let (add_words, theirs) = (add.replacen('=', " ", 1), "--default-runtime=nvidia");
    let calls = |flag: &str| {
        format!("[Service]\nExecStart=\nExecStart=/usr/bin/dockerd \\\n  {flag} \\\n  -H fd://\n")
    };
    for add in [add, &add_words, &format!("\"{add}\"")] {
        place.write(vendor, &format!("{start} {add}\n"));
        refused(&format!("{vendor} starts dockerd with --add-runtime, and"));
        // The drop-in replaces the command.
        place.write(drop_in, &calls("--debug"));
        place.there_and_back(|| {});
        place.write(vendor, &format!("{start}\n"));
        place.write(drop_in, &calls(add));
        refused(&format!("{drop_in} starts dockerd with --add-runtime, and"));
        // A drop-in of the same name in a later folder hides it.
        place.write(&format!("{vendor}.d/nvidia.conf"), &calls(add));
        place.write(drop_in, "[Service]\n");
        place.there_and_back(|| {});
    }
    let options = "/etc/default/docker";
    place.write(drop_in, &format!("[Service]\nEnvironmentFile=-{options}\n"));
    let comments = format!("#DOCKER_OPTS=\"{add}\"\n#OTHER=\"{add}\"\n");
    place.write(options, &comments);
    place.there_and_back(|| {});
    place.write(options, &format!("DOCKER_OPTS=\"--debug {add}\"\n"));
    refused(&format!("{options} starts dockerd with --add-runtime"));
    place.write(options, "");
    let variable = format!("[Service]\nEnvironment=\"DOCKER_OPTS={theirs}\"\n");
    place.write(drop_in, &variable);
    let words = "cannot set \"default-runtime\" in /etc/docker/daemon.json";
    place.refused(&["--set-as-default"], words);
    place.there_and_back(|| {});
    place.write(drop_in, &calls("--config-file /srv/daemon.json"));
    refused("hint: add --engine-config /srv/daemon.json");
    let elsewhere = ["--engine-config", "/srv/daemon.json"];
    place.configure(&elsewhere).ok();
    has(&place.read("/srv/daemon.json"), RUNMIG);
}

/// Blanks around the equals sign, comments between continued lines, and drop-ins for all services.
#[test]
fn reads_units_as_systemd_does() {
    let place = stub("nothing");
    for (file, text) in testkit::rows! {
        "/usr/lib/systemd/system/docker.service" =>
            "[Service]\nExecStart = /usr/bin/dockerd --add-runtime a=/b\n";
        "/etc/systemd/system/docker.service.d/x.conf" =>
            "[Service]\nExecStart =\nExecStart=/usr/bin/dockerd \\\n  # that one\n; and\n  --add-runtime a=/b\n";
        "/etc/systemd/system/service.d/y.conf" =>
            "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --add-runtime a=/b\n";
    } {
        place.write(file, text);
        let words = format!("{file} starts dockerd with --add-runtime, and");
        place.refused(&[], &words);
        place.write(file, &text.replace("--add-runtime", "--debug"));
        place.there_and_back(|| {});
    }
    // docker's own drop-in hides one of the same name for all services.
    let add = "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --add-runtime a=/b\n";
    place.write("/etc/systemd/system/service.d/x.conf", add);
    place.there_and_back(|| {});
}

#[test]
fn empty_default_is_none() {
    let place = stub("nothing");
    place.write(CONFIG, "{\"default-runtime\": \"\"}");
    place.configure(&["--set-as-default"]).ok();
    has(&place.read(CONFIG), "\"default-runtime\": \"runmig\"");
    let words = "get runmig no longer; hint: keep it with --set-as-default";
    place.configure(&["--dry-run"]).ok().says(words);
    let removed = place.configure(&["--remove"]).ok();
    assert!(!removed.stdout.contains(words), "{removed:?}");
    assert_eq!(place.read(CONFIG), "{\"default-runtime\": \"\"}");
}

#[test]
fn dockerd_validates_the_new_file() {
    for word in ["runmig", "default-runtime"] {
        let place = stub(word);
        place.write(CONFIG, "{\"debug\": true}");
        let words = format!("unable to configure: {word}");
        place.refused(&["--set-as-default"], &words);
    }
    // A file that it refused before is not this verb's to repair.
    let place = stub("debug");
    place.write(CONFIG, "{\"debug\": true}");
    place.there_and_back(|| {});
}
