//! Both major versions, which join imported files in ways that have nothing in common.

use crate::configure::place::{Place, RUNMIG};
use testkit::diff::diff;
use testkit::prelude::*;

const CONFIG: &str = "/etc/containerd/config.toml";
const DEBIANS: &str = "version = 2

[plugins]
  [plugins.\"io.containerd.grpc.v1.cri\"]
    [plugins.\"io.containerd.grpc.v1.cri\".cni]
      bin_dir = \"/usr/lib/cni\"
      conf_dir = \"/etc/cni/net.d\"
  [plugins.\"io.containerd.internal.v1.opt\"]
    path = \"/var/lib/containerd/opt\"
";
const SYSTEMD: &str = "# Kubernetes wants it so
version = 2 # not 3
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
  runtime_type = \"io.containerd.runc.v2\"
  base_runtime_spec = \"/etc/containerd/base.json\"
  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]
    BinaryName = \"/usr/sbin/runc\"
    SystemdCgroup = true
";

struct Containerd {
    place: Place,
    program: PathBuf,
    cri: &'static str,
}

impl Containerd {
    fn one() -> Option<Containerd> {
        let program = on_path("containerd");
        if program.is_none() {
            skip("containerd is not there; run scripts/setup");
        }
        Some(Containerd::of(program?, "io.containerd.grpc.v1.cri"))
    }

    fn two() -> Option<Containerd> {
        let program = built("containerd", "containerd");
        if program.is_none() {
            skip_until_full("containerd 2 is not there; run scripts/engines containerd");
        }
        Some(Containerd::of(program?, "io.containerd.cri.v1.runtime"))
    }

    fn of(program: PathBuf, cri: &'static str) -> Containerd {
        Containerd {
            place: Place::new().of("containerd", &program),
            program,
            cri,
        }
    }

    fn all() -> impl Iterator<Item = Containerd> {
        [Containerd::one(), Containerd::two()].into_iter().flatten()
    }

    /// `containerd config dump`, without what means nothing.
    #[track_caller]
    fn dump(&self) -> Value {
        let file = self.place.path(CONFIG);
        let mut dump = Command::new(&self.program);
        dump.arg("--config").arg(&file).args(["config", "dump"]);
        let text = match file.exists() {
            true => said(&mut dump).ok().stdout,
            false => config_default(&self.program),
        };
        let table: toml::Table = toml::from_str(&text).unwrap();
        let mut value = serde_json::to_value(table).unwrap();
        value.as_object_mut().unwrap().remove("imports");
        prune(&mut value);
        value
    }

    fn runtime<'a>(&self, dump: &'a Value, name: &str) -> &'a Value {
        &dump["plugins"][self.cri]["containerd"]["runtimes"][name]
    }

    /// Checks that the engine's output differs only by our handler. The import, ours or that of containerd's own
    /// default, has a path in the folder that stands for /. The engine does not know that folder, and must find the
    /// import as well.
    #[track_caller]
    fn adds_only_the_handler(&self, text: Option<&str>) -> Value {
        text.into_iter()
            .for_each(|text| self.place.write(CONFIG, text));
        let drop_ins = self.place.path("/etc/containerd/conf.d/");
        let before = self.dump();
        let mut after = Value::Null;
        self.place.there_and_back(|| {
            let text = self.place.read(CONFIG);
            let seen = text.replace("/etc/containerd/conf.d/", drop_ins.to_str().unwrap());
            self.place.write(CONFIG, &seen);
            after = self.dump();
            self.place.write(CONFIG, &text);
        });
        let added = format!("+ /plugins/{}/containerd/runtimes/runmig", self.cri);
        assert_eq!(diff(&before, &after), [added]);
        let handler = self.runtime(&after, "runmig");
        assert_eq!(handler["options"]["BinaryName"], RUNMIG);
        for key in ["pod_annotations", "container_annotations"] {
            assert_eq!(handler[key], json!(["*runmig*/*"]));
        }
        handler.clone()
    }

    fn is_first(&self) -> bool {
        self.cri == "io.containerd.grpc.v1.cri"
    }
}

/// Without what is empty.
fn prune(value: &mut Value) {
    if let Value::Object(map) = value {
        map.values_mut().for_each(prune);
        map.retain(|_, v| {
            !matches!(v, Value::Null | Value::Bool(false))
                && *v != 0
                && *v != ""
                && v.as_array().is_none_or(|a| !a.is_empty())
                && v.as_object().is_none_or(|o| !o.is_empty())
        });
    }
}

fn config_default(program: &Path) -> String {
    said(Command::new(program).args(["config", "default"]))
        .ok()
        .stdout
}

/// With what is there by default or in Debian, with more, and with nothing.
#[test]
fn containerd_gains_only_the_handler() {
    for containerd in Containerd::all() {
        let more: &[&str] = match containerd.is_first() {
            true => &[
                "version = 2",
                "oom_score = -999\n[plugins.cri]\nsandbox_image = \"pause:1\"\n",
                "[plugins.cri.containerd.runtimes.other]\nruntime_type = \"io.containerd.runc.v2\"\n",
            ],
            false => &[
                "version = 3",
                "# c\nimports = [\n  # others\n  '/etc/containerd/none/*.toml', # none\n]\nversion = 3\n\
                 [plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'pause:1'\n",
            ],
        };
        let default = config_default(&containerd.program);
        for text in [DEBIANS, DEBIANS.trim_end(), &default].iter().chain(more) {
            containerd.adds_only_the_handler(Some(text));
        }
        fs::remove_file(containerd.place.path(CONFIG)).unwrap();
        containerd.adds_only_the_handler(None);
    }
}

#[test]
fn handler_inherits_the_defaults_settings() {
    for containerd in Containerd::all() {
        let handler = containerd.adds_only_the_handler(Some(SYSTEMD));
        assert_eq!(handler["options"]["SystemdCgroup"], true);
        assert_eq!(handler["base_runtime_spec"], "/etc/containerd/base.json");
    }
}

#[test]
fn removal_restores_the_old_default() {
    let explicit = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd] # theirs\n\
                    default_runtime_name = 'runc' # c\nsnapshotter = 'native'\n";
    let header =
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = 'native'";
    for containerd in Containerd::all() {
        let default = config_default(&containerd.program);
        let place = &containerd.place;
        let configure = |more: &[&str]| place.configure(more).ok().stdout;
        for text in [DEBIANS, SYSTEMD, &default, explicit, header] {
            place.write(CONFIG, text);
            let before = place.files();
            configure(&["--set-as-default"]);
            has(&place.texts(), "default_runtime_name = \"runmig\"");
            if containerd.is_first() {
                let dump = &containerd.dump()["plugins"][containerd.cri]["containerd"];
                assert_eq!(dump["default_runtime_name"], "runmig");
            }
            let after = place.files();
            has(&configure(&["--set-as-default"]), "nothing to change");
            assert_eq!(place.files(), after);
            // A run without it takes that back, says so, and no more.
            let keeps = "no longer; hint: keep it with --set-as-default";
            has(&configure(&[]), keeps);
            assert!(!configure(&[]).contains(keeps));
            let plain = place.files();
            configure(&["--remove"]);
            assert_eq!(place.files(), before);
            configure(&[]);
            assert_eq!(place.files(), plain);
            fs::remove_dir_all(place.path("/etc/containerd")).unwrap();
        }
    }
}

#[test]
fn imported_folder_needs_no_import() {
    let Some(containerd) = Containerd::two() else {
        return;
    };
    let text = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let place = &containerd.place;
    place.write(CONFIG, text);
    place.there_and_back(|| {
        assert_eq!(place.read(CONFIG), text);
        // The drop-in has the main file's version: a later one would undo all that the main
        // file says.
        let drop_in = place.read("/etc/containerd/conf.d/runmig.toml");
        has(&drop_in, "\nversion = 2\n");
    });
}

#[test]
fn changes_two_handlers_independently() {
    for containerd in Containerd::all() {
        let place = &containerd.place;
        place.write(CONFIG, DEBIANS);
        let configure = |more: &[&str]| place.configure(more).ok().stdout;
        configure(&[]);
        let said = configure(&["--name", "runmig-a100"]);
        has(&said, "/usr/local/bin/runmig-a100");
        let link = place.path("/usr/local/bin/runmig-a100");
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("runmig"));
        let both = place.files();
        for name in ["runmig", "runmig-a100"] {
            has(&configure(&["--name", name]), "nothing to change");
        }
        assert_eq!(place.files(), both);
        configure(&["--remove"]);
        let left = place.texts();
        has(&left, "runtimes.runmig-a100.options]");
        has(&left, "BinaryName = \"/usr/local/bin/runmig-a100\"");
        lacks(&left, "runtimes.runmig]");
        if containerd.is_first() {
            let dump = containerd.dump();
            let runc = containerd.runtime(&dump, "runc");
            assert_eq!(runc["runtime_type"], "io.containerd.runc.v2");
        }
        configure(&["--remove", "--name", "runmig-a100"]);
        assert_eq!(place.read(CONFIG), DEBIANS);
        assert!(!link.exists());
    }
}

/// An administrator changes the file after migctl has: the change stays, with its comment, and the entry alone goes.
#[test]
fn removal_keeps_later_changes() {
    for containerd in Containerd::all() {
        let place = &containerd.place;
        place.write(CONFIG, SYSTEMD);
        place.configure(&[]).ok();
        let change = "oom_score = -999 # theirs\n";
        let changed = |text: &str| text.replacen("version", &format!("{change}version"), 1);
        place.write(CONFIG, &changed(&place.read(CONFIG)));
        place.configure(&[]).ok().says("nothing to change");
        place.configure(&["--remove"]).ok();
        let left = place.read(CONFIG);
        assert!(left.contains(change) && !left.contains("runmig"), "{left}");
        assert_eq!(place.files().len(), 1, "{:?}", place.files());
        let [left, wanted] =
            [left, changed(SYSTEMD)].map(|text| toml::from_str::<toml::Table>(&text));
        assert_eq!(left, wanted);
    }
}

/// After such a change the original does not come back, and the comments of the file stay all the same.
#[test]
fn removal_keeps_comments() {
    let one = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n# why\ndefault_runtime_name = 'runc' # c\n\
               [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n\n\
               # the end\n#[debug]\n";
    for (release, text) in [
        ("1.7.24", one),
        ("v2.1.5", "version = 3\nimports = [] # note\n\n# the end\n"),
        ("v2.1.5", "version = 3\n# above\nimports = []\n"),
    ] {
        let place = stub(release);
        place.write(CONFIG, text);
        place.configure(&["--set-as-default"]).ok();
        let change = |text: &str| text.replacen('\n', "\noom_score = -999\n", 1);
        place.write(CONFIG, &change(&place.read(CONFIG)));
        let again = place.configure(&["--set-as-default"]).ok();
        again.says("nothing to change");
        place.configure(&["--remove"]).ok();
        let [left, wanted] = [place.read(CONFIG), change(text)].map(|text| text.replace('"', "'"));
        assert_eq!(left, wanted);
    }
}

/// Its one file has everybody's settings, so no later file brings the old default back. docker is the same.
#[test]
fn containerd_1_keeps_the_default_of_others() {
    let place = stub("1.7.24");
    let theirs = SYSTEMD.replace("runtimes.runc", "runtimes.nvidia");
    let default =
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"nvidia\"\n";
    place.write(CONFIG, &format!("{theirs}{default}"));
    let words =
        "its default_runtime_name is nvidia; hint: remove that line, or omit --set-as-default";
    place.refused(&["--set-as-default"], words);
    place.there_and_back(|| {
        let text = place.read(CONFIG);
        assert_eq!(text.matches("SystemdCgroup = true").count(), 2);
    });
}

#[test]
fn upgrade_of_containerd_moves_the_handler() {
    let (Some(one), Some(two)) = (Containerd::one(), Containerd::two()) else {
        return;
    };
    let place = one.place;
    place.write(CONFIG, DEBIANS);
    place.configure(&[]).ok();
    let place = place.of("containerd", &two.program);
    place.configure(&[]).ok();
    let text = place.read(CONFIG);
    let imports = "\nimports = [\"/etc/containerd/conf.d/runmig.toml\"]\n";
    has(&text, imports);
    lacks(&text, "runtimes");
    place.configure(&["--remove"]).ok();
    assert_eq!(place.read(CONFIG), DEBIANS);
}

#[test]
fn refuses_unusable_configurations() {
    let Some(Containerd { place, .. }) = Containerd::one() else {
        return;
    };
    place.write(
        "/etc/containerd/conf.d/kata.toml",
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata]\nruntime_type = \"x\"\n",
    );
    let handler = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runmig]\nruntime_type = \"x\"\n";
    for (text, words) in testkit::rows! {
        // The engine itself reads the real path, we the one below the root.
        "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n" =>
            "it imports /etc/containerd/conf.d/kata.toml, and containerd 1 takes the CRI plugin from there alone";
        "disabled_plugins = [\"cri\"]\n" =>
            "is in disabled_plugins of /etc/containerd/config.toml; hint: use migctl configure docker for docker";
        "version = 7\n" => "migctl does not know version = 7 of containerd's files, only those up to 4";
        &format!("version = 2\n{handler}") =>
            "cannot add the handler runmig: /etc/containerd/config.toml or one of its imports has one with no BinaryName \
             that migctl configure did not make";
        // A file that runmig cannot add to.
        "version = 2\nplugins = {}\n" => "add the handler by hand";
        "version = 2\n\n[plugins\n" => "read /etc/containerd/config.toml: line 3: ";
    } {
        place.write(CONFIG, text);
        place.refused(&[], words);
    }
    place.refused(&["--remove"], "read /etc/containerd/config.toml: line 3: ");

    let Some(Containerd { place, .. }) = Containerd::two() else {
        return;
    };
    place.write(CONFIG, "oom_score = -999\n");
    let ignored = "reads it as version 1 and ignores its plugins; hint: update the file";
    place.refused(&[], ignored);
    place.write(CONFIG, "version = 3\n");
    let drop_in = "/etc/containerd/conf.d/runmig.toml";
    place.write(drop_in, "version = 3\noom_score = 1\n");
    for (more, words) in testkit::rows! {
        &[][..] => "cannot write /etc/containerd/conf.d/runmig.toml: it has other content";
        &["--name", "Runmig"] => "Kubernetes does not allow it as a handler";
        &["--runtime-path", "/nowhere/runmig"] =>
            "cannot let an engine call /nowhere/runmig as root: no such file or directory; hint: install runmig";
    } {
        place.refused(more, words);
    }
    let place = place.of("containerd", Path::new("/nonexistent"));
    place.refused(&[], "run /nonexistent --version");
}

/// containerd 1.7 gives its own handler a `sandbox_mode`, which is gone as soon as the file lists handlers. This is a
/// stand-in: no machine of the tests but the node has 1.7.
#[test]
fn second_call_keeps_sandbox_mode() {
    let own = "[plugins.\"io.containerd.grpc.v1.cri\".containerd]
default_runtime_name = \"runc\"
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"
sandbox_mode = \"podsandbox\"
snapshotter = \"\"";
    let listed = "[plugins.\"io.containerd.grpc.v1.cri\".containerd]
default_runtime_name = \"runc\"";
    let dumps = format!(
        "cat \"$2\"
         if grep -q runtimes.runc \"$2\"; then cat <<'END'\n{listed}\nEND\nelse cat <<'END'\n{own}\nEND\nfi"
    );
    let place = Place::stub_that("containerd", &version("1.7.24"), &dumps);
    place.write(CONFIG, DEBIANS);
    place.configure(&[]).ok();
    let first = place.read(CONFIG);
    let modes = first.matches("sandbox_mode = \"podsandbox\"").count();
    assert_eq!(modes, 2, "{first}");
    place.configure(&[]).ok().says("nothing to change");
    place.configure(&["--remove"]).ok();
    assert_eq!(place.read(CONFIG), DEBIANS);
}

/// Failure: an engine's program that hangs, also where only its child does
#[test]
fn waits_for_no_program_without_end() {
    for (release, hangs) in [
        ("1.7.24", "exec sleep 600"),
        ("1.7.24", "sleep 600 &"),
        ("$(sleep 600)", "exit"),
        ("1.7.24", "exec sleep 600 >&- 2>&-"),
    ] {
        let place = Place::stub_that("containerd", &version(release), hangs);
        place.refused(&["--timeout", "150ms"], "containerd did not end in time");
    }
}

fn version(release: &str) -> String {
    format!("containerd github.com/containerd/containerd {release} x")
}

fn stub(release: &str) -> Place {
    Place::stub("containerd", &version(release))
}

#[test]
fn knows_file_version_4() {
    for release in ["v2.3.2", "v2.4.2"] {
        for text in [
            None,
            Some("version = 4\n"),
            Some("version = 4\nimports = ['/etc/containerd/conf.d/*.toml']\n[grpc]\ngid = 1\n"),
            Some("version = 4\nroot = '/data'\nimports = []\n"),
        ] {
            let place = stub(release);
            text.into_iter().for_each(|text| place.write(CONFIG, text));
            place.there_and_back(|| {
                assert!(place.read(CONFIG).contains("version = 4\n"));
                let drop_in = place.read("/etc/containerd/conf.d/runmig.toml");
                let table: toml::Table = toml::from_str(&drop_in).unwrap();
                assert_eq!(table["version"].as_integer(), Some(4));
                let cri = &table["plugins"]["io.containerd.cri.v1.runtime"]["containerd"];
                let options = &cri["runtimes"]["runmig"]["options"];
                assert_eq!(options["BinaryName"].as_str(), Some(RUNMIG));
            });
        }
    }
}

#[test]
fn asks_which_containerd_reads_a_file() {
    let asks = "hint: name the containerd that reads this file with --executable";
    let whole = "is not a whole number; hint: write the number alone, as in version = 2";
    let newer = "hint: use a newer migctl";
    for (release, text, why, hint) in testkit::rows! {
        "1.7.24", "version = 3\n", "does not read version = " => asks;
        "1.6.20~ds1", "version = 4\n", "does not read version = " => asks;
        "v2.0.4", "version = 4\n", "does not read version = " => asks;
        "v2.2.1", "version = 4\nimports = []\n", "does not read version = " => asks;
        "v2.3.2", "version = 0\n", "does not read version = " => asks;
        "1.7.24", "version = \"2\"\n", "version = \"2\" is " => whole;
        "v2.3.2", "version = 2.0\n", "version = 2.0 is " => whole;
        "v2.4.2", "version = 5\n", "migctl does not know version = " => newer;
        "v2.1.5", "version = 12\n", "migctl does not know version = " => newer;
    } {
        let place = stub(release);
        place.write(CONFIG, text);
        has(&place.refused(&[], why), hint);
    }
}

#[test]
fn reads_imports_in_circles_once() {
    for imports in [
        "/etc/containerd/*.toml",
        "config.toml",
        "../containerd/./config.toml",
        "more.toml",
    ] {
        for release in ["1.7.24", "v2.1.5"] {
            let place = stub(release);
            place.write(CONFIG, &format!("version = 2\nimports = [\"{imports}\"]\n"));
            let more = "version = 2\nimports = [\"*.toml\"]\n";
            place.write("/etc/containerd/more.toml", more);
            place.there_and_back(|| {});
        }
    }
}
