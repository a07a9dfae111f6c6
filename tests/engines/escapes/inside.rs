//! The devices that a container can open, tried in it. No driver stands behind the simulated
//! numbers, so the kernel answers "no such device" for a device that the cgroup lets through, and
//! "not permitted" for one that it holds up.

use testkit::Instance;
use testkit::prelude::*;

pub type Number = (u32, u32);

/// Prints `PATH: open` or `PATH: …why not`.
const TRY: &str = "try() { why=$( { : <\"$1\"; } 2>&1 ); echo \"$1: ${why:-open}\"; }; \
    make() { why=$(/bin/busybox mknod \"$1\" c $2 $3 2>&1); echo \"make $1: ${why:-made}\"; }; ";

/// A machine on which another container has a slice already.
pub struct Shared {
    pub neighbour: Instance,
    /// Another GPU, and the neighbour's capabilities.
    pub foreign: Vec<(String, Number)>,
    /// The nodes that every container with a slice has.
    pub granted: Number,
}

impl Shared {
    pub fn new(setup: &Setup) -> Shared {
        let bundle = setup.asking("1g.10gb", "sleep 1000");
        setup.create(&bundle, &unique());
        let neighbour = setup.machine.the_instance();
        let nodes = setup.machine.nodes_of(&neighbour);
        let granted = nodes["nvidiactl"];
        let mut foreign: Vec<(String, Number)> = nodes.into_iter().collect();
        foreign.retain(|(path, _)| path.starts_with("nvidia-caps/"));
        assert_eq!((neighbour.gpu, foreign.len()), (0, 2));
        foreign.push(("nvidia1".into(), (granted.0, 1)));
        Shared {
            neighbour,
            foreign,
            granted,
        }
    }

    /// The foreign nodes on the host, made in a folder under other names.
    pub fn nodes_on_host(&self, dir: &Path) -> Vec<(PathBuf, Number)> {
        std::fs::create_dir_all(dir).unwrap();
        let all = self.foreign.iter().enumerate();
        all.map(|(at, (_, number))| {
            let path = dir.join(format!("innocent{at}"));
            node(&path, *number);
            (path, *number)
        })
        .collect()
    }
}

pub fn node(path: &Path, (major, minor): Number) {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let mode = Mode::from_bits_truncate(0o666);
    let device = makedev(major.into(), minor.into());
    mknod(path, SFlag::S_IFCHR, mode, device).unwrap();
}

/// A bundle that asks, and whose container may make nodes.
pub fn asking(setup: &Setup, script: &str) -> Bundle {
    let bundle = setup.asking("1g.10gb", &format!("{TRY}{script}"));
    bundle.edit(|config| {
        config["root"]["readonly"] = json!(false);
        for set in ["bounding", "effective", "permitted"] {
            let set = config["process"]["capabilities"][set].as_array_mut();
            let rights = ["CAP_MKNOD", "CAP_SYS_ADMIN"];
            set.unwrap().extend(rights.map(Value::from));
        }
    });
    bundle
}

/// Returns the output of the container.
#[track_caller]
pub fn run(setup: &Setup, bundle: &Bundle) -> String {
    let said = setup.try_run(bundle);
    assert_eq!(setup.machine.instances().len(), setup.leases().len());
    said.ok().stdout
}

/// Tries to open these, to make the foreign ones anew and open those, and the granted one.
pub fn script(shared: &Shared, paths: &[String]) -> String {
    let mut script = String::new();
    for path in paths {
        script.push_str(&format!("try {path}; "));
    }
    let (major, minor) = shared.granted;
    script.push_str(&format!(
        "make /tmp/ctl {major} {minor}; try /tmp/ctl; try /dev/nvidiactl; "
    ));
    for (at, (_, (major, minor))) in shared.foreign.iter().enumerate() {
        script.push_str(&format!(
            "make /tmp/n{at} {major} {minor}; try /tmp/n{at}; "
        ));
    }
    format!("{script} ls -lR /dev | grep -c nvidia1 || true")
}

/// None of them could be opened; the granted one could, so the trial is worth something.
#[track_caller]
pub fn none_opens(shared: &Shared, out: &str, paths: &[String]) {
    let of = |path: &str| {
        let start = format!("{path}: ");
        let line = out.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{path} was not tried:\n{out}"))
            .to_owned()
    };
    assert_eq!(of("make /tmp/ctl"), "made", "{out}");
    for path in ["/tmp/ctl", "/dev/nvidiactl"] {
        assert!(of(path).contains("No such device or address"), "{out}");
    }
    for path in paths {
        let why = of(path);
        let kept = ["Operation not permitted", "no such file", "nonexistent"];
        assert!(kept.iter().any(|k| why.contains(k)), "{path}: {why}\n{out}");
    }
    for at in 0..shared.foreign.len() {
        // If mknod is let through (docker allows it for all), the new node does not open.
        if of(&format!("make /tmp/n{at}")) == "made" {
            has(&of(&format!("/tmp/n{at}")), "Operation not permitted");
        } else {
            has(&of(&format!("make /tmp/n{at}")), "Operation not permitted");
        }
    }
}

/// The whole of it, on a bundle changed before.
#[track_caller]
pub fn gets_only_its_slice(
    setup: &Setup,
    shared: &Shared,
    paths: &[String],
    change: impl FnOnce(&mut Value),
) {
    let bundle = asking(setup, &script(shared, paths));
    bundle.edit(change);
    let before = bundle.bytes();
    let out = run(setup, &bundle);
    none_opens(shared, &out, paths);
    assert_eq!(bundle.bytes(), before);
}
