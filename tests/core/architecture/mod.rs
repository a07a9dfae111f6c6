//! The order of the modules, held: an import points down or it is refused. ARCHITECTURE.md says what
//! each of them is for; this is where the rules are.

mod order;
mod reader;

use order::{FLOORS, ORDERS, floor, module, room_files, row};
use reader::{code, imports, room_imports, root, sources, strip, words, words_after};
use testkit::prelude::*;

/// The purpose of each crate, and the only places that use it.
const CRATES: &[(&str, &str)] = &testkit::rows! {
    "clap" => "src/cli/";
    "ratatui" => "src/cli/top";
    "nvml_wrapper" => "crates/lease/src/gpu/nvml/";
    "nvml_wrapper_sys" => "crates/lease/src/gpu/nvml/";
    "fs2" => "crates/lease/src/effect.rs crates/lease/src/files.rs crates/lease/src/store/lock.rs";
    "serde_yaml_ng" => "crates/lease/src/cdi.rs crates/lease/src/layout/machine.rs crates/lease/src/layout/node.rs";
    // podman's storage.conf is the last.
    "toml" => "crates/lease/src/config.rs src/cli/configure/ src/runtime/podman.rs";
    "toml_edit" => "src/cli/configure/containerd.rs";
    "oci_spec" => "src/spec/";
    "kube" => "crates/dra/src/api/ crates/dra/src/prepare.rs crates/dra/src/promise.rs crates/dra/src/publish.rs";
    "tonic" => "crates/dra/src/kubelet/";
    "prost" => "crates/dra/src/kubelet/";
};

/// The files with unsafe code, and the reason for each.
const UNSAFE: &[(&str, &str)] = &testkit::rows! {
    "src/lib.rs" => "the C library that a program has in itself";
    "src/bin/runmig.rs" => "a main of its own, which Rust's would precede with a change of SIGPIPE";
    "src/bin/runmig-slice.rs" => "the same";
    "crates/dra/src/memory.rs" => "the C library's allocator, for which nothing safe speaks";
    "crates/lease/src/gpu/nvml/gpus.rs" => "a handle as nvml-wrapper's device again";
    "crates/lease/src/gpu/nvml/queries.rs" => "NVML's C ABI, also of functions that nvml-wrapper does not know";
    "crates/lease/src/gpu/nvml/functions.rs" => "the loader's symbols, and the file in which it found them";
    "crates/lease/src/gpu/nvml/mig.rs" => "NVML's C ABI";
    "crates/lease/src/gpu/nvml/profiles.rs" => "NVML's C ABI";
    "crates/lease/src/gpu/nvml/session.rs" => "NVML's C ABI";
    "crates/lease/src/gpu/nvml/signs.rs" => "NVML's C ABI";
    "crates/lease/src/gpu/uvm.rs" => "a program of the node starts in the node's root folder";
    "crates/lease/src/mps/launch.rs" => "fork and execve for a child that waits until it is on record";
    "crates/lease/src/process/in_child.rs" =>
        "fork for calls that may never end, the memory that the child answers in, statx and kcmp";
    "crates/lease/src/process/mod.rs" => "signals through descriptors, and dispositions that run no code of ours";
    "src/runtime/spawn.rs" =>
        "fork, execve with arrays that were laid out before it, and descriptors that are numbers before they are anybody's";
};

/// Calls that destroy an instance.
const DESTROYS: &[&str] = &["destroy_gpu_instance", "destroy_compute_instance"];

/// The driver's files, and the one path that confirms with the driver that an instance is gone.
const DESTROYERS: &[&str] = &[
    "crates/lease/src/gpu/",
    "crates/lease/src/reclaim/destroy.rs",
];

/// Calls that open a file for reading, or read one without a limit.
const READS: &[&str] = &[
    "File::open(",
    ".read(true)",
    "fs::read(",
    "fs::read_to_string(",
    "io::read_to_string(",
    ".read_to_end(",
    ".read_to_string(",
    "openat(",
    "fcntl::open(",
    "libc::open",
];

/// Files that make such calls, and why each has to. All others read through `files`.
const READERS: &[(&str, &str)] = &testkit::rows! {
    "crates/dra/src/kubelet/sockets.rs" => "locks the folder of the sockets, and reads nothing";
    "crates/lease/src/effect.rs" => "opens folders to sync them and to replace files in them";
    "crates/lease/src/events/mod.rs" => "whether a full disk cut the last line";
    "crates/lease/src/files.rs" => "the one reader; opens a directory to sync it";
    "src/cli/configure/file.rs" => "opens a directory to sync it";
    "crates/lease/src/mps/launch.rs" => "opens /dev/null as the daemon's input";
    "src/cli/doctor/gpus.rs" => "whether a device node opens; reads nothing";
    "src/cli/metrics/textfile.rs" => "opens the folder of a file, and a new file in it to write it";
    "src/runtime/spawn.rs" => "opens /dev/null in the place of closed descriptors";
    "src/runtime/update.rs" => "opens resources as crun does: they may be a pipe, and `files` limits the read";
    "src/spec/bundle.rs" => "opens the bundle's directory, and new files below it to write them";
    "crates/lease/src/store/lock.rs" => "opens a lock file for writing too, and `files` limits the read";
};

/// The folders of what is installed.
const SOURCES: &[&str] = &["src", "crates/dra/src", "crates/lease/src", "hooks"];

/// The tests at the end of a file may import anything.
const INLINE_TESTS: &str = "\n#[cfg(test)]\nmod tests {";

#[track_caller]
fn none_points_up(wrong: &[String]) {
    let lines = wrong.join("\n");
    assert!(
        wrong.is_empty(),
        "arrows that point up or sideways:\n{lines}"
    );
}

/// Returns the names of the sources for which this is so.
fn sources_that(is_so: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let found = sources(SOURCES).into_iter().filter(|file| is_so(file));
    found
        .map(|file| file.to_str().unwrap().to_owned())
        .collect()
}

/// Returns the files that have a reason.
fn listed(reasons: &[(&str, &str)]) -> BTreeSet<String> {
    reasons.iter().map(|(file, _)| (*file).to_owned()).collect()
}

/// Returns a file's code without its unit tests.
fn product_code(file: &Path) -> String {
    let code = code(file);
    code.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for file in sources(SOURCES) {
        let (order, from) = module(&file);
        let row = row(order, &from);
        for to in imports(&code(&file)) {
            if to != from && self::row(order, &to) <= row {
                wrong.push(format!("{}: {from} imports {to}", file.display()));
            }
        }
    }
    none_points_up(&wrong);
}

#[test]
fn places_every_module() {
    for (folder, order) in ORDERS {
        let lib = Path::new(folder).join("lib.rs");
        let declared: BTreeSet<String> = words_after(&code(&lib), "mod ").collect();
        let placed = order.iter().copied().flatten();
        let mut placed: BTreeSet<String> = placed.map(|m| m.to_string()).collect();
        placed.remove("bins");
        assert_eq!(declared, placed, "{} and ORDERS differ", lib.display());
    }
}

#[test]
fn imports_point_down_inside_rooms() {
    let mut wrong = Vec::new();
    for (room, rows) in FLOORS {
        let files = room_files(room);
        for (name, file) in &files {
            let text = fs::read_to_string(root().join(file)).unwrap();
            let code = strip(text.split(INLINE_TESTS).next().unwrap());
            for to in room_imports(room, name, &code, &files) {
                if to != *name && floor(rows, &to) <= floor(rows, name) {
                    wrong.push(format!("{}: {name} imports {to}", file.display()));
                }
            }
        }
        let listed: BTreeSet<&str> = rows.iter().copied().flatten().copied().collect();
        let found: BTreeSet<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(found, listed, "files of {room}, and those in FLOORS");
    }
    none_points_up(&wrong);
}

#[test]
fn nothing_climbs_out_of_its_module() {
    for file in sources(SOURCES) {
        let climbs = code(&file).contains("super::super");
        assert!(!climbs, "{}: say crate:: instead", file.display());
    }
}

#[test]
fn crates_stay_where_they_belong() {
    for file in sources(SOURCES) {
        let name = file.to_str().unwrap().to_owned();
        let words: BTreeSet<String> = words(&code(&file)).map(str::to_owned).collect();
        for (used, places) in CRATES {
            let here = words.contains(*used) && code(&file).contains(&format!("{used}::"));
            let allowed = places.split(' ').any(|place| name.starts_with(place));
            assert!(
                !here || allowed,
                "{name} uses {used}, which belongs to {places}"
            );
        }
    }
}

/// Cargo joins the features of a dependency in a build of everything, so that a difference is seen nowhere else.
#[test]
fn core_has_the_same_dependencies_with_effects() {
    let dependencies = |manifest: &str| {
        let text = fs::read_to_string(root().join(manifest)).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        manifest["dependencies"].clone()
    };
    let with_effects = dependencies("tests/matrices/kills/lease/Cargo.toml");
    assert_eq!(with_effects, dependencies("crates/lease/Cargo.toml"));
}

#[test]
fn instances_have_one_destroy_path() {
    let mut found = BTreeSet::new();
    for file in sources(SOURCES) {
        if words(&code(&file)).any(|word| DESTROYS.contains(&word)) {
            let name = file.to_str().unwrap();
            let place = DESTROYERS.iter().find(|place| name.starts_with(**place));
            let why = "destroys instances; use reclaim::destroy";
            found.insert(*place.unwrap_or_else(|| panic!("{name} {why}")));
        }
    }
    assert_eq!(found, DESTROYERS.iter().copied().collect());
}

#[test]
fn finds_no_stray_unsafe_code() {
    let found = sources_that(|file| words(&code(file)).any(|word| word == "unsafe"));
    let what = "files with unsafe code, and those that have a reason for it";
    assert_eq!(found, listed(UNSAFE), "{what}");
}

/// Returns whether a file has unit tests alone.
fn is_of_tests(file: &Path) -> bool {
    file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn files_are_read_in_one_place() {
    let found = sources_that(|file| {
        let code = product_code(file);
        !is_of_tests(file) && READS.iter().any(|read| code.contains(read))
    });
    let what = "files that open and read, and those that have a reason for it; use crate::files";
    assert_eq!(found, listed(READERS), "{what}");
}

/// The rule of whose files count as root's stands once.
#[test]
fn trust_alone_judges_owners() {
    // Another file may ask who this process is, for these reasons.
    let reasons = testkit::rows! {
        "src/cli/configure/mod.rs" => "tells users early that engines are root's";
        "src/runtime/container_name.rs" => "finds the low-level runtime's default --root";
    };
    let judging = ["0o022", "0o002", "geteuid", "getuid"];
    let mut found =
        sources_that(|file| words(&product_code(file)).any(|word| judging.contains(&word)));
    assert!(found.remove("crates/lease/src/trust.rs"));
    let what = "files that judge owners or modes; use crate::trust";
    assert_eq!(found, listed(&reasons), "{what}");
}
