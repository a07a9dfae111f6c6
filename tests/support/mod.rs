//! The parts of the end-to-end tests: real low-level runtimes, real podman, real processes, and a
//! simulated driver below them. All that this needs of the machine it runs on, and all that it
//! works around there, is in this folder.

#![allow(dead_code, unused_imports)] // each test program uses its part

pub mod bundle;
pub mod cases;
pub mod containerd;
pub mod cri;
pub mod crio;
pub mod diff;
pub mod docker;
pub mod fuse;
pub mod gate;
pub mod http;
pub mod images;
pub mod leftovers;
pub mod machine;
pub mod named;
pub mod podman;
pub mod process;
pub mod refusal;
pub mod runtimes;
pub mod setup;
pub mod table;

pub use bundle::Bundle;
pub use gate::Gate;
pub use machine::{Instance, Machine};
pub use podman::Podman;
pub use process::{Going, Said, going, said};
pub use runtimes::Low;
pub use setup::Setup;

/// Makes a test of every case, for one low-level runtime.
#[macro_export]
macro_rules! every_case {
    ($low:ident) => {
        $crate::cases! {
            $low;
            asking: a_profile, a_profile_with_media_engines, an_amount_of_memory, a_list, a_least_number_of_compute_slices, none,
                one_container_of_a_pod, the_containers_own_key_wins, the_sandbox_of_a_pod,
                the_pod_is_on_record, an_image_cannot_ask;
            life: create_start_delete, what_changes_in_config_json, delete_is_the_second_net,
                the_hook_alone, gc_finds_what_everybody_forgot, a_running_container_keeps_its_slice,
                the_same_bundle_again, one_id_under_two_roots, no_two_have_the_same;
            foreground: it_gets_its_slice_and_gives_it_back, its_exit_code,
                a_signal_reaches_the_container, standard_input_reaches_it, a_terminal,
                descriptors_that_are_handed_on, sockets_of_a_service_manager, no_stray_descriptors,
                detached;
            passing: answers_are_the_low_level_runtimes, who_does_not_ask_is_left_alone,
                features, without_a_driver;
            failing: the_low_level_runtime_fails, the_executable_is_missing, the_rootfs_is_missing,
                again_after_a_failure, a_restore_of_what_asks;
            cgroups: refuses_path_of_live_container, refuses_id_under_second_root, passes_neighbours,
                admits_one_of_two_at_once;
            updating: the_devices_stay_open, too_many_resources, who_has_no_slice_is_updated_as_asked,
                without_our_own_program;
        }
    };
}

#[macro_export]
macro_rules! cases {
    ($low:ident; $($module:ident: $($name:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                if let Some(setup) = $crate::support::Setup::of($crate::support::Low::$low) {
                    $crate::support::cases::$module::$name(&setup);
                }
            })+
        })+
    };
}

/// Says that a test cannot run here, past the harness, which keeps what a passing test prints.
/// `scripts/test` counts the lines; where all is to run, it is a failure.
pub fn skip(why: &str) {
    use std::io::Write;
    let required = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(
        !required("CI") && !required("RUNMIG_REQUIRE_ALL"),
        "cannot run here, and all is to run: {why}"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// A number that no other test of this machine has.
pub fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{n}", std::process::id())
}
