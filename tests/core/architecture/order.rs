//! The order of the modules, and of the files inside rooms.

use super::reader::sources;
use testkit::prelude::*;

/// The modules of a package from the top. A module may import those of the rows below its own, and none of
/// its own row.
pub const ORDERS: &[(&str, &[&[&str]])] = &[
    (
        "src",
        &[
            &["bins", "fuzzing"],
            &["runtime", "hook", "cli"],
            &["bundles"],
            &["log", "spec"],
        ],
    ),
    (
        "crates/lease/src",
        &[
            &["bins", "fuzzing"],
            &["allocate", "apply"],
            // The queue never names reclaim: it says why it woke, and the create collects.
            &["queue", "reclaim"],
            &["inventory"],
            &["idle"],
            &["cordons", "draft", "known_gpus"],
            &["leases", "refusal"],
            &["bundles"],
            // values in, values out: the parts know neither the configuration nor each other
            &["driver_files", "layout", "limit", "observer"],
            &["events"],
            &["view"],
            &["placement", "store", "gpu", "config", "mps", "cdi"],
            &["policy", "counters"],
            &[
                "request", "process", "trust", "finding", "framed", "programs", "log",
            ],
            &["model", "error", "paths", "files"],
            &["effect"],
        ],
    ),
    (
        "crates/dra/src",
        &[
            &["bins"],
            &["run"],
            &["check"],
            &["kubelet", "promise", "publish", "rival", "room", "sweep"],
            &["prepare"],
            &["report"],
            &["api", "changes", "files", "ledger"],
            &["health"],
            // pure
            &[
                "cdi",
                "claim",
                "log",
                "obstacle",
                "options",
                "resource_slices",
            ],
            &["host"],
            &["memory"],
        ],
    ),
];

/// The files of a room from the top, without tests. A file may import those of the rows below its own, and
/// none of its own row.
pub const FLOORS: &[(&str, &[&[&str]])] = &[ALLOCATE, QUEUE, RECLAIM, PLACEMENT];

const ALLOCATE: (&str, &[&[&str]]) = (
    "crates/lease/src/allocate",
    &[
        &["mod"],
        &["attach", "claim/mod", "what_if"],
        &["claim/make"],
        &["provision"],
        &["claim/place"],
        &["reserve"],
        &["record"],
        &["look"],
        &["limit", "outside_mig", "seats"],
        &["plan"],
        &["admit", "occupied", "pod"],
        &["found", "requester"],
        &["levels"],
    ],
);

const QUEUE: (&str, &[&[&str]]) = ("crates/lease/src/queue", &[&["mod"], &["watch"]]);

const RECLAIM: (&str, &[&[&str]]) = (
    "crates/lease/src/reclaim",
    &[
        &["mod"],
        &["gc", "repair"],
        &["lost_leases", "ready"],
        &["claim", "limits", "revive"],
        &["release"],
        &["layout"],
        &["destroy"],
        &["daemon", "finding", "liveness"],
    ],
);

const PLACEMENT: (&str, &[&[&str]]) = (
    "crates/lease/src/placement",
    &[
        &["mod"],
        &["defrag", "explain"],
        &["several"],
        &["choose", "layout"],
        &["backfill", "diagnosis"],
        &["share", "whole"],
        &["near"],
        &["no_room"],
        &["rejection"],
        &["plan"],
        &["gpu_obstacle", "occupancy"],
    ],
);

pub type Rows = &'static [&'static [&'static str]];

/// Returns a file's module, and the order of its package: `src/cli/gc.rs` is of `cli`. Programs and lib.rs,
/// which names all, are `bins`.
pub fn module(file: &Path) -> (Rows, String) {
    let in_folder = |folder: &str| file.strip_prefix(folder).ok();
    let found = { ORDERS.iter() }.find_map(|(folder, order)| Some((*order, in_folder(folder)?)));
    let Some((order, rest)) = found else {
        assert!(file.starts_with("hooks"), "{} has no place", file.display());
        return (ORDERS[0].1, "bins".to_owned());
    };
    let name = rest.iter().next().unwrap().to_str().unwrap();
    let name = match name.trim_end_matches(".rs") {
        "bin" | "lib" | "main" => "bins",
        name => name,
    };
    (order, name.to_owned())
}

/// The files of a room but those with tests alone, by their names in `FLOORS`.
pub fn room_files(room: &str) -> BTreeMap<String, PathBuf> {
    let name = |file: PathBuf| {
        let name = file.strip_prefix(room).unwrap().with_extension("");
        let name = name.to_str().unwrap().to_owned();
        let is_test = name.split('/').any(|part| part == "tests");
        (!is_test).then_some((name, file))
    };
    sources(&[room]).into_iter().filter_map(name).collect()
}

pub fn floor(rows: &[&[&str]], name: &str) -> usize {
    let row = rows.iter().position(|row| row.contains(&name));
    row.unwrap_or_else(|| panic!("{name} has no place in FLOORS"))
}

pub fn row(order: Rows, module: &str) -> usize {
    let row = order.iter().position(|row| row.contains(&module));
    row.unwrap_or_else(|| panic!("module {module} has no place in ORDERS"))
}
