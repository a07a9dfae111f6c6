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
