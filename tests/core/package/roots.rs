//! The packages in a root of Debian 11: glibc 2.31, no systemd, no driver, no Rust, no low-level runtime.

use testkit::packages::{self, EARLIER_LINE, PROGRAMS, package};
use testkit::prelude::*;
use testkit::process::descendants;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const CONFIG: &str = "etc/runmig/config.toml";
const DEVICES: &str = "etc/cdi/runmig-slice.yaml";
const WANTED: &str = "etc/systemd/system/timers.target.wants/runmig-gc.timer";

struct Root {
    dir: TempDir,
}

impl Root {
    /// Unpacks the root that `scripts/setup full` made.
    fn new() -> Option<Root> {
        let archive = testkit::runtimes::cache().unwrap_or_default();
        let archive = archive.join("roots/debian11.tar");
        if !archive.exists() {
            skip("no root of Debian 11; run scripts/setup full");
            return None;
        };
        if !nix::unistd::geteuid().is_root() {
            skip("a root file system is made by root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        super::run("tar -C $0 -xf $1", &[dir.path(), &archive]);
        fs::create_dir(dir.path().join("packages")).unwrap();
        Some(Root { dir })
    }

    /// The same with the .deb of the tree and of an earlier version in `/packages`.
    fn with_debs() -> Option<Root> {
        let deb = package(".deb")?;
        let root = Root::new()?;
        fs::copy(&deb, root.at("packages/new.deb")).unwrap();
        packages::earlier_deb(&deb, &root.at("packages/earlier.deb"));
        Some(root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// A shell command, in a mount namespace of its own: inside the root, or beside it with its path as `$1`.
    fn command(&self, inside: bool, script: &str) -> Command {
        let enter = match inside {
            true => "exec chroot \"$1\" /bin/sh -c \"$2\"",
            false => "exec /bin/sh -c \"$2\" sh \"$1\"",
        };
        let mut command = Command::new("unshare");
        let mounts = "mount --rbind /proc \"$1/proc\"; mount --rbind /dev \"$1/dev\"";
        command.args(["--mount", "/bin/sh", "-ec", &format!("{mounts}; {enter}")]);
        command.arg("sh").arg(self.dir.path()).arg(script);
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        command.env("PATH", path);
        command.env("HOME", "/root").env_remove("RUST_BACKTRACE");
        command.stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, script: &str) -> Said {
        said(&mut self.command(true, script))
    }

    #[track_caller]
    fn ok(&self, script: &str) -> String {
        self.run(script).ok().stdout
    }

    /// Runs rpm on the root, with the scripts of its packages inside.
    #[track_caller]
    fn rpm(&self, arguments: &str) -> Said {
        let script = format!("rpm --root \"$1\" {arguments}");
        said(&mut self.command(false, &script))
    }

    /// All paths but those that dpkg and rpm keep for themselves.
    fn files(&self) -> String {
        self.ok(
            "find / -xdev \\( -path /packages -o -path /var/lib/dpkg -o -path /var/log -o -path /var/lib/rpm \
             -o -path /usr/lib/sysimage -o -path /root \\) -prune -o -print | sort",
        )
    }

    fn dpkg_status(&self) -> String {
        self.ok("dpkg-query --show --showformat '${db:Status-Status} ${Version}' runmig || true")
    }

    /// Whether each program is that of the earlier package; the earlier one has more bytes.
    fn earlier(&self) -> [bool; PROGRAMS.len()] {
        PROGRAMS.map(|name| {
            let program = fs::read(self.at("usr/bin").join(name)).unwrap();
            program.ends_with(b"earlier")
        })
    }

    /// Puts a program before that of the same name.
    fn gate(&self, name: &str, script: &str) {
        fs::create_dir_all(self.at("gate")).unwrap();
        let file = self.at("gate").join(name);
        testkit::runtimes::program(&file, &format!("#!/bin/sh\n{script}\n"));
    }

    /// Starts dpkg with the gate before its programs. Kills it and all that it started once the gate is reached.
    #[track_caller]
    fn kill_dpkg_at_gate(&self, arguments: &str) {
        let script = format!("PATH=/gate:$PATH; export PATH; exec dpkg {arguments}");
        let dpkg: Going = going(&mut self.command(true, &script));
        let reached = self.at("gate/reached");
        until("dpkg is at the gate", || reached.exists());
        let scripts = descendants(dpkg.pid());
        dpkg.kill();
        scripts.into_iter().for_each(kill);
        fs::remove_dir_all(self.at("gate")).unwrap();
    }
}

/// The end of a gate: it lets the test know, and stays.
const STAYS: &str = "touch /gate/reached; exec sleep 600";

/// A container with a lease, on a simulated machine outside the root.
fn leased(root: &Root) -> Setup {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1));
    setup.create(&setup.asking("1g.10gb", "true"), "web");
    copy_ledger(&setup, root);
    setup
}

fn release(setup: &Setup, root: &Root) {
    setup.runmig(&["delete", "--force", "web"]).ok();
    // An instance of a layout needs no hook.
    let layout = "version: v1\nmig-configs: {one: [{devices: all, mig-enabled: true, mig-devices: {2g.20gb: 1}}]}\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), layout).unwrap();
    let file = file.path().to_str().unwrap();
    setup.migctl(&["apply", "-f", file]).ok();
    fs::remove_dir_all(root.at("run/runmig")).unwrap();
    copy_ledger(setup, root);
}

/// Copies a ledger to where the programs in a root look for it, as one of this machine's boot.
fn copy_ledger(setup: &Setup, root: &Root) {
    let to = root.at("run/runmig");
    super::run("cp -a $0 $1", &[&setup.state(), &to]);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    testkit::faults::check::rewrite(&to, |header, _| header["boot"] = boot.trim().into());
}

#[track_caller]
fn programs_start(root: &Root, programs: &str) {
    let version = root.ok(&format!("{programs}/migctl --version"));
    assert_eq!(version.trim(), format!("migctl {VERSION}"));
    let hook = root.ok(&format!("{programs}/runmig-hook --version"));
    has(&hook, VERSION);
    // The front and its companion look for the low-level runtime, which is not there.
    for name in ["runmig", "runmig-slice"] {
        let said = root.run(&format!("{programs}/{name} --version")).exits(1);
        has(&said.stderr, "cannot find a low-level runtime");
    }
    // k3s and RKE2 unpack a runc of their own, and a link leads to the current one.
    for (link, target, runc) in testkit::rows! {
        "k3s/data/current", "k3s/data/1f2e" => "bin/runc";
        "rke2/bin", "rke2/data/v1.37/bin" => "runc";
    } {
        let [link, target] = [link, target].map(|path| format!("/var/lib/rancher/{path}"));
        let runc = format!("{target}/{runc}");
        root.ok(&format!(
            "mkdir -p $(dirname {runc}) && printf '#!/bin/sh\\necho {runc}\\n' >{runc} && chmod 755 {runc} && ln -s {target} {link}"
        ));
        for name in ["runmig", "runmig-slice"] {
            has(&root.ok(&format!("{programs}/{name} --version")), &runc);
        }
        root.ok("rm -r /var/lib/rancher");
    }
}

/// Failure: no systemd, no driver
#[test]
fn deb_installs_without_systemd() {
    let Some(root) = Root::with_debs() else {
        return;
    };
    let before = root.files();
    root.ok("dpkg --install /packages/new.deb");
    programs_start(&root, "/usr/bin");
    assert_eq!(root.ok("dpkg --verify runmig"), "");
    assert!(root.at(WANTED).symlink_metadata().is_ok());
    has(&root.read(DEVICES), "\"/usr/bin/runmig-request");
    // Without a driver, the ledger is empty and can be read.
    assert_eq!(root.ok("migctl list").lines().count(), 1);
    let doctor = root.run("migctl doctor --only driver").exits(1);
    begins_with(&doctor.stdout, "fail  driver.library");

    // As systemctl enable makes them.
    root.ok(
        "cd /etc/systemd/system && mkdir -p sockets.target.wants multi-user.target.wants
        ln -s /usr/lib/systemd/system/runmig-layout.service multi-user.target.wants/
        ln -s /usr/lib/systemd/system/runmig-textfile.timer timers.target.wants/
        ln -s /usr/lib/systemd/system/runmig-metrics.socket sockets.target.wants/",
    );
    fs::write(root.at("etc/runmig/crun.toml"), "").unwrap();
    root.ok("dpkg --remove runmig");
    assert!(root.at(CONFIG).exists() && !root.at("usr/bin/runmig").exists());
    root.ok("dpkg --purge runmig");
    packages::same_files(&before, &root.files());
}

/// Failure: a removal while leases are held, without systemd, and with a ledger that runmig cannot read
#[test]
fn deb_stays_while_leases_are_held() {
    let Some(root) = Root::with_debs() else {
        return;
    };
    root.ok("dpkg --install /packages/new.deb");
    let setup = leased(&root);
    let refused = root.run("dpkg --remove runmig").exits(1);
    has(&refused.stderr, "slices, shares or GPUs are leased");
    assert_eq!(root.dpkg_status(), format!("installed {VERSION}-1"));
    release(&setup, &root);
    assert!(root.ok("migctl list").contains("layout"));
    // A ledger that cannot be read may have leases.
    let config = root.read(CONFIG);
    fs::write(root.at(CONFIG), "nonsense").unwrap();
    let refused = root.run("dpkg --remove runmig").exits(1);
    has(&refused.stderr, "cannot read the leases");
    fs::write(root.at(CONFIG), config).unwrap();
    root.ok("dpkg --remove runmig");
    assert!(!root.at("usr/bin/runmig").exists());
}

/// Failure: a kill of dpkg while it unpacks, or while it configures
#[test]
fn killed_dpkg_is_repeated() {
    let Some(root) = Root::with_debs() else {
        return;
    };
    root.ok("dpkg --install /packages/earlier.deb");
    // dpkg has unpacked some of the programs when the stream of files stops.
    root.gate(
        "dpkg-deb",
        &format!(
            "case $* in *--fsys-tarfile*) /usr/bin/dpkg-deb \"$@\" | head -c 4000000; {STAYS} ;; esac
             exec /usr/bin/dpkg-deb \"$@\""
        ),
    );
    root.kill_dpkg_at_gate("--install /packages/new.deb");
    has(&root.dpkg_status(), "half-installed");
    let half = root.ok("find / -xdev -name '*.dpkg-new'");
    has(&half, "/usr/bin/");
    // All programs are still those of one version, and work.
    assert_eq!(root.earlier(), [true; PROGRAMS.len()]);
    root.ok("migctl list");

    // The next one dies between the files and the end of postinst.
    root.gate("deb-systemd-helper", STAYS);
    root.kill_dpkg_at_gate("--install /packages/new.deb");
    has(&root.dpkg_status(), "half-configured");
    assert_eq!(root.earlier(), [false; PROGRAMS.len()]);
    assert_eq!(root.ok("find / -xdev -name '*.dpkg-new'"), "");

    root.ok("dpkg --configure --pending");
    assert_eq!(root.dpkg_status(), format!("installed {VERSION}-1"));
    assert_eq!(root.ok("dpkg --verify runmig"), "");
    assert!(root.at(WANTED).symlink_metadata().is_ok());
}

/// Failure: a changed configuration file at an upgrade
#[test]
fn upgrade_asks_about_changed_configuration() {
    let Some(root) = Root::with_debs() else {
        return;
    };
    root.ok("dpkg --install /packages/earlier.deb");
    let changed = root.read(CONFIG) + "# mine\n";
    fs::write(root.at(CONFIG), &changed).unwrap();
    // Nobody answers.
    let asked = root.run("dpkg --install /packages/new.deb").exits(1);
    has(&asked.stderr, "end of file on stdin at conffile prompt");
    assert_eq!(root.read(CONFIG), changed);
    root.ok("dpkg --force-confold --configure runmig");
    assert_eq!(root.read(CONFIG), changed);
    lacks(&root.read(&format!("{CONFIG}.dpkg-dist")), EARLIER_LINE);
    root.ok("dpkg --purge runmig");
    assert!(!root.at("etc/runmig").exists());

    // One that nobody changed is replaced.
    root.ok("dpkg --install /packages/earlier.deb && dpkg --install /packages/new.deb");
    assert!(!root.read(CONFIG).contains(EARLIER_LINE));
}

#[test]
fn upgrade_keeps_timer_disabled() {
    let Some(root) = Root::with_debs() else {
        return;
    };
    root.ok("dpkg --install /packages/earlier.deb");
    fs::remove_file(root.at(WANTED)).expect("the link that enables the timer");
    root.ok("dpkg --install /packages/new.deb");
    assert!(root.at(WANTED).symlink_metadata().is_err());
    // A purge forgets that.
    root.ok("dpkg --purge runmig && dpkg --install /packages/new.deb");
    assert!(root.at(WANTED).symlink_metadata().is_ok());
}

/// Failure: a purge or an `--uninstall` beside the other copy
#[test]
fn tarball_installs_beside_deb() {
    let (Some(tarball), Some(root)) = (package(".tar.gz"), Root::with_debs()) else {
        return;
    };
    let unpack = "tar --strip-components=1 -xzf $0 -C $1";
    super::run(unpack, &[tarball, root.at("packages")]);
    let before = root.files();
    root.run("command -v cargo").exits(127);
    // The root has no SELinux, so these say what they were told.
    for name in ["semanage", "restorecon"] {
        let program = root.at("usr/sbin").join(name);
        testkit::runtimes::program(&program, "#!/bin/sh\necho \"$@\" >>/packages/selinux\n");
    }
    root.ok("/packages/install");
    programs_start(&root, "/usr/local/bin");
    let told = "fcontext --add --type container_runtime_exec_t /usr/local/bin/runmig(-slice)?\n\
         /usr/local/bin/runmig /usr/local/bin/runmig-slice\n";
    assert_eq!(root.read("packages/selinux"), told);
    root.ok("migctl configure cdi");
    let devices = root.read(DEVICES);
    has(&devices, "\"/usr/local/bin/runmig-request");

    root.ok("dpkg --install /packages/new.deb");
    // The configuration and the ledger of a purged package are the other copy's.
    fs::create_dir(root.at("run/runmig")).unwrap();
    fs::write(root.at("etc/runmig/crun.toml"), "").unwrap();
    root.ok("dpkg --purge runmig");
    assert!(root.at("run/runmig").exists() && root.at("etc/runmig/crun.toml").exists());
    assert_eq!(root.read(DEVICES), devices);
    fs::remove_dir(root.at("run/runmig")).unwrap();
    fs::remove_file(root.at("etc/runmig/crun.toml")).unwrap();

    // And the configuration of a package that stays is the package's.
    root.ok("dpkg --install /packages/new.deb");
    let said = root.run("/packages/install --uninstall").ok().stderr;
    has(&said, "belongs to a package and stays");
    let selinux = root.read("packages/selinux");
    let last = selinux.lines().last().unwrap();
    assert_eq!(last, "fcontext --delete /usr/local/bin/runmig(-slice)?");
    root.ok("rm /usr/sbin/semanage /usr/sbin/restorecon");
    assert_eq!(root.ok("dpkg --verify runmig"), "");
    programs_start(&root, "/usr/bin");
    root.ok("dpkg --purge runmig");
    // Folders of others, as the one for the manual pages, stay.
    let of_root = |files: String| -> String {
        let lines = files.lines();
        let own = lines.filter(|path| !path.starts_with("/usr/local/share/"));
        own.map(|path| format!("{path}\n")).collect()
    };
    packages::same_files(&of_root(before), &of_root(root.files()));
}

/// An rpm of version 0.0.1 from the files of the package, without scripts.
fn earlier_rpm(rpm: &Path, to: &Path) {
    let work = tempfile::tempdir().unwrap();
    let files = work.path().join("files");
    fs::create_dir(&files).unwrap();
    super::run("rpm --root $0 -i --nodeps --noscripts $1", &[&files, rpm]);
    packages::change(&files);
    let spec = "Name: runmig\nVersion: 0.0.1\nRelease: 1\nSummary: earlier\nLicense: Apache-2.0\nAutoReqProv: no\n\
        %description\nearlier\n%install\nmkdir -p %{buildroot}/usr\ncp -a %{content}/usr/bin %{buildroot}/usr\ncp -a %{content}/etc %{buildroot}\n%files\n/usr/bin/*\n%config(noreplace) /etc/runmig/config.toml\n";
    fs::write(work.path().join("spec"), spec).unwrap();
    let mut build = Command::new("rpmbuild");
    build.arg("-bb").arg("--quiet");
    let top = format!("_topdir {}", work.path().display());
    let files = format!("content {}", files.display());
    let target = format!("_rpmdir {}", to.display());
    let post = "__os_install_post %{nil}";
    for define in [&*top, &files, &target, post, "_build_name_fmt earlier.rpm"] {
        build.arg("--define").arg(define);
    }
    said(build.arg(work.path().join("spec"))).ok();
}

/// Failure: a removal while leases are held, for the .rpm
#[test]
fn rpm_upgrades_and_refuses_removal() {
    let (Some(rpm), Some(root)) = (package(".rpm"), Root::new()) else {
        return;
    };
    earlier_rpm(&rpm, &root.at("packages"));
    fs::copy(&rpm, root.at("packages/new.rpm")).unwrap();
    // The root has no systemd, so this says what the scripts would tell it.
    let script = "#!/bin/sh\necho \"$@\" >>/packages/systemctl\n";
    testkit::runtimes::program(&root.at("usr/bin/systemctl"), script);
    // Folders that other packages of RHEL own.
    root.ok("cd /usr && mkdir -p lib/systemd/system share/fish/vendor_completions.d share/licenses share/zsh/site-functions");
    root.rpm("--initdb").ok();
    let before = root.files();
    let told = || fs::read_to_string(root.at("packages/systemctl")).unwrap_or_default();

    root.rpm("--nodeps -i \"$1/packages/new.rpm\"").ok();
    programs_start(&root, "/usr/bin");
    has(&root.read(DEVICES), "\"/usr/bin/runmig-request");
    assert_eq!(told(), "daemon-reload\nenable --now runmig-gc.timer\n");
    let setup = leased(&root);
    let refused = root.rpm("-e runmig");
    assert!(!refused.status.success(), "{refused:?}");
    has(&refused.stderr, "slices, shares or GPUs are leased");
    assert!(root.at("usr/bin/runmig").exists());
    release(&setup, &root);
    fs::remove_dir_all(root.at("run/runmig")).unwrap();
    root.rpm("-e runmig").ok();
    ends_with(&told(), "disable --now runmig-gc.timer\ndaemon-reload\n");
    packages::same_files(&before, &root.files());

    // An upgrade keeps a changed configuration, also while leases are held.
    root.rpm("--nodeps -i \"$1/packages/earlier.rpm\"").ok();
    assert_eq!(root.earlier(), [true; PROGRAMS.len()]);
    let changed = root.read(CONFIG) + "# mine\n";
    fs::write(root.at(CONFIG), &changed).unwrap();
    let _leased = leased(&root);
    fs::remove_file(root.at("packages/systemctl")).unwrap();
    root.rpm("--nodeps -U \"$1/packages/new.rpm\"").ok();
    assert_eq!(root.earlier(), [false; PROGRAMS.len()]);
    assert_eq!(root.read(CONFIG), changed);
    lacks(&root.read(&format!("{CONFIG}.rpmnew")), EARLIER_LINE);
    assert_eq!(told(), "daemon-reload\n");
}
