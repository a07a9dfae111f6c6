//! `scripts/install`: what it puts where, and that it takes away no more than that.

use testkit::prelude::*;

struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Place {
        let root = TempDir::new().unwrap();
        Place { root }
    }

    fn install(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = crate::installs("install");
        command.arg("--destdir").arg(self.root.path());
        command.args(arguments);
        command
    }

    /// Writes a file, and the folders above it.
    fn write(&self, file: &str, text: &str) {
        fs::create_dir_all(self.at(file).parent().unwrap()).unwrap();
        fs::write(self.at(file), text).unwrap();
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) {
        assert_eq!(self.install(arguments).ok().stdout, "");
    }

    /// Every file, with its mode.
    fn files(&self) -> Vec<(String, u32)> {
        let mut files = Vec::new();
        for path in all_below(self.root.path()) {
            let meta = fs::symlink_metadata(&path).unwrap();
            assert_eq!(meta.uid(), nix::unistd::geteuid().as_raw());
            if meta.is_dir() {
                assert_eq!(meta.mode() & 0o777, 0o755, "{}", path.display());
                continue;
            }
            let name = path.strip_prefix(self.root.path()).unwrap();
            files.push((name.to_str().unwrap().to_owned(), meta.mode() & 0o7777));
        }
        files.sort();
        files
    }

    fn names(&self) -> Vec<String> {
        self.files().into_iter().map(|(name, _)| name).collect()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }
}

/// Returns the names of the files with an extension in a folder of the repository.
fn in_repository(folder: &str, extension: &str) -> Vec<String> {
    let mut named = names_in(&repository().join(folder));
    named.retain(|name| name.ends_with(&format!(".{extension}")));
    assert!(!named.is_empty());
    named
}

fn installed(prefix: &str) -> Vec<(String, u32)> {
    let mut files = vec![("etc/runmig/config.toml".to_owned(), 0o644)];
    let programs = ["migctl", "runmig", "runmig-hook", "runmig-slice"];
    for program in programs.into_iter().chain([testkit::REQUEST_HOOK]) {
        files.push((format!("{prefix}/bin/{program}"), 0o755));
    }
    let mut add = |folder: &str, names: &[String]| {
        let paths = names.iter().map(|name| format!("{prefix}/{folder}/{name}"));
        files.extend(paths.map(|path| (path, 0o644)));
    };
    for (folder, names) in testkit::rows! {
        "share/runmig" => "containerd/runmig-v2.toml containerd/runmig.toml crio/20-runmig.conf \
            docker/daemon.json hooks.d/runmig-poststop.json kubernetes/pod.yaml \
            kubernetes/runtimeclass-1g.yaml kubernetes/runtimeclass.yaml \
            podman/50-runmig.conf grafana/runmig.json prometheus/runmig.rules.yml";
        "share" => "bash-completion/completions/migctl fish/vendor_completions.d/migctl.fish zsh/site-functions/_migctl";
        "share/doc/runmig" => "README.md CHANGELOG.md";
        "lib/systemd/system" => "runmig-dcgm.path runmig-dcgm.service runmig-layout.service runmig-gc.service \
            runmig-gc.timer runmig-metrics.socket runmig-metrics@.service \
            runmig-textfile.service runmig-textfile.timer";
    } {
        add(
            folder,
            &names.split(' ').map(str::to_owned).collect::<Vec<_>>(),
        );
    }
    for folder in ["docs", "docs/design", "docs/recipes"] {
        let documents = in_repository(folder, "md");
        add(&format!("share/doc/runmig/{folder}"), &documents);
    }
    add("share/man/man8", &in_repository("docs/man", "8"));
    let pages = TempDir::new().unwrap();
    let mut migctl = Command::new(env!("CARGO_BIN_EXE_migctl"));
    said(migctl.arg("man").arg(pages.path())).ok();
    let pages = names_in(pages.path());
    assert!(pages.iter().any(|page| page == "migctl-list.1"));
    add("share/man/man1", &pages);
    files.sort();
    files
}

#[test]
fn installs_and_uninstalls() {
    let place = Place::new();
    let installed = installed("usr/local");
    // systemd-run and image builders set no HOME.
    said(place.command(&[]).env_remove("HOME")).ok();
    assert_eq!(place.files(), installed);
    place.ok(&[]);
    assert_eq!(place.files(), installed);
    for _ in 0..2 {
        place.ok(&["--uninstall"]);
        assert_eq!(place.files(), []);
    }
    assert!(!place.at("etc/runmig").exists());
    assert!(!place.at("usr/local/share/runmig").exists());
}

#[test]
fn another_prefix() {
    let place = Place::new();
    place.ok(&["--prefix=/opt/runmig"]);
    assert_eq!(place.files(), installed("opt/runmig"));
    for example in "hooks.d/runmig-poststop.json containerd/runmig.toml containerd/runmig-v2.toml \
                crio/20-runmig.conf docker/daemon.json podman/50-runmig.conf"
        .split(' ')
    {
        let file = place.at("opt/runmig/share/runmig").join(example);
        let text = fs::read_to_string(file).unwrap();
        has(&text, "\"/opt/runmig/bin/runmig");
        assert!(!text.contains("/usr/local"), "{text}");
    }
    let unit = place.at("opt/runmig/lib/systemd/system/runmig-gc.service");
    let unit = fs::read_to_string(unit).unwrap();
    has(&unit, "\nExecStart=/opt/runmig/bin/migctl gc\n");
    place.ok(&["--prefix=/opt/runmig", "--uninstall"]);
    assert_eq!(place.files(), []);
}

#[test]
fn keeps_files_of_the_user() {
    let place = Place::new();
    let config = place.at("etc/runmig/config.toml");
    place.write("etc/runmig/config.toml", "wait = \"1m\"\n");
    place.ok(&[]);
    assert_eq!(fs::read_to_string(&config).unwrap(), "wait = \"1m\"\n");
    fs::write(place.at("usr/local/bin/other"), "").unwrap();
    fs::write(place.at("etc/runmig/crun.toml"), "").unwrap();
    place.ok(&["--uninstall"]);
    let (kept, target) = (place.at("etc/runmig/kept"), place.at("srv/config.toml"));
    fs::rename(&config, &kept).unwrap();
    symlink(&target, &config).unwrap();
    place.ok(&[]);
    assert_eq!(fs::read_link(&config).unwrap(), target);
    fs::rename(&kept, &config).unwrap();
    place.ok(&["--uninstall"]);
    let configs = ["etc/runmig/config.toml", "etc/runmig/crun.toml"];
    assert_eq!(
        place.names(),
        [&configs[..], &["usr/local/bin/other"]].concat()
    );
}

/// The link that `migctl configure --name runmig-NAME` made beside runmig goes with it.
#[test]
fn removes_its_links_alone() {
    let place = Place::new();
    place.ok(&[]);
    let bin = place.at("usr/local/bin");
    for (name, to) in [
        ("runmig-a100", "runmig"),
        ("runmig-crun", "/usr/local/bin/runmig"),
        ("runmig-mine", "/opt/mine/runmig"),
        ("runmig-ctl", "migctl"),
        ("other", "runmig"),
    ] {
        symlink(to, bin.join(name)).unwrap();
    }
    fs::write(bin.join("runmig-script"), "").unwrap();
    place.ok(&["--uninstall"]);
    let names = ["other", "runmig-ctl", "runmig-mine", "runmig-script"];
    assert_eq!(
        place.names(),
        names.map(|name| format!("usr/local/bin/{name}"))
    );
}

#[test]
fn purge_takes_what_runmig_wrote() {
    let place = Place::new();
    let says = |arguments: &[&str]| place.install(arguments).ok().stderr;
    place.ok(&[]);
    let written = [
        "run/runmig/boot/x",
        "var/log/runmig/events.jsonl",
        "etc/runmig/crun.toml",
    ];
    { written.iter() }.for_each(|file| place.write(file, ""));
    place.write("etc/runmig/config.toml", "wait = \"1m\"\n");
    let said = says(&["--uninstall"]);
    for dir in ["run/runmig", "var/log/runmig"] {
        has(&said, place.at(dir).to_str().unwrap());
    }
    has(&said, "stay; --uninstall --purge takes them too");
    assert_eq!(place.files().len(), 4);
    has(&says(&["--uninstall", "--purge"]), "removed ");
    assert_eq!(place.files(), []);
    let again = says(&["--uninstall", "--purge"]);
    assert!(!again.contains("removed"), "{again}");
    let left = ["etc/runmig", "run/runmig", "var/log/runmig"].map(|dir| place.at(dir).exists());
    assert_eq!(left, [false; 3]);
    // Directories of its own choice stay, and it says so.
    let (state, file) = (place.at("srv/state"), place.at("etc/runmig/1g.toml"));
    fs::create_dir_all(&state).unwrap();
    for arguments in [&["--uninstall"][..], &["--uninstall", "--purge"]] {
        place.write("etc/runmig/1g.toml", "state_dir = \"/srv/state\" # ours\n");
        let said = says(arguments);
        let it_stays = said.contains(&format!("{} stay", file.display()));
        assert_eq!(it_stays, arguments.len() == 1, "{said}");
        let words = format!("{} stays; hint: remove it by hand", state.display());
        has(&said, &words);
        assert!(state.exists());
    }
    let alone = place.install(&["--purge"]);
    assert!(!alone.status.success(), "{alone:?}");
}

#[test]
fn uninstall_names_engines_that_call_runmig() {
    let place = Place::new();
    let said = |file: &str, text: &str| {
        place.write(file, text);
        let uninstalled = place.install(&["--uninstall"]);
        fs::remove_file(place.at(file)).unwrap();
        uninstalled.ok().stderr
    };
    for (file, text) in testkit::rows! {
        "etc/docker/daemon.json" => "{\"default-runtime\": \"runmig\"}";
        "etc/crio/crio.conf.d/20-runmig.conf" => "[crio.runtime]\ndefault_runtime='runmig'\n";
        "etc/containers/containers.conf" => "[engine]\n  runtime = \"runmig\"\n";
        "etc/containers/containers.rootful.conf.d/x.conf" => "engine.runtime = \"runmig\"\n";
        "etc/systemd/system/docker.service.d/x.conf" => "ExecStart=/usr/bin/dockerd --default-runtime=runmig-1g\n";
        "etc/default/docker" => "DOCKER_OPTS=\"--default-runtime runmig\"\n";
        "etc/containerd/conf.d/runmig.toml" => "default_runtime_name = \"runmig-a100\"\n";
    } {
        let words = format!("{file} makes runmig the default");
        has(&said(file, text), &words);
    }
    for (file, text) in testkit::rows! {
        "etc/docker/daemon.json" => "{\"runtimes\": {\"r\": {\"path\": \"/usr/local/bin/runmig\"}}}";
        "var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/x.toml" =>
            "BinaryName = \"/usr/local/bin/runmig-a100\"\n";
        "etc/systemd/system/docker.service" => "ExecStart=/usr/bin/dockerd --add-runtime r=/usr/local/bin/runmig\n";
    } {
        has(&said(file, text), &format!("{file} still names runmig"));
    }
    // Files that containerd imports from elsewhere.
    let imports = "imports = [\"/srv/c/*.toml\", 'more.d/*.toml']\n";
    place.write("etc/containerd/config.toml", imports);
    let text = "BinaryName = '/usr/local/bin/runmig'\n";
    for file in ["srv/c/1.toml", "etc/containerd/more.d/1.toml"] {
        has(&said(file, text), &format!("{file} still names runmig"));
    }
    let others = "{\"default-runtime\": \"nvidia\", \"runtimes\": {\"x\": {\"path\": \"/opt/runmig-like\"}}}";
    assert!(!said("etc/docker/daemon.json", others).contains("warning"));
}

/// The configuration as it is shipped says what the defaults are.
#[test]
fn configuration_names_the_defaults() {
    // With the heads of the sections of Kubernetes, events, health and dcgm.
    const KEYS: usize = 26;
    let place = Place::new();
    place.ok(&[]);
    let text = fs::read_to_string(place.at("etc/runmig/config.toml")).unwrap();
    let default = runmig_lease::config::Config::default();
    assert_eq!(runmig_lease::config::Config::parse(&text).unwrap(), default);
    // The policy is an example: by default there is none.
    let (text, _) = text.split_once("\n# The administrator's rules").unwrap();
    let without_default = ["runtime", "file = \"/etc", "config ="];
    let sections = ["[kubernetes]", "[health]", "[events]", "[dcgm]"];
    let keys = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(key) if without_default.iter().any(|k| key.starts_with(k)) => line,
        Some(key) if key.contains(" = ") || sections.contains(&key) => key,
        _ => line,
    });
    let uncommented = keys.collect::<Vec<_>>().join("\n");
    let comments = |text: &str| text.matches("\n# ").count();
    assert_eq!(comments(&uncommented), comments(text) - KEYS);
    let mut parsed = runmig_lease::config::Config::parse(&uncommented).unwrap();
    // It names the file that goes with the default ledger.
    assert_eq!(parsed.events_file(), default.events_file());
    parsed.events.file = None;
    assert_eq!(parsed, default);
}

#[test]
fn bad_options_change_nothing() {
    let place = Place::new();
    for (arguments, words) in testkit::rows! {
        &["--nonsense"][..] => "unknown argument --nonsense";
        &["--prefix"] => "--prefix wants a directory";
        &["--prefix", "relative"] => "--prefix relative is not an absolute path";
        &["--prefix", "/opt/a|b"] => "--prefix /opt/a|b has characters";
        &["--prefix", "/opt/a b"] => "--prefix /opt/a b has characters";
        &["--force"] => "--force and --purge have an effect only with --uninstall";
        &["--purge"] => "--force and --purge have an effect only";
    } {
        let said = place.install(arguments).exits(1);
        begins_with(&said.stderr, &format!("install: {words}"));
    }
    assert_eq!(place.files(), []);
}
