//! What the tests share: real low-level runtimes, engines and processes, and a simulated driver below them.
//! All that they need of the machine on which they run, and all that they work around there, is here.

pub mod bundle;
pub mod cases;
pub mod cdi;
pub mod cgroup2;
pub mod claims;
pub mod containerd;
pub mod cri;
pub mod crio;
pub mod cuda;
pub mod devices;
pub mod diff;
pub mod docker;
pub mod faults;
pub mod filling;
pub mod fuse;
pub mod gate;
pub mod http;
pub mod images;
pub mod leftovers;
pub mod machine;
pub mod models;
pub mod mounted;
pub mod named;
pub mod packages;
pub mod pages;
pub mod podman;
pub mod prelude;
pub mod process;
pub mod prometheus;
pub mod random;
pub mod refusal;
pub mod runtimes;
pub mod session;
pub mod setup;
pub mod sharing;
pub mod table;

pub use bundle::Bundle;
pub use gate::Gate;
pub use machine::{Instance, Machine};
pub use podman::Podman;
pub use process::{Going, Said, going, said};
pub use runtimes::Low;
pub use setup::Setup;

use std::path::{Path, PathBuf};

/// Makes a test of every case, for one low-level runtime.
#[macro_export]
macro_rules! every_case {
    ($low:ident) => {
        $crate::cases! {
            $low;
            asking: gets_what_it_asks_for, gets_first_of_a_list, records_the_pod, image_cannot_ask;
            life: create_start_delete, changes_listed_fields_of_config, delete_releases_without_hook,
                hook_releases_alone, deletes_without_slice_program, gc_finds_forgotten_leases,
                running_container_keeps_its_slice, reuses_the_bundle, tells_roots_of_id_apart, gives_no_slice_twice;
            foreground: gets_and_releases_its_slice, returns_its_exit_code,
                forwards_signals, forwards_standard_input, gives_a_terminal,
                passes_preserved_descriptors, passes_sockets_of_service_manager, no_stray_descriptors,
                runs_detached;
            passing: answers_like_the_runtime, leaves_others_alone,
                refuses_words_that_may_name_a_bundle_that_asks, answers_features, works_without_a_driver;
            failing: releases_when_runtime_fails, creates_again_after_failure, refuses_restore_with_slice;
            cgroups: refuses_path_of_live_container, refuses_id_under_second_root, passes_neighbours,
                admits_one_of_two_at_once;
            updating: keeps_devices_open, bounds_resources_of_update, updates_others_unchanged,
                updates_without_our_program;
        }
    };
}

#[macro_export]
macro_rules! cases {
    ($low:ident; $($module:ident: $($name:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                if let Some(setup) = $crate::Setup::try_of($crate::Low::$low) {
                    $crate::cases::$module::$name(&setup);
                }
            })+
        })+
    };
}

/// Makes a test of each row: its name, and the call that is the test.
#[macro_export]
macro_rules! tests {
    ($($(#[$more:meta])* $name:ident: $test:expr;)+) => {$(
        $(#[$more])*
        #[test]
        fn $name() {
            $test;
        }
    )+};
}

/// Makes an array of a table's rows, each a tuple: `GIVEN, GIVEN => EXPECTED;`.
#[macro_export]
macro_rules! rows {
    ($($($given:expr),+ => $expected:expr;)+) => {[$(($($given),+, $expected)),+]};
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

/// Fails unless a text has these words.
#[track_caller]
pub fn has(text: &str, words: &str) {
    assert!(text.contains(words), "no \"{words}\" in:\n{text}");
}

/// Fails if a text has these words.
#[track_caller]
pub fn lacks(text: &str, words: &str) {
    assert!(!text.contains(words), "\"{words}\" in:\n{text}");
}

#[track_caller]
pub fn begins_with(text: &str, words: &str) {
    assert!(text.starts_with(words), "no \"{words}\" first in:\n{text}");
}

#[track_caller]
pub fn ends_with(text: &str, words: &str) {
    assert!(text.ends_with(words), "no \"{words}\" last in:\n{text}");
}

/// Gives a file or a folder this mode.
#[track_caller]
pub fn chmod(path: impl AsRef<Path>, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}

/// The same for a part that `scripts/setup full` brings: the first tier goes without it, and says so.
pub fn skip_until_full(why: &str) {
    use std::io::Write;
    match std::env::var("RUNMIG_TIER").as_deref() {
        Ok("quick") => drop(writeln!(std::io::stderr(), "LEFT OUT: {why}")),
        _ => skip(why),
    }
}

/// A folder in another that every user may look into, gone when dropped.
pub fn temporary(prefix: &str, parent: &Path) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    let dir = dir.expect("a temporary folder");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The hook of CDI devices that ask.
pub const REQUEST_HOOK: &str = "runmig-request-wants-runtime-runmig";

/// The folder in which cargo put the programs of this build: the one above the test program's.
pub fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// A program of this build.
pub fn program(name: &str) -> PathBuf {
    let program = programs().join(name);
    let hint = "hint: run cargo build --workspace first";
    assert!(
        program.exists(),
        "{} is not built; {hint}",
        program.display()
    );
    program
}

/// A number that no other test of this machine has.
pub fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{n}", std::process::id())
}
