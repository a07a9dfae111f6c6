//! A current node: systemd, cgroup v2 alone, AppArmor, and the engines of Debian 13, on a machine that
//! `scripts/node` emulates. One node serves all cases, one after the other, and the last reboots it.
//!
//! `RUNMIG_NODE=DIR` runs the cases on the node that `NODE_DIR=DIR scripts/node up` started.

mod containerd;
mod dcgm;
mod doctor;
mod driver_files;
mod install;
mod layout;
mod logins;
mod machine;
mod others;
mod package;
mod podman;
mod readme;
mod reboot;
mod sharing;
mod slices;
mod suite;
mod timer;

use libtest_mimic::{Arguments, Failed, Trial};
use machine::Node;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Holds the node, or the reason that there is none.
type Shared = Arc<OnceLock<Result<Node, String>>>;

macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        vec![$($((
            concat!(stringify!($module), "::", stringify!($name)),
            $module::$name as fn(&Node),
        )),+),+]
    };
}

fn main() -> ExitCode {
    // In this order: the first wants a node on which nothing has had a slice yet.
    let cases = cases! {
        timer: timer_without_slices_is_quiet;
        install: installs_from_unit_without_home, node_is_current;
        podman: gets_its_slice_alone, crun_gets_the_same, update_keeps_the_devices,
            restart_policy_takes_another_slice;
        timer: collects_after_a_kill;
        dcgm: burst_stops_no_path_unit;
        doctor: knows_the_timer;
        driver_files: needs_the_files_of_the_driver;
        sharing: share_at_mps_holds, timer_restarts_daemon, gives_whole_gpu,
            share_at_driver_holds;
        containerd: gets_its_slice_alone, share_at_driver_holds, restart_keeps_the_slice, kill_releases_the_slice;
        logins: limits_a_login_user;
        suite: e2e_runc;
        reboot: gives_slices_and_layout_again;
        package: replaces_scripts_install, upgrade_keeps_leases, removal_waits_for_leases,
            fresh_node_gets_one_timer;
        readme: holds_as_printed;
        others: engines_keep_what_others_set;
    };
    let shared = Shared::default();
    let trials = cases.into_iter().map(|(name, case)| {
        let shared = shared.clone();
        Trial::test(name, move || on_node(&shared, case))
    });
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Ends the node.
    drop(shared);
    conclusion.exit_code()
}

fn on_node(shared: &Shared, case: fn(&Node)) -> Result<(), Failed> {
    if let Some(missing) = machine::missing() {
        testkit::skip(missing);
        return Ok(());
    }
    match shared.get_or_init(Node::start) {
        Ok(node) => {
            static PASSED: AtomicBool = AtomicBool::new(true);
            if !PASSED.swap(false, Relaxed) {
                node.clean();
            }
            case(node);
            PASSED.store(true, Relaxed);
            Ok(())
        }
        Err(why) => Err(why.into()),
    }
}
