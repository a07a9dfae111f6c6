//! Device nodes and their numbers, read from the driver root: `proc/devices`, `proc/driver/nvidia`,
//! `proc/driver/nvidia-caps/mig-minors`, `sys/class/drm`. Majors change from boot to boot, so what
//! is not there is an error that names the file; nothing is guessed.

use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::model::{DeviceNode, NvidiaNumbers};
use crate::paths;
use crate::paths::inside;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The driver's ABI: these minors of its own major are no GPUs.
const CTL_MINOR: u32 = 255;
const MODESET_MINOR: u32 = 254;
/// The mode that nvidia-modprobe gives public nodes. The device cgroup decides which containers can open them.
const OPEN_MODE: u32 = 0o666;

const DEVICES_LIMIT: u64 = 256 * 1024;
/// The table is static, 4322 lines of some 25 bytes.
const MINORS_LIMIT: u64 = 1024 * 1024;
const ACCESS_LIMIT: u64 = 4096;
/// The driver's table of capabilities, which has every instance that a GPU could have.
const TABLE: &str = "proc/driver/nvidia-caps/mig-minors";
const GPU_INSTANCES: u32 = 15;
const COMPUTE_INSTANCES: u32 = 8;

/// The majors of one boot, and what they make.
#[derive(Debug)]
pub struct Nodes {
    root: PathBuf,
    nvidia_major: u32,
    uvm_major: u32,
    caps_major: u32,
    numbers: NvidiaNumbers,
    drm: Vec<DrmNode>,
}

/// A DRM node of an NVIDIA GPU: a card or a render node.
#[derive(Debug)]
struct DrmNode {
    number: (u32, u32),
    /// The PCI address of its GPU, such as `0000:07:00.0`; empty if unknown.
    address: String,
}

impl Nodes {
    /// `root` is the driver root of the configuration: `/`, or where its `proc/` and `dev/` are.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join("proc/devices");
        let majors = character_majors(&read_text(&path, DEVICES_LIMIT)?);
        let major = |names: &[&str], remedy: &str| {
            majors
                .iter()
                .find(|(_, name)| names.contains(&name.as_str()))
                .map(|(major, _)| *major)
                .ok_or_else(|| {
                    let (driver, path) = (names[0], path.display());
                    Error::new(format!(
                        "cannot find the driver {driver}: no line {driver} in {path}"
                    ))
                    .hint(remedy)
                })
        };
        const LOAD: &str = "load the NVIDIA kernel module: modprobe nvidia";
        const LOAD_UVM: &str =
            "load the module nvidia-uvm and make its nodes: nvidia-modprobe -u -c 0";
        let nvidia = majors.iter().filter(|(_, name)| name.starts_with("nvidia"));
        let mut all: Vec<u32> = nvidia.map(|(major, _)| *major).collect();
        all.sort_unstable();
        all.dedup();
        let drm = drm_nodes(&root.join("sys/class/drm"))?;
        Ok(Nodes {
            root: root.to_owned(),
            // The name of the driver's major differs by driver branch.
            nvidia_major: major(&["nvidia", "nvidia-frontend", "nvidiactl"], LOAD)?,
            uvm_major: major(&["nvidia-uvm"], LOAD_UVM)?,
            caps_major: major(&["nvidia-caps"], LOAD)?,
            numbers: NvidiaNumbers {
                majors: all,
                drm: drm.iter().map(|node| node.number).collect(),
            },
            drm,
        })
    }

    /// Returns whether the driver is loaded, and its module for unified memory is not.
    pub fn lacks_uvm(root: &Path) -> bool {
        let text = read_text(&root.join("proc/devices"), DEVICES_LIMIT);
        let majors = text.map_or(Vec::new(), |text| character_majors(&text));
        let has = |driver: &str| majors.iter().any(|(_, name)| name.starts_with(driver));
        has("nvidia") && !has("nvidia-uvm")
    }

    /// Returns the device numbers of NVIDIA's drivers.
    pub fn numbers(&self) -> &NvidiaNumbers {
        &self.numbers
    }

    /// The nodes that every container needs to run CUDA, whatever its slice.
    pub fn required_nodes(&self) -> [DeviceNode; 2] {
        [
            node("/dev/nvidiactl", self.nvidia_major, CTL_MINOR, OPEN_MODE),
            node("/dev/nvidia-uvm", self.uvm_major, 0, OPEN_MODE),
        ]
    }

    /// The nodes that profilers and displays use, of those that the host has. A server without a
    /// display has no nvidia-modeset module, and a node made without one is dead.
    pub fn optional_nodes(&self) -> Vec<DeviceNode> {
        [
            ("/dev/nvidia-uvm-tools", self.uvm_major, 1),
            ("/dev/nvidia-modeset", self.nvidia_major, MODESET_MINOR),
        ]
        .into_iter()
        .map(|(path, major, minor)| node(path, major, minor, OPEN_MODE))
        .filter(|node| is_on_host(&self.root, node))
        .collect()
    }

    /// The GPU that the slice lies on.
    pub fn gpu_node(&self, minor: u32) -> DeviceNode {
        node(
            format!("/dev/nvidia{minor}"),
            self.nvidia_major,
            minor,
            OPEN_MODE,
        )
    }

    /// Returns the numbers of a GPU's own DRM nodes; none if sysfs does not tell which they are.
    pub fn drm_of(&self, gpu: u32) -> Vec<(u32, u32)> {
        let gpus = fs::read_dir(self.root.join("proc/driver/nvidia/gpus"));
        let addresses = gpus.into_iter().flatten().flatten().filter(|entry| {
            let path = entry.path().join("information");
            let text = read_text(&path, ACCESS_LIMIT);
            text.and_then(|text| field(&text, "Device Minor", &path))
                .is_ok_and(|minor| minor == gpu)
        });
        let addresses: Vec<_> = addresses.map(|entry| entry.file_name()).collect();
        let is_own = |node: &&DrmNode| {
            { addresses.iter() }.any(|own| own.eq_ignore_ascii_case(&node.address))
        };
        self.drm
            .iter()
            .filter(is_own)
            .map(|node| node.number)
            .collect()
    }

    /// The node that opens a right of the driver as a whole: `config` makes instances, `monitor` watches all of them.
    pub fn mig_node(&self, right: &str) -> Result<DeviceNode> {
        let folder = self.root.join("proc/driver/nvidia/capabilities/mig");
        self.capability(&folder.join(right))
    }

    /// Returns the node of a right, by its file in `proc/`.
    fn capability(&self, access: &Path) -> Result<DeviceNode> {
        let text = read_text(access, ACCESS_LIMIT)?;
        let minor = field(&text, "DeviceFileMinor", access)?;
        let mode = field(&text, "DeviceFileMode", access)?;
        if mode > 0o777 {
            return Err(Error::new(format!(
                "DeviceFileMode {mode} in {} is not a file mode",
                access.display()
            )));
        }
        let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
        Ok(node(path, self.caps_major, minor, mode))
    }

    /// Fails if the driver's table of capabilities lacks one of a GPU. No slice of that GPU could be opened.
    pub fn check_table(&self, gpu: u32) -> Result<()> {
        let path = self.root.join(TABLE);
        let table = read_text(&path, MINORS_LIMIT).map_err(|e| e.hint(RELOAD))?;
        let names: HashSet<&str> = { table.lines() }
            .filter_map(|line| Some(line.split_once(' ')?.0))
            .collect();
        for gi in 0..GPU_INSTANCES {
            let of_ci = (0..COMPUTE_INSTANCES).map(|ci| format!("gpu{gpu}/gi{gi}/ci{ci}/access"));
            let mut wanted = of_ci.chain([format!("gpu{gpu}/gi{gi}/access")]);
            if let Some(missing) = wanted.find(|name| !names.contains(name.as_str())) {
                return Err(no_line(&path, &missing));
            }
        }
        Ok(())
    }

    /// The two nodes that open a slice: its GPU instance's and its compute instance's.
    pub fn capability_nodes(&self, gpu: u32, gi: u32, ci: u32) -> Result<[DeviceNode; 2]> {
        let table = self.root.join(TABLE);
        let files = [format!("gi{gi}/access"), format!("gi{gi}/ci{ci}/access")];
        let names = files.each_ref().map(|file| format!("gpu{gpu}/{file}"));
        let listed = listed(&table, &names).map_err(|e| e.hint(RELOAD))?;
        let folder = format!("proc/driver/nvidia/capabilities/gpu{gpu}/mig");
        let folder = self.root.join(folder);
        let one = |n: usize| {
            let (name, access) = (&names[n], folder.join(&files[n]));
            let node = self.capability(&access)?;
            let listed = listed[n].ok_or_else(|| no_line(&table, name))?;
            if listed != node.minor {
                return Err(Error::new(format!(
                    "{} says capability minor {}, {} says {listed} for {name}",
                    access.display(),
                    node.minor,
                    table.display()
                )));
            }
            Ok(node)
        };
        Ok([one(0)?, one(1)?])
    }
}

/// Returns the minors of these names in the driver's table. It has a line for each instance that any GPU could have, so it is
/// read no further than needed.
fn listed(table: &Path, names: &[String; 2]) -> Result<[Option<u32>; 2]> {
    let what = || format!("read {}", table.display());
    let opened = files::open(table, Links::Follow).context(what)?;
    let mut lines = BufReader::new(files::limited(opened.file, MINORS_LIMIT));
    let (mut listed, mut line) = ([None; 2], String::new());
    while listed.contains(&None) && lines.read_line(&mut line).context(what)? > 0 {
        if let Some((name, minor)) = line.split_once(' ')
            && let Some(n) = names.iter().position(|wanted| wanted == name)
        {
            listed[n] = listed[n].or(minor.trim().parse().ok());
        }
        line.clear();
    }
    Ok(listed)
}

/// Returns the files that a process has open if it holds a GPU instance: its capability files and
/// the numbers of its capability nodes. This is for a look, so it omits unreadable ones.
pub(crate) fn capabilities_of(root: &Path, gpu: u32, gi: u32) -> (Vec<PathBuf>, Vec<(u32, u32)>) {
    let instance = root.join(format!(
        "proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{gi}"
    ));
    let mut files = vec![instance.join("access")];
    for entry in fs::read_dir(&instance).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ci") {
            files.push(entry.path().join("access"));
        }
    }
    let prefix = format!("gpu{gpu}/gi{gi}/");
    let table = read_text(&root.join(TABLE), MINORS_LIMIT);
    let major = Nodes::read(root).map(|nodes| nodes.caps_major);
    let (Ok(table), Ok(major)) = (table, major) else {
        return (files, Vec::new());
    };
    let minors = table
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix)?.split_once(' ')?.1.parse().ok());
    (files, minors.map(|minor| (major, minor)).collect())
}

const RELOAD: &str = "load the module nvidia again, or reboot: the driver writes this table";

fn no_line(table: &Path, name: &str) -> Error {
    Error::new(format!("{} has no line {name}", table.display())).hint(RELOAD)
}

pub(super) fn node(path: impl Into<PathBuf>, major: u32, minor: u32, mode: u32) -> DeviceNode {
    DeviceNode {
        path: path.into(),
        major,
        minor,
        mode,
    }
}

/// `(major, name)` of the character devices, in the file's order.
pub(crate) fn character_majors(text: &str) -> Vec<(u32, String)> {
    text.lines()
        .skip_while(|line| !line.starts_with("Character devices"))
        .take_while(|line| !line.starts_with("Block devices"))
        .filter_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            Some((major.parse().ok()?, name.trim().to_owned()))
        })
        .collect()
}

/// Returns the DRM nodes whose PCI device is NVIDIA's. A host without DRM has none.
fn drm_nodes(dir: &Path) -> Result<Vec<DrmNode>> {
    let mut found = Vec::new();
    for entry in paths::list(dir).context(|| format!("read {}", dir.display()))? {
        // Connectors (card0-DP-1) and virtual devices have no device/vendor or no dev.
        let read = |name: &str| read_text(&entry.join(name), ACCESS_LIMIT).ok();
        if read("device/vendor").is_none_or(|vendor| vendor.trim() != "0x10de") {
            continue;
        }
        let number = read("dev").and_then(|dev| {
            let (major, minor) = dev.trim().split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        let address = || {
            let link = fs::read_link(entry.join("device")).ok();
            let link = link.as_deref().and_then(Path::file_name);
            let uevent = read("device/uevent").unwrap_or_default();
            let mut lines = uevent.lines();
            let slot = lines.find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
            slot.or(link.and_then(OsStr::to_str)).map(str::to_owned)
        };
        found.extend(number.map(|number| DrmNode {
            number,
            address: address().unwrap_or_default(),
        }));
    }
    found.sort_unstable_by_key(|node| node.number);
    Ok(found)
}

/// `DeviceFileMinor: 12`: a decimal number on a line of its own.
pub(crate) fn field(text: &str, name: &str, path: &Path) -> Result<u32> {
    let line = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .ok_or_else(|| Error::new(format!("{} has no line {name}", path.display())))?;
    line.1
        .trim()
        .parse()
        .context(|| format!("read {name} in {}", path.display()))
}

fn read_text(path: &Path, limit: u64) -> Result<String> {
    files::read_text(path, limit).context(|| format!("read {}", path.display()))
}

/// Whether the host has a node below the driver root: a character device with its numbers.
pub fn is_on_host(root: &Path, node: &DeviceNode) -> bool {
    fs::metadata(inside(root, &node.path)).is_ok_and(|meta| {
        let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
        meta.file_type().is_char_device() && (major, minor) == (node.major, node.minor)
    })
}

/// In a user namespace runc binds the host's nodes instead of making them, and takes over silently
/// whatever it finds: so they must be there, with these numbers, open to whom they should be.
pub fn check_on_host(nodes: &[DeviceNode]) -> Result<()> {
    nodes.iter().try_for_each(check_one)
}

fn check_one(node: &DeviceNode) -> Result<()> {
    let path = node.path.display();
    let wanted = format!("{}:{} mode {:04o}", node.major, node.minor, node.mode);
    let hint = format!(
        "in a user namespace the host's node is used; make it: nvidia-modprobe -u -c 0, or mknod -m {:04o} {path} c {} {}",
        node.mode, node.major, node.minor
    );
    let meta = fs::metadata(&node.path).map_err(|e| {
        Error::new(format!(
            "cannot find device node {path} ({wanted}) on the host"
        ))
        .hint(&hint)
        .caused_by(e)
    })?;
    let mode = meta.mode() & 0o777;
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    let found = if !meta.file_type().is_char_device() {
        "not a character device".to_owned()
    } else if (major, minor) != (node.major, node.minor) || mode & node.mode != node.mode {
        format!("{major}:{minor} mode {mode:04o}")
    } else {
        return Ok(());
    };
    Err(Error::new(format!(
        "device node {path} on the host is {found}, not {wanted}"
    ))
    .hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::device_nodes::node;
    use tempfile::TempDir;

    const DEVICES: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n226 drm\n507 nvidia-uvm\n511 nvidia-caps\n\nBlock devices:\n  8 sd\n509 nvidia-caps\n";

    const MIG: &str = "proc/driver/nvidia/capabilities/gpu0/mig/gi1";
    const DRM: &str = "sys/class/drm";

    fn write(root: &TempDir, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn write_drm(root: &TempDir, name: &str, number: u32, vendor: &str) {
        write(root, format!("{DRM}/{name}/dev"), format!("226:{number}\n"));
        write(root, format!("{DRM}/{name}/device/vendor"), vendor);
    }

    fn machine() -> TempDir {
        let root = TempDir::new().unwrap();
        write(&root, "proc/devices", DEVICES);
        let table = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n";
        write(&root, TABLE, table);
        for (file, minor) in [("access", 12), ("ci0/access", 13)] {
            let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\n");
            write(&root, format!("{MIG}/{file}"), text);
        }
        write_drm(&root, "card1", 1, "0x10de\n");
        write_drm(&root, "card0", 0, "0x8086\n");
        write(&root, format!("{DRM}/version"), "drm 1.1.0\n");
        root
    }

    fn lines(nodes: &[DeviceNode]) -> Vec<String> {
        nodes
            .iter()
            .map(|n| format!("{} {}:{} {:o}", n.path.display(), n.major, n.minor, n.mode))
            .collect()
    }

    #[test]
    fn reads_numbers_below_driver_root() {
        let root = machine();
        let nodes = Nodes::read(root.path()).unwrap();
        assert_eq!(nodes.numbers().majors, [195, 507, 511]);
        assert_eq!(nodes.numbers().drm, [(226, 1)]);
        assert_eq!(
            lines(&nodes.required_nodes()),
            ["/dev/nvidiactl 195:255 666", "/dev/nvidia-uvm 507:0 666"]
        );
        assert_eq!(lines(&nodes.optional_nodes()), [""; 0]);
        assert_eq!(lines(&[nodes.gpu_node(3)]), ["/dev/nvidia3 195:3 666"]);
        assert_eq!(
            lines(&nodes.capability_nodes(0, 1, 0).unwrap()),
            [
                "/dev/nvidia-caps/nvidia-cap12 511:12 444",
                "/dev/nvidia-caps/nvidia-cap13 511:13 444"
            ]
        );
    }

    /// Two GPUs, each with a card and a render node, one behind a link as sysfs has it.
    #[test]
    fn finds_drm_nodes_of_gpu() {
        let root = machine();
        for (minor, address) in [(0, "0000:07:00.0"), (3, "0000:3B:00.0")] {
            let file = format!("proc/driver/nvidia/gpus/{address}/information");
            let text = format!("Model: \t\t A16\nDevice Minor: \t {minor}\n");
            write(&root, file, text);
        }
        for (name, number) in [("card1", 1), ("renderD129", 129)] {
            write_drm(&root, name, number, "0x10de\n");
            let text = "DRIVER=nvidia\nPCI_SLOT_NAME=0000:07:00.0\n";
            write(&root, format!("{DRM}/{name}/device/uevent"), text);
        }
        write(&root, "sys/devices/0000:3b:00.0/vendor", "0x10de\n");
        for (name, number) in [("card2", 2), ("renderD130", 130)] {
            write(
                &root,
                format!("{DRM}/{name}/dev"),
                format!("226:{number}\n"),
            );
            let link = root.path().join(DRM).join(name).join("device");
            std::os::unix::fs::symlink("../../../devices/0000:3b:00.0", link).unwrap();
        }
        let nodes = Nodes::read(root.path()).unwrap();
        assert_eq!(nodes.drm_of(0), [(226, 1), (226, 129)]);
        assert_eq!(nodes.drm_of(3), [(226, 2), (226, 130)]);
        assert_eq!(nodes.drm_of(1), []);
        assert_eq!(nodes.numbers().drm.len(), 4);
    }

    fn refused(root: &TempDir) -> String {
        Nodes::read(root.path())
            .and_then(|nodes| nodes.capability_nodes(0, 1, 0))
            .unwrap_err()
            .line()
            .replace(root.path().to_str().unwrap(), "")
    }

    #[test]
    fn names_what_is_absent() {
        let root = machine();
        write(&root, TABLE, "config 1\n");
        assert_eq!(
            refused(&root),
            "/proc/driver/nvidia-caps/mig-minors has no line gpu0/gi1/access; hint: load the module nvidia again, or reboot: the driver writes this table"
        );
        fs::remove_file(root.path().join(TABLE)).unwrap();
        assert_eq!(
            refused(&root),
            "cannot read /proc/driver/nvidia-caps/mig-minors: No such file or directory (os error 2); hint: load the module nvidia again, or reboot: the driver writes this table"
        );

        let root = machine();
        write(&root, "proc/devices", "Character devices:\n195 nvidia\n");
        assert_eq!(
            refused(&root),
            "cannot find the driver nvidia-uvm: no line nvidia-uvm in /proc/devices; hint: load the module nvidia-uvm and make its nodes: nvidia-modprobe -u -c 0"
        );

        let root = machine();
        let access = format!("{MIG}/access");
        write(&root, &access, "DeviceFileMode: 292\n");
        let missing = format!("/{access} has no line DeviceFileMinor");
        assert_eq!(refused(&root), missing);
        write(&root, &access, "DeviceFileMinor: x\nDeviceFileMode: 292\n");
        assert_eq!(
            refused(&root),
            format!("cannot read DeviceFileMinor in /{access}: invalid digit found in string")
        );
    }

    #[test]
    fn refuses_sources_that_disagree() {
        let root = machine();
        write(&root, TABLE, "gpu0/gi1/access 21\ngpu0/gi1/ci0/access 13\n");
        assert_eq!(
            refused(&root),
            "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access says capability minor 12, /proc/driver/nvidia-caps/mig-minors says 21 for gpu0/gi1/access"
        );
    }

    #[test]
    fn finds_node_with_its_numbers() {
        let root = tempfile::TempDir::new().unwrap();
        let path = root.path().join("dev/nvidia-uvm-tools");
        let wanted = node("/dev/nvidia-uvm-tools", 507, 1, 0o666);
        assert!(!is_on_host(root.path(), &wanted));
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(&path, "").unwrap();
        assert!(!is_on_host(root.path(), &wanted));
        // A node that an earlier boot left, whose major is another driver's by now.
        for (major, expected) in [("506", false), ("507", true)] {
            fs::remove_file(&path).unwrap();
            let mut mknod = std::process::Command::new("mknod");
            let made = mknod.arg(&path).args(["c", major, "1"]).status();
            if !made.unwrap().success() {
                return; // for root alone
            }
            assert_eq!(is_on_host(root.path(), &wanted), expected);
        }
    }

    #[test]
    fn refuses_other_node_on_host() {
        let null = |minor, mode| node("/dev/null", 1, minor, mode);
        check_on_host(&[null(3, 0o666)]).unwrap();
        let wrong = check_on_host(&[null(5, 0o666)]).unwrap_err().line();
        assert!(
            wrong.starts_with(
                "device node /dev/null on the host is 1:3 mode 0666, not 1:5 mode 0666; hint: "
            ),
            "{wrong}"
        );
        let absent = node("/dev/nvidia-caps/nvidia-cap99999", 511, 99999, 0o444);
        let line = check_on_host(&[absent]).unwrap_err().line();
        assert!(
            line.contains("No such file") && line.contains("nvidia-cap99999 c 511 99999"),
            "{line}"
        );
        let file = node("/proc/self/stat", 1, 3, 0o444);
        let line = check_on_host(&[file]).unwrap_err().line();
        assert!(line.contains("is not a character device"), "{line}");
    }

    #[test]
    fn knows_what_is_open_in_a_process_that_holds_an_instance() {
        let root = machine();
        let (files, numbers) = capabilities_of(root.path(), 0, 1);
        let all = ["access", "ci0/access"].map(|file| root.path().join(MIG).join(file));
        assert_eq!((files, numbers), (all.to_vec(), vec![(511, 12), (511, 13)]));
        assert_eq!(capabilities_of(root.path(), 0, 2).1, []);
    }

    #[test]
    fn lacks_unified_memory_only_beside_a_loaded_driver() {
        let root = machine();
        for (devices, lacks) in [
            ("195 nvidia\n507 nvidia-uvm\n", false),
            ("195 nvidia-frontend\n", true),
            ("1 mem\n", false),
        ] {
            let text = format!("Character devices:\n{devices}");
            write(&root, "proc/devices", text);
            assert_eq!(Nodes::lacks_uvm(root.path()), lacks, "{devices}");
        }
        assert!(!Nodes::lacks_uvm(&root.path().join("nowhere")));
    }

    #[test]
    fn finds_node_of_a_right() {
        let root = machine();
        let text = "DeviceFileMinor: 1\nDeviceFileMode: 256\n";
        write(&root, "proc/driver/nvidia/capabilities/mig/config", text);
        let nodes = Nodes::read(root.path()).unwrap();
        assert_eq!(
            lines(&[nodes.mig_node("config").unwrap()]),
            ["/dev/nvidia-caps/nvidia-cap1 511:1 400"]
        );
        assert!(nodes.mig_node("monitor").is_err());
    }

    #[test]
    fn table_has_every_instance_that_a_gpu_could_have() {
        let root = machine();
        let whole: Vec<String> = (0..15)
            .flat_map(|gi| {
                let parts = (0..8).map(move |ci| format!("gpu3/gi{gi}/ci{ci}/access 9"));
                parts.chain([format!("gpu3/gi{gi}/access 9")])
            })
            .collect();
        let nodes = Nodes::read(root.path()).unwrap();
        write(&root, TABLE, whole.join("\n"));
        nodes.check_table(3).unwrap();
        for missing in [0, 8, whole.len() - 2] {
            let mut cut = whole.clone();
            let name = cut.remove(missing).replace(" 9", ";");
            write(&root, TABLE, cut.join("\n"));
            let line = nodes.check_table(3).unwrap_err().line();
            assert!(line.contains(&format!("has no line {name}")), "{line}");
        }
    }
}
