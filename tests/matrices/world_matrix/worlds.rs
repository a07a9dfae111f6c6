//! The worlds, a line each: its name, what is different there, how an error names that (none: all
//! works), and the way in. scripts/failure-index lists each in tests/failures.md.

use crate::world_matrix::cell::{World, every_operation};
use crate::world_matrix::enter::{
    kept_namespace, mounts, namespaces, pid_namespace, shell, through,
};
use crate::world_matrix::kernel::answers;
use crate::world_matrix::{files, hung, neighbours, processes};

macro_rules! worlds {
    ($($name:ident: $what:literal, $causes:expr, $enter:expr;)*) => {
        $(#[test]
        fn $name() {
            every_operation(World { name: stringify!($name), causes: $causes, enter: $enter });
        })*
    };
}

const NO_SPACE: &[&str] = &["No space left on device"];
const READ_ONLY: &[&str] = &["Read-only file system"];
const MISSING: &[&str] = &["No such file or directory"];
const HELD: &[&str] = &["is held by"];

#[rustfmt::skip] // a line each
worlds! {
    the_normal_world: "nothing is different", &[], |_| Ok(through(&[]));
    // Namespaces.
    another_pid_namespace: "another pid namespace", &["pid namespace", "is not running"], |_| Ok(pid_namespace(&["--mount-proc"], &["--pid", "--mount"]));
    anothers_proc: "another pid namespace, with the host's `/proc`", &["pid namespace"], |_| Ok(pid_namespace(&[], &["--pid"]));
    an_empty_proc: "`/proc` is empty", &["/proc"], |node| Ok(mounts(node, "mount -t tmpfs proc /proc"));
    no_proc: "there is no `/proc`", &["/proc"], |node| Ok(mounts(node, files::WITHOUT_PROC));
    a_proc_that_hides_others: "`/proc` is mounted with `hidepid=2`", &[], |node| Ok(mounts(node, "mount -t proc -o hidepid=2 proc /proc"));
    a_user_namespace: "root of a user namespace", &["user namespace", "not root on the host"], |node| Ok(namespaces(node, "--user --map-root-user --mount", ""));
    a_mount_namespace: "a mount namespace", &[], |node| Ok(mounts(node, ""));
    a_cgroup_namespace: "a mount and a cgroup namespace", &["cgroup namespace"], processes::cgroup_namespace;
    a_time_namespace: "a time namespace", &["time namespace", "is not running"], |_| Ok(kept_namespace(&["--time", "--boottime=100000"], &["--time"]));
    // Files.
    state_is_read_only: "the state directory is read-only", READ_ONLY, |node| Ok(files::read_only(node, "state"));
    state_is_full: "the state directory is full", NO_SPACE, |node| Ok(files::full(node));
    state_has_no_inodes: "the state directory has no inodes", NO_SPACE, |node| Ok(files::without_inodes(node));
    state_is_unmounted: "the state directory is unmounted", &["cannot find container or lease", "no ledger", "not in the ledger"], |node| Ok(mounts(node, "umount $NODE/state").with_own_ledger());
    state_has_no_ledger: "the state directory is unmounted, and empty below", &["cannot find container or lease", "no ledger", "not in the ledger"], |node| Ok(files::unmounted_anew(node));
    state_is_anothers: "the state directory is another user's", &["belongs to user"], |node| Ok(mounts(node, "mount -t tmpfs -o uid=1000,mode=755 state $NODE/state").without_ledger());
    state_is_for_all: "everybody can write to the state directory", &["users other than root"], |node| Ok(mounts(node, "mount -t tmpfs -o mode=777 state $NODE/state").without_ledger());
    state_is_a_file: "the state directory is a file", &["Not a directory", "no folder", "not a folder"], |node| Ok(files::replaced(node, "touch state").without_ledger());
    state_is_a_link: "the state directory is a link to a folder of all", &["users other than root"], |node| Ok(files::replaced(node, "ln -s /tmp state").without_ledger());
    state_has_no_locks: "the state directory's file system has no locks", &["No locks available"], |_| Ok(answers(libc::SYS_flock, libc::ENOLCK));
    state_cannot_lock: "the state directory's file system does not lock", &["Operation not supported"], |_| Ok(answers(libc::SYS_flock, libc::EOPNOTSUPP));
    nothing_can_be_executed: "state directory, bundles and root are mounted `noexec`", &[], |node| Ok(mounts(node, "for f in state root bundles; do mount --rbind $NODE/$f $NODE/$f; mount -o remount,bind,noexec $NODE/$f; done"));
    bundle_is_read_only: "the bundle is read-only", READ_ONLY, |node| Ok(files::read_only(node, "bundles"));
    bundle_is_moved: "the bundle is moved away", MISSING, |node| Ok(files::bundle_moved(node));
    bundle_is_removed: "the bundle is removed", MISSING, |node| Ok(files::bundle_removed(node));
    bundle_is_elsewhere: "the bundle is on a file system of its own", &[], |node| Ok(files::bundle_elsewhere(node));
    open_file_hangs: "a process has a file open on a file system that hangs", &[], hung::open_file;
    bundles_of_others_hang: "the bundles of other containers are on a file system that hangs", &[], hung::bundles;
    // The process.
    standard_descriptors_are_closed: "standard input, output and error are closed", &["standard input"], |_| Ok(shell("exec <&- >&- 2>&-"));
    one_descriptor_is_left: "one descriptor is left", &["Too many open files", "Error 24"], |_| Ok(shell("ulimit -n 4"));
    few_descriptors: "`RLIMIT_NOFILE` is 16", &[], |_| Ok(shell("ulimit -n 16"));
    no_file_may_grow: "`RLIMIT_FSIZE` is 0", &["File too large"], |_| Ok(shell("ulimit -f 0"));
    umask_allows_all: "the umask is 000", &[], |_| Ok(shell("umask 000"));
    umask_allows_nothing: "the umask is 777", &[], |_| Ok(shell("umask 777"));
    environment_is_empty: "the environment is empty", &[], |node| Ok(mounts(node, files::ONLY_ETC));
    environment_is_hostile: "the environment is hostile", &[], |node| Ok(processes::hostile_environment(node));
    configuration_is_anothers: "`RUNMIG_CONFIG` names a file of another user", &["belongs to user"], |node| Ok(processes::hostile_configuration(node));
    signals_are_ignored: "SIGPIPE, SIGCHLD and SIGTERM are ignored", &[], |_| Ok(through(&["env", "--ignore-signal=PIPE,CHLD,TERM"]));
    signals_are_blocked: "SIGPIPE, SIGCHLD and SIGTERM are blocked", &[], |_| Ok(through(&["env", "--block-signal=PIPE,CHLD,TERM"]));
    no_more_processes: "no more processes are to be had", &["Resource temporarily unavailable", "EAGAIN"], |_| processes::no_more();
    // The kernel.
    no_statx: "the kernel has no `statx`", &[], |_| Ok(answers(libc::SYS_statx, libc::ENOSYS));
    no_openat2: "the kernel has no `openat2`", &[], |_| Ok(answers(libc::SYS_openat2, libc::ENOSYS));
    no_pidfd_open: "the kernel has no `pidfd_open`", &[], |_| Ok(answers(libc::SYS_pidfd_open, libc::ENOSYS));
    no_clone3: "the kernel has no `clone3`", &[], |_| Ok(answers(libc::SYS_clone3, libc::ENOSYS));
    no_close_range: "the kernel has no `close_range`", &[], |_| Ok(answers(libc::SYS_close_range, libc::ENOSYS));
    no_inotify: "the kernel has no inotify", &[], |_| Ok(answers(libc::SYS_inotify_init1, libc::ENOSYS));
    statx_is_forbidden: "`statx` is forbidden", &[], |_| Ok(answers(libc::SYS_statx, libc::EPERM));
    openat2_is_forbidden: "`openat2` is forbidden", &[], |_| Ok(answers(libc::SYS_openat2, libc::EPERM));
    pidfd_open_is_forbidden: "`pidfd_open` is forbidden", &[], |_| Ok(answers(libc::SYS_pidfd_open, libc::EPERM));
    clone3_is_forbidden: "`clone3` is forbidden", &["Operation not permitted"], |_| Ok(answers(libc::SYS_clone3, libc::EPERM));
    close_range_is_forbidden: "`close_range` is forbidden", &[], |_| Ok(answers(libc::SYS_close_range, libc::EPERM));
    inotify_is_forbidden: "inotify is forbidden", &[], |_| Ok(answers(libc::SYS_inotify_init1, libc::EPERM));
    inotify_is_used_up: "no inotify instance is left", &[], |_| Ok(answers(libc::SYS_inotify_init1, libc::EMFILE));
    no_cgroups: "no cgroup hierarchy is mounted", &[], |node| Ok(mounts(node, "mount -t tmpfs cgroup /sys/fs/cgroup"));
    cgroup_v2: "cgroup v2 alone is mounted", &[], |node| Ok(mounts(node, "mount -t cgroup2 cgroup /sys/fs/cgroup"));
    cgroup_v1: "cgroup v1 alone is mounted", &[], processes::cgroup_v1;
    // Neighbours.
    ledger_lock_is_kept: "a stopped process has the ledger's lock", HELD, |node| Ok(neighbours::stopped_locker(node, "ledger"));
    ledger_lock_is_anothers: "a stopped process has the ledger's lock, which one that is gone has signed", &["held by a process that cannot be named"], |node| Ok(neighbours::unsigned_locker(node, "ledger"));
    plan_lock_is_kept: "a stopped process has the plan's lock", HELD, |node| Ok(neighbours::stopped_locker(node, "plan"));
    gpu_lock_is_kept: "a stopped process has the GPU's lock", HELD, |node| Ok(neighbours::stopped_locker(node, "gpu-"));
    bundle_is_locked: "a stopped process has the bundle's folder locked", &[], |node| Ok(neighbours::locked_bundle(node));
    records_are_newer: "the records are of a newer version", &["v99"], |node| Ok(neighbours::newer_version(node));
    runtime_is_moved: "an upgrade has moved the low-level runtime", &[], |node| Ok(neighbours::moved_runtime(node));
    an_administrator_is_at_work: "an administrator makes and destroys instances", &["is still there after the driver destroyed it"], |node| Ok(neighbours::administrator(node));
    clock_has_jumped_ahead: "the clock has jumped an hour ahead", &[], |node| Ok(neighbours::clock(node, true));
    clock_has_jumped_back: "the clock has jumped an hour back", &[], |node| Ok(neighbours::clock(node, false));
}
