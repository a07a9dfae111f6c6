//! The configuration: where it is, what it may say, and whether it can be trusted.
//!
//! Engines pass neither arguments nor environment of ours, so the name we are called by picks the
//! file: `runmig` reads `/etc/runmig/config.toml`, a link called `runmig-NAME` reads `NAME.toml`
//! beside it. `RUNMIG_CONFIG` is for tests and use by hand.

mod request;
mod wrong;

pub use request::Requested;

use crate::error::{Context, Error, Result};
use crate::model::{Gpu, GpuUuid, Level, Sign, SignKind};
use crate::policy::{GpuName, Gpus, Policy, Subject};
use crate::{programs, trust};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the configuration files.
pub const DIRECTORY: &str = "/etc/runmig";
const MAX_SIZE: u64 = 64 * 1024;

/// Folders that have files of others.
const SYSTEM: &str = "/ /boot /dev /etc /home /media /mnt /opt /proc /root /run /srv /sys /tmp /usr /usr/bin /usr/lib \
                      /usr/local /usr/sbin /usr/share /var /var/lib /var/log /var/tmp";

/// What `nvidia-ctk cdi generate` writes, and the GPU Operator.
const CDI_KINDS: [&str; 4] = [
    "nvidia.com/gpu",
    "management.nvidia.com/gpu",
    "k8s.device-plugin.nvidia.com/gpu",
    "runtime.nvidia.com/gpu",
];

/// A configuration: the keys of docs/configuration.md, with a default for each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The absolute path of the low-level runtime. Without one runmig looks for runc, then crun, in the
    /// usual places.
    pub runtime: Option<PathBuf>,
    /// The absolute path of the directory that holds the ledger.
    pub state_dir: PathBuf,
    /// The absolute path of the directory for what outlives a reboot: the cordons of GPUs.
    pub data_dir: PathBuf,
    /// The time that a request without an own wait waits for room.
    #[serde(deserialize_with = "duration")]
    pub wait: Duration,
    /// The time that one holder may keep a lock before a waiter fails.
    #[serde(deserialize_with = "duration")]
    pub lock_timeout: Duration,
    /// The source of the driver's files for containers.
    pub driver_files: DriverFiles,
    /// The folders of CDI specifications beside the usual ones; a later folder wins.
    pub cdi_dirs: Vec<PathBuf>,
    /// The kinds of CDI specifications that may have the driver's files, the preferred one first.
    pub cdi_kinds: Vec<String>,
    /// The hooks of CDI specifications that containers do not get, by the names of their programs or commands.
    pub driver_hooks_skip: Vec<String>,
    /// The time that a released slice waits for the next request for its profile. Zero destroys it at once.
    #[serde(deserialize_with = "duration")]
    pub keep_idle: Duration,
    /// Says whether runmig hands out idle instances that an administrator made.
    pub adopt: bool,
    /// The driver's library and files.
    pub driver: Driver,
    /// The work beside dcgm-exporter.
    pub dcgm: Dcgm,
    /// The signs by which a GPU counts as sick.
    pub health: Health,
    /// The history of creates, leases and instances.
    pub events: Events,
    /// The layout of this machine.
    pub layout: Layout,
    /// The rules for shares of GPUs.
    pub sharing: Sharing,
    /// The rules for Kubernetes, which `runmig-dra` alone follows.
    pub kubernetes: Kubernetes,
    /// The administrator's rules.
    pub policy: Policy,
    /// The request of containers that have none themselves.
    pub request: Option<Requested>,
    /// The file that the configuration comes from. None if the file is missing and all is default.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// The source of the driver's files (libraries, programs) for containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverFiles {
    /// `cdi` where the node has a specification with libcuda, else `nvidia-runtime` where that is the low-level runtime,
    /// else a refusal.
    Auto,
    /// The node's CDI specification.
    Cdi,
    /// The low-level runtime adds them itself: it is nvidia-container-runtime.
    NvidiaRuntime,
    /// The image has them.
    None,
}

/// The driver's library and files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Driver {
    /// The soname or the absolute path of NVML's library.
    pub library: PathBuf,
    /// The absolute path of the directory that holds the driver's `proc/` and `dev/`.
    pub root: PathBuf,
    /// The absolute path of nvidia-modprobe. Without one runmig looks in the usual places.
    pub nvidia_modprobe: Option<PathBuf>,
    /// The node's root folder, as this process sees it: `/`, unless it runs in a pod. Not a key of the file.
    #[serde(skip)]
    pub host_root: PathBuf,
}

/// The rules for Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// The absolute path of the kubelet's directory, in which plugins register.
    pub kubelet_dir: PathBuf,
    /// Says whether Kubernetes evicts the pods of claims whose slice or GPU does not work.
    pub evict: bool,
    /// The published GPUs.
    pub gpus: Gpus,
    /// The right of local creates to published GPUs.
    pub local: Local,
}

/// The right of local creates (annotations, podman, docker) to published GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Local {
    /// They may use them.
    #[default]
    Share,
    /// They may not.
    Apart,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Kubernetes {
            kubelet_dir: "/var/lib/kubelet".into(),
            evict: false,
            gpus: Gpus::default(),
            local: Local::default(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            runtime: None,
            state_dir: "/run/runmig".into(),
            data_dir: "/var/lib/runmig".into(),
            wait: Duration::ZERO,
            lock_timeout: Duration::from_secs(10),
            driver_files: DriverFiles::Auto,
            cdi_dirs: Vec::new(),
            cdi_kinds: CDI_KINDS.map(str::to_owned).into(),
            driver_hooks_skip: Vec::new(),
            keep_idle: Duration::ZERO,
            adopt: false,
            driver: Driver::default(),
            dcgm: Dcgm::default(),
            health: Health::default(),
            events: Events::default(),
            layout: Layout::default(),
            sharing: Sharing::default(),
            kubernetes: Kubernetes::default(),
            policy: Policy::default(),
            request: None,
            file: None,
        }
    }
}

impl Default for Driver {
    fn default() -> Self {
        Driver {
            library: "libnvidia-ml.so.1".into(),
            root: "/".into(),
            nvidia_modprobe: None,
            host_root: "/".into(),
        }
    }
}

impl Config {
    /// Reads the configuration of the program that is called `argv0`. Without `RUNMIG_CONFIG` and without the default
    /// file, all is default.
    ///
    /// # Errors
    /// A file that is missing, wrong, or writable for users other than root.
    pub fn for_program(argv0: Option<&OsStr>) -> Result<Config> {
        if let Some(file) = std::env::var_os("RUNMIG_CONFIG") {
            return Config::read(Path::new(&file));
        }
        let own = argv0.map(Path::new).and_then(programs::configuration_of);
        if let Some(name) = own {
            return Config::read(&Path::new(DIRECTORY).join(format!("{name}.toml")));
        }
        let file = Path::new(DIRECTORY).join("config.toml");
        match Config::read(&file) {
            Err(_) if is_absent(&file) => Ok(Config::default()),
            read => read,
        }
    }

    /// Reads the file that an argument names, or without one the configuration of the program itself.
    ///
    /// # Errors
    /// As those of `read`.
    pub fn named(file: Option<&Path>) -> Result<Config> {
        file.map_or_else(|| Config::for_program(None), Config::read)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// A file that is missing, wrong, or writable for users other than root.
    pub fn read(file: &Path) -> Result<Config> {
        let what = || format!("read configuration {}", file.display());
        let text = trust::read_to_string(file, MAX_SIZE).context(what)?;
        let mut config = Config::parse(&text).context(what)?;
        if config.request.is_some() {
            config = config.over_common(file, &text).context(what)?;
        }
        config.file = Some(std::path::absolute(file).context(what)?);
        Ok(config)
    }

    /// Returns the configuration of a link with a request: a key or a section that its file lacks is that of `config.toml`
    /// beside it, so the rules for all hold here too.
    fn over_common(self, file: &Path, text: &str) -> Result<Config> {
        let common = file.with_file_name("config.toml");
        if file == common {
            return Err(
                Error::new("[request] is not for the configuration of runmig itself")
                    .hint("write it into NAME.toml, for a link runmig-NAME"),
            );
        }
        if is_absent(&common) {
            return Ok(self);
        }
        Config::read(&common)?;
        let base = trust::read_to_string(&common, MAX_SIZE)?;
        let what = || format!("join it with {}", common.display());
        let mut all: toml::Table = toml::from_str(&base).context(what)?;
        all.extend(toml::from_str::<toml::Table>(text).context(what)?);
        let config: Config = all.try_into().context(what)?;
        config.checked()
    }

    /// Reads the text of a configuration and checks it.
    ///
    /// # Errors
    /// Unknown keys, wrong values, relative paths, and rules that could match nothing.
    pub fn parse(text: &str) -> Result<Config> {
        let config: Config =
            toml::from_str(text).map_err(|e| wrong::in_words(text, e.message(), e.span()))?;
        config.checked()
    }

    fn checked(mut self) -> Result<Config> {
        let Config {
            driver,
            sharing,
            kubernetes,
            ..
        } = &self;
        let dirs = { self.cdi_dirs.iter() }.map(|dir| ("cdi_dirs", Some(dir.as_path())));
        for (key, path) in dirs.chain([
            ("runtime", self.runtime.as_deref()),
            ("state_dir", Some(self.state_dir.as_path())),
            ("data_dir", Some(self.data_dir.as_path())),
            ("driver.root", Some(driver.root.as_path())),
            ("driver.nvidia_modprobe", driver.nvidia_modprobe.as_deref()),
            ("sharing.mps_control", sharing.mps_control.as_deref()),
            ("events.file", self.events.named()),
            ("layout.file", self.layout.file.as_deref()),
            ("kubernetes.kubelet_dir", Some(&*kubernetes.kubelet_dir)),
        ]) {
            let shown = path.unwrap_or(Path::new("")).display();
            if path.is_some_and(|path| !path.is_absolute()) {
                let why = format!("{key} = \"{shown}\" is not an absolute path");
                return Err(Error::new(why));
            }
            let is_of_system = |path| SYSTEM.split(' ').any(|folder| path == Path::new(folder));
            if ["state_dir", "data_dir"].contains(&key) && path.is_some_and(is_of_system) {
                let why = format!("{key} = \"{shown}\" is not a folder of runmig's own");
                return Err(Error::new(why).hint("leave it out, or set it to a new folder"));
            }
        }
        let library = &driver.library;
        if !library.is_absolute() && library.components().count() != 1 {
            let shown = library.display();
            return Err(Error::new(format!(
                "driver.library = \"{shown}\" is neither a soname nor an absolute path"
            )));
        }
        let is_kind = |kind: &str| {
            let parts = kind.split_once('/');
            parts.is_some_and(|(vendor, class)| !vendor.is_empty() && !class.is_empty())
        };
        if self.cdi_kinds.is_empty() {
            return Err(Error::new("cdi_kinds is empty").hint("leave it out"));
        }
        if let Some(kind) = self.cdi_kinds.iter().find(|kind| !is_kind(kind)) {
            let why = format!("cdi_kinds: \"{kind}\" is not a kind of CDI devices");
            return Err(Error::new(why).hint("write VENDOR/CLASS, such as nvidia.com/gpu"));
        }
        self.dcgm.check()?;
        self.layout.check()?;
        sharing.check()?;
        self.policy.check()?;
        kubernetes.gpus.check("kubernetes.gpus")?;
        // The choice of published GPUs is a rule for local creates.
        let is_apart = kubernetes.local == Local::Apart;
        self.policy.apart = is_apart.then(|| kubernetes.gpus.clone());
        if let Some(request) = &self.request {
            request.check()?;
        }
        Ok(self)
    }
}

fn is_absent(file: &Path) -> bool {
    matches!(std::fs::symlink_metadata(file), Err(e) if e.kind() == std::io::ErrorKind::NotFound)
}

fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    struct Written;
    impl Visitor<'_> for Written {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            crate::request::duration(text).map_err(E::custom)
        }
    }
    d.deserialize_str(Written)
}

/// The number of shares that one GPU takes, at most. An MPS server of CUDA 12 takes as many clients.
const MOST_SHARES: u32 = 48;
/// The memory that an MPS server needs on its GPU, in MiB: 72 were measured on an H100.
const OVERHEAD_MIB: u64 = 128;
/// The most that an administrator may set for it, in MiB.
const MOST_OVERHEAD_MIB: u64 = 4096;

/// The rules for shares of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sharing {
    /// The permitted levels, best first.
    pub enforcement: Vec<Level>,
    /// The most shares of one GPU.
    pub shares_per_gpu: u32,
    /// The absolute path of NVIDIA's MPS control program. Without one runmig looks in the usual places.
    pub mps_control: Option<PathBuf>,
    /// The memory that each MPS daemon books beside its share, in MiB.
    pub mps_overhead: u64,
}

impl Default for Sharing {
    fn default() -> Self {
        Sharing {
            enforcement: vec![Level::Driver, Level::Mps],
            shares_per_gpu: MOST_SHARES,
            mps_control: None,
            mps_overhead: OVERHEAD_MIB,
        }
    }
}

impl Sharing {
    /// Checks the rules beyond their syntax.
    ///
    /// # Errors
    /// A list without a level or with one twice, and a number of shares that no GPU takes.
    pub fn check(&self) -> Result<()> {
        let all = &self.enforcement;
        if all.is_empty() {
            return Err(Error::new("sharing.enforcement is empty")
                .hint("forbid shares with policy.kinds = [\"slice\", \"gpu\"]"));
        }
        if let Some(twice) = (1..all.len()).find(|n| all[..*n].contains(&all[*n])) {
            let why = format!("sharing.enforcement names {} twice", all[twice]);
            return Err(Error::new(why));
        }
        let (overhead, shares) = (self.mps_overhead, self.shares_per_gpu);
        if overhead > MOST_OVERHEAD_MIB {
            return Err(Error::new(format!(
                "sharing.mps_overhead = {overhead} is not a number of MiB from 0 to {MOST_OVERHEAD_MIB}"
            )));
        }
        if !(1..=MOST_SHARES).contains(&shares) {
            return Err(Error::new(format!(
                "sharing.shares_per_gpu = {shares} is not a number from 1 to {MOST_SHARES}"
            )));
        }
        Ok(())
    }
}

/// The file of the default ledger.
const EVENTS_FILE: &str = "/var/log/runmig/events.jsonl";
/// The name of the file beside any other ledger.
const EVENTS_NAME: &str = "events.jsonl";

/// The history of creates, leases and instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// The absolute path of the file; empty for no history. None: [`Config::events_file`] has the default.
    pub file: Option<PathBuf>,
}

impl Events {
    /// Returns the file that the configuration names. None without one, or for no history.
    fn named(&self) -> Option<&Path> {
        let file = self.file.as_deref();
        file.filter(|file| !file.as_os_str().is_empty())
    }
}

/// The layout of this machine. `migctl apply` and `migctl assert` read it where no option names a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Layout {
    /// The absolute path of the file with layouts. None: this machine has no layout.
    pub file: Option<PathBuf>,
    /// The name of the configuration in the file. None: the file has one alone.
    pub config: Option<String>,
}

impl Layout {
    fn check(&self) -> Result<()> {
        match (&self.file, &self.config) {
            (None, Some(name)) => {
                let what = format!("layout.config = {name:?} names a configuration of no file");
                Err(Error::new(what).hint("set layout.file"))
            }
            _ => Ok(()),
        }
    }
}

/// The signs of the driver by which a GPU counts as sick: all that it does not ignore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// Signs that do not count.
    pub ignore: Vec<SignKind>,
    /// The uncorrectable memory errors since the driver was loaded that a GPU may have.
    pub max_uncorrectable_errors: u64,
}

impl Health {
    /// Says whether a sign counts.
    pub(crate) fn counts(&self, sign: &Sign) -> bool {
        let is_bounded = sign.kind == SignKind::UncorrectableErrors
            && sign.amount <= self.max_uncorrectable_errors;
        !is_bounded && !self.ignore.contains(&sign.kind)
    }
}

/// The shortest time between two signals. dcgm-exporter drops a signal that comes within 2 s of the one before.
const SHORTEST_RELOAD: Duration = Duration::from_secs(5);
/// The longest one: a call that waits for its turn must end within the time of its unit.
const LONGEST_RELOAD: Duration = Duration::from_secs(60);

/// The work beside dcgm-exporter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dcgm {
    /// The shortest time between two reloads.
    #[serde(deserialize_with = "duration")]
    pub reload_every: Duration,
}

impl Default for Dcgm {
    fn default() -> Self {
        Dcgm {
            reload_every: Duration::from_secs(30),
        }
    }
}

impl Dcgm {
    fn check(&self) -> Result<()> {
        if (SHORTEST_RELOAD..=LONGEST_RELOAD).contains(&self.reload_every) {
            return Ok(());
        }
        Err(Error::new("dcgm.reload_every is not between 5s and 1m")
            .hint("set 30s: dcgm-exporter drops signals that come too soon"))
    }
}

impl Config {
    /// Returns the file of the events; none without a history. A ledger of its own has a history of its own: the default
    /// for another `state_dir` lies in it.
    pub fn events_file(&self) -> Option<PathBuf> {
        match &self.events.file {
            Some(_) => self.events.named().map(Path::to_owned),
            None if self.state_dir == Config::default().state_dir => Some(EVENTS_FILE.into()),
            None => Some(self.state_dir.join(EVENTS_NAME)),
        }
    }

    /// Returns the names of GPUs in rules.
    pub fn named_gpus(&self) -> impl Iterator<Item = &GpuName> {
        let reserved = self.policy.reserve.iter().flat_map(|rule| &rule.gpus);
        { self.policy.exclude_gpus.iter() }
            .chain(reserved)
            .chain(self.kubernetes.gpus.names())
    }

    /// Returns the names of GPUs in rules that fit none of these GPUs.
    pub fn absent_gpus(&self, gpus: &[Gpu]) -> Vec<String> {
        let is_absent = |name: &&GpuName| !gpus.iter().any(|gpu| name.is(gpu));
        let absent = self.named_gpus().filter(is_absent);
        absent.map(ToString::to_string).collect()
    }

    /// Returns the UUIDs of the GPUs that are not published to Kubernetes, each with the rule in words. A claim has no
    /// pod yet, so a GPU that is reserved for some containers is for no claim.
    pub fn unpublished(&self, gpus: &[Gpu]) -> Vec<(GpuUuid, String)> {
        let policy = Policy {
            apart: None,
            ..self.policy.clone()
        };
        let mut rules = policy.excluded(gpus, &Subject::default());
        for gpu in gpus.iter().filter(|gpu| !self.kubernetes.gpus.has(gpu)) {
            if rules.iter().all(|(uuid, _)| *uuid != gpu.uuid) {
                let why = "kubernetes.gpus does not name it".to_owned();
                rules.push((gpu.uuid.clone(), why));
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MigMode;

    #[test]
    fn empty_file_means_defaults() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn reads_every_key() {
        let config = Config::parse(
            "runtime = \"/usr/sbin/runc\"\nstate_dir = \"/run/r\"\nwait = \"30s\"\n\
             lock_timeout = \"1m 5s\"\ndriver_files = \"nvidia-runtime\"\n\
             cdi_dirs = [\"/x/cdi\"]\ncdi_kinds = [\"x.com/gpu\"]\ndriver_hooks_skip = [\"chmod\"]\n\
             keep_idle = \"5m\"\nadopt = true\n\
             [driver]\nlibrary = \"/x/libnvidia-ml.so.1\"\nroot = \"/x\"\n\
             [sharing]\nenforcement = [\"none\"]\nshares_per_gpu = 4\n\
             mps_control = \"/x/control\"\nmps_overhead = 100\n\
             [layout]\nfile = \"/x\"\nconfig = \"day\"\n[dcgm]\nreload_every = \"1m\"\n\
             [kubernetes]\nkubelet_dir = \"/x/kubelet\"\nevict = true\ngpus = [1]\nlocal = \"apart\"\n",
        )
        .unwrap();
        assert_eq!(config.wait, Duration::from_secs(30));
        assert_eq!(config.lock_timeout, Duration::from_secs(65));
        assert_eq!(config.driver_files, DriverFiles::NvidiaRuntime);
        assert_eq!(config.cdi_dirs, [Path::new("/x/cdi")]);
        assert_eq!(config.cdi_kinds, ["x.com/gpu"]);
        assert_eq!(config.driver_hooks_skip, ["chmod"]);
        assert_eq!(config.keep_idle, Duration::from_secs(300));
        assert!(config.adopt);
        assert_eq!(config.driver.root, Path::new("/x"));
        assert_eq!(config.sharing.enforcement, [Level::None]);
        assert_eq!(config.sharing.shares_per_gpu, 4);
        assert_eq!(config.sharing.mps_control, Some("/x/control".into()));
        assert_eq!(config.sharing.mps_overhead, 100);
        assert_eq!(config.layout.config.as_deref(), Some("day"));
        assert_eq!(config.dcgm.reload_every, Duration::from_secs(60));
        assert_eq!(config.kubernetes.kubelet_dir, Path::new("/x/kubelet"));
        assert!(config.kubernetes.evict);
        assert_eq!(config.kubernetes.local, Local::Apart);
        assert_eq!(config.policy.apart.as_ref(), Some(&config.kubernetes.gpus));
    }

    #[test]
    fn names_what_is_wrong() {
        for (text, words) in rows! {
            "\nstatedir = \"/x\"" => "line 2: unknown key statedir; hint: write state_dir";
            "runtim = \"/x\"" => "line 1: unknown key runtim; hint: write runtime";
            "[driver]\nrot = \"/\"" => "line 2: unknown key rot; hint: write root";
            "sharing.enforcment = []" => "line 1: unknown key enforcment; hint: write enforcement";
            "banana = 1" => "line 1: unknown key banana; hint: see docs/configuration.md for the keys";
            "wait = 30" => "line 1: wait = 30 has no unit; hint: write \"30s\"";
            "\nkeep_idle = 5" => "line 2: keep_idle = 5 has no unit; hint: write \"5s\"";
            "wait = \"30\"" => "\"30\" has no unit; hint: write it as \"30s\"";
            "wait = \"soon\"" => "line 1: \"soon\" is not a duration; hint: write it as \"30s\"";
            "runtime = /usr/sbin/runc" =>
                "line 1: runtime = /usr/sbin/runc is not in quotes; hint: write \"/usr/sbin/runc\"";
            "[driver]\nroot = /run/nvidia/driver # here" => "line 2: root = /run/nvidia/driver is not in quotes";
            "wait = true" => "line 1: wait = true is not a duration; hint: write it as \"30s\"";
            "adopt = yes" => "line 1: adopt = yes is neither true nor false; hint: write true or false";
            "driver_files = none" => "line 1: driver_files = none is not in quotes; hint: write \"none\"";
            "driver_hooks = []" => "hint: write driver_hooks_skip";
            "cdi_kinds = []" => "cdi_kinds is empty; hint: leave it out";
            "[policy.limit]\nslices = 1" => "line 1: [policy.limit] is not a list; hint: write [[policy.limit]]";
            "policy.profiles = [\"1g.10GB\"]" =>
                "policy.profiles: unknown profile \"1g.10GB\"; hint: write \"1g.10gb\"";
            "adopt = \"yes\"" => "line 1: adopt = \"yes\" is neither true nor false; hint: write true or false";
            "state_dir = 7" => "line 1: state_dir = 7 is not in quotes; hint: write \"7\"";
            "[sharing]\nshares_per_gpu = \"4\"" => "line 2: shares_per_gpu = \"4\" is not a whole number";
            "sharing.shares_per_gpu = -4" => "= -4 is not a whole number that fits";
            "sharing.enforcement = \"mps\"" => "= \"mps\" is not a list; hint: write [\"mps\"]";
            "driver = \"/x\"" => "line 1: driver = \"/x\" is not a section; hint: write [driver]";
            "driver_files = \"non\"" => "unknown value \"non\"; hint: write \"none\"";
            "state_dir = \"/\"" => "state_dir = \"/\" is not a folder of runmig's own; hint: leave it out";
            "state_dir = \"//.\"" => "is not a folder of runmig's own";
            "state_dir = \"/etc\"" => "is not a folder of runmig's own";
            "data_dir = \"/var/lib/\"" => "data_dir = \"/var/lib/\" is not a folder of runmig's own";
            "adopt = True" =>
                "line 1: adopt = True is neither true nor false; hint: write true or false, or a text in quotes";
            "wait = \"500000000000years\"" => "is more than a day";
            "runtime = \"runc\"" => "runtime = \"runc\" is not an absolute path";
            "cdi_dirs = [\"/x\", \"cdi\"]" => "cdi_dirs = \"cdi\" is not an absolute";
            "cdi_kinds = [\"nvidia.com\"]" => "is not a kind of CDI";
            "cdi_kinds = [\"/gpu\"]" => "is not a kind of CDI";
            "cdi_kinds = [\"\"]" => "is not a kind of CDI";
            "[driver]\nlibrary = \"lib/x.so\"" => "neither a soname nor";
            "sharing.enforcement = [\"hard\"]" => "unknown value \"hard\"; hint: write one of driver, mps, none";
            "sharing.enforcement = []" => "sharing.enforcement is empty";
            "sharing.enforcement = [\"none\", \"none\"]" => "names none twice";
            "sharing.mps_overhead = 5000" => "is not a number of MiB from 0 to 4096";
            "sharing.mps_control = \"c\"" => "is not an absolute path";
            "sharing.shares_per_gpu = 49" => "is not a number from 1 to 48";
            "kubernetes.kubelet_dir = \"k\"" => "is not an absolute path";
            "kubernetes.gpus = []" => "kubernetes.gpus names no GPU";
            "kubernetes.gpus = [\"GPU-1\"]" => "\"GPU-1\" is not a GPU's UUID";
            "kubernetes.gpus = \"some\"" => "the GPUs are \"all\" or a list";
            "kubernetes.local = \"own\"" => "unknown value \"own\"; hint: write one of share, apart";
            "layout.config = \"day\"" =>
                "layout.config = \"day\" names a configuration of no file; hint: set layout.file";
            "layout.file = \"layouts.yaml\"" => "layout.file = \"layouts.yaml\" is not an absolute path";
            "events.file = \"x\"" => "events.file = \"x\" is not an absolute path";
            "health.ignore = [\"fabric-dwn\"]" => "hint: write \"fabric-down\"";
            "dcgm.reload_every = \"4s\"" => "dcgm.reload_every is not between 5s and 1m";
            "dcgm.reload_every = \"61s\"" => "dcgm.reload_every is not between 5s and 1m";
        } {
            let line = Config::parse(text).unwrap_err().line();
            assert!(line.contains(words), "{text}: {line}");
        }
    }

    #[test]
    fn ledger_has_its_own_history() {
        let file = |text: &str| Config::parse(text).unwrap().events_file();
        assert_eq!(file(""), Some(EVENTS_FILE.into()));
        assert_eq!(file("state_dir = \"/r\""), Some("/r/events.jsonl".into()));
        let own = "state_dir = \"/r\"\n[events]\nfile = \"/x\"";
        assert_eq!(file(own), Some("/x".into()));
        assert_eq!(file("[events]\nfile = \"\""), None);
    }

    #[test]
    fn ignores_what_it_names_alone() {
        let counts = |text: &str, kind, amount| {
            let health = Config::parse(text).unwrap().health;
            health.counts(&Sign { kind, amount })
        };
        let errors = SignKind::UncorrectableErrors;
        assert!(counts("", errors, 1));
        assert!(!counts("health.max_uncorrectable_errors = 3", errors, 3));
        assert!(counts("health.max_uncorrectable_errors = 3", errors, 4));
        let ignored = "health.ignore = [\"fabric-down\", \"lost\"]";
        assert!(!counts(ignored, SignKind::FabricDown, 1));
        assert!(!counts(ignored, SignKind::Lost, 1));
        assert!(counts(ignored, SignKind::RecoveryAction, 1));
    }

    #[test]
    fn program_needs_the_file_that_it_names() {
        let missing = Path::new("/etc/runmig/not/there.toml");
        assert!(Config::named(Some(missing)).is_err());
        let of_link = Config::for_program(Some(OsStr::new("/usr/bin/runmig-nowhere")));
        assert!(of_link.is_err());
        let is_set = std::env::var_os("RUNMIG_CONFIG").is_some();
        if !is_set && is_absent(Path::new("/etc/runmig/config.toml")) {
            assert_eq!(Config::for_program(None).unwrap(), Config::default());
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("runmig.toml");
        let line = |end: &str| format!("adopt = true\n#{end}");
        std::fs::write(&file, line(&"x".repeat(60_000))).unwrap();
        assert!(Config::named(Some(&file)).unwrap().adopt);
        std::fs::write(&file, line(&"x".repeat(65_536))).unwrap();
        assert!(Config::named(Some(&file)).is_err());
    }

    #[test]
    fn publishes_the_gpus_that_no_rule_keeps() {
        let config = Config::parse(
            "[policy]\nexclude_gpus = [0]\n\
             [[policy.reserve]]\ngpus = [1, 8]\nnamespace = \"a\"\n\
             [kubernetes]\ngpus = [0, 2, 9]\nlocal = \"apart\"",
        )
        .unwrap();
        let gpu = |index| Gpu {
            index,
            uuid: GpuUuid::new(format!("GPU-{index}")),
            mig: MigMode::Enabled,
            ..Gpu::default()
        };
        let gpus = [0, 1, 2, 3].map(gpu);
        let named: Vec<String> = config.named_gpus().map(ToString::to_string).collect();
        assert_eq!(named, ["0", "1", "8", "0", "2", "9"]);
        assert_eq!(config.absent_gpus(&gpus), ["8", "9"]);
        let whys = rows! {
            "GPU-0" => "excluded by policy.exclude_gpus";
            "GPU-1" => "reserved for namespace a by [[policy.reserve]] 1";
            "GPU-3" => "kubernetes.gpus does not name it";
        };
        let whys = whys.map(|(gpu, why)| (GpuUuid::from(gpu), why.to_owned()));
        assert_eq!(config.unpublished(&gpus), whys);
    }
}
