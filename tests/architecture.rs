//! The order of the modules, held: an import points down or it is refused. ARCHITECTURE.md says what
//! each of them is for; this is where the rules are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of a package from the top. A module may import those of the rows below its own, and none of
/// its own row.
const ORDERS: &[(&str, &[&[&str]])] = &[
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
            &["manager"],
            &["allocate"],
            // The queue never names reclaim: it says why it woke, and the create collects.
            &["queue", "reclaim"],
            &["admitted", "inventory"],
            &["idle"],
            &["draft"],
            &["context", "refusal"],
            &["bundles"],
            // values in, values out: the parts know neither the configuration nor each other
            &["placement", "store", "gpu", "config"],
            &["policy"],
            &["request", "process", "trust", "framed", "programs"],
            &["model", "error", "paths", "files"],
        ],
    ),
];

/// The files of a room from the top, without tests. A file may import those of the rows below its own, and
/// none of its own row.
const FLOORS: &[(&str, &[&[&str]])] = &[ALLOCATE, QUEUE, RECLAIM, PLACEMENT];

const ALLOCATE: (&str, &[&[&str]]) = (
    "crates/lease/src/allocate",
    &[
        &["mod"],
        &["diagnosis"],
        &["provision", "what_if"],
        &["reserve"],
        &["candidates", "share", "usable_plan", "validate"],
        &["plan"],
        &["admit", "adopt", "previous"],
        &["denial", "footprint", "occupied", "requester"],
    ],
);

const QUEUE: (&str, &[&[&str]]) = (
    "crates/lease/src/queue",
    &[&["mod"], &["blockers", "watch"]],
);

const RECLAIM: (&str, &[&[&str]]) = (
    "crates/lease/src/reclaim",
    &[
        &["mod"],
        &["ended", "gc", "lost"],
        &["damaged", "ready"],
        &["earlier_boot", "release"],
        &["keep"],
        &["destroy"],
        &["finding", "liveness", "patience"],
    ],
);

const PLACEMENT: (&str, &[&[&str]]) = (
    "crates/lease/src/placement",
    &[
        &["mod"],
        &["defrag/mod", "explain"],
        &["defrag/diagnose"],
        &["defrag/search"],
        &["defrag/simulate"],
        &["several"],
        &["choose"],
        &["backfill", "diagnosis", "pack", "score"],
        &["constraints", "rejection"],
        &["plan"],
        &["occupancy"],
    ],
);

/// The purpose of each crate, and the only places that use it.
const CRATES: &[(&str, &[&str])] = &[
    ("clap", &["src/cli/"]),
    ("nvml_wrapper", &["crates/lease/src/gpu/nvml/"]),
    ("nvml_wrapper_sys", &["crates/lease/src/gpu/nvml/"]),
    (
        "fs2",
        &[
            "crates/lease/src/store/lock.rs",
            "crates/lease/src/store/queue.rs",
        ],
    ),
    ("serde_yaml_ng", &["src/spec/cdi.rs"]),
    (
        "toml",
        &["crates/lease/src/config.rs", "src/cli/configure/"],
    ),
    ("similar", &["src/cli/configure/"]),
    ("toml_edit", &["src/cli/configure/toml_text.rs"]),
    ("jsonc_parser", &["src/cli/configure/json_text.rs"]),
    ("oci_spec", &["src/spec/"]),
];

/// The files with unsafe code, and the reason for each.
const UNSAFE: &[(&str, &str)] = &[
    (
        "src/bin/runmig.rs",
        "a main of its own, which Rust's would precede with a change of SIGPIPE",
    ),
    ("src/bin/runmig-slice.rs", "the same"),
    (
        "crates/lease/src/gpu/nvml/gpus.rs",
        "a handle as nvml-wrapper's device again",
    ),
    ("crates/lease/src/gpu/nvml/mig.rs", "NVML's C ABI"),
    ("crates/lease/src/gpu/nvml/profiles.rs", "NVML's C ABI"),
    ("crates/lease/src/gpu/nvml/session.rs", "NVML's C ABI"),
    (
        "crates/lease/src/process/look.rs",
        "fork for calls that may never end, the memory that the child answers in, statx and kcmp",
    ),
    (
        "crates/lease/src/process/signals.rs",
        "dispositions of signals, of which none runs code of ours",
    ),
    (
        "src/runtime/image.rs",
        "execve with arrays that were laid out before the fork",
    ),
    (
        "src/runtime/spawn.rs",
        "fork, and descriptors that are numbers before they are anybody's",
    ),
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
const READERS: &[(&str, &str)] = &[
    ("crates/lease/src/files.rs", "the one reader"),
    ("src/cli/configure/file.rs", "opens a directory to sync it"),
    (
        "src/runtime/spawn.rs",
        "opens /dev/null in the place of closed descriptors",
    ),
    (
        "src/runtime/update.rs",
        "opens resources as crun does: they may be a pipe, and `files` limits the read",
    ),
    (
        "src/spec/bundle.rs",
        "opens the bundle's directory, and new files below it to write them",
    ),
    (
        "crates/lease/src/store/durable.rs",
        "opens a directory to sync it",
    ),
    (
        "crates/lease/src/store/lock.rs",
        "opens a lock file for writing too, and `files` limits the read",
    ),
];

/// The folders of what is installed.
const SOURCES: &[&str] = &["src", "crates/lease/src", "hooks"];

/// Lines of code in a file; the tests at its end do not count.
const LONGEST: usize = 400;
const INLINE_TESTS: &str = "\n#[cfg(test)]\nmod tests {";

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
    assert!(
        wrong.is_empty(),
        "arrows that point up or sideways:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_module_has_its_place() {
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
    assert!(
        wrong.is_empty(),
        "arrows that point up or sideways:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn nothing_climbs_out_of_its_module() {
    for file in sources(SOURCES) {
        let code = code(&file);
        assert!(
            !code.contains("super::super"),
            "{}: say crate:: instead",
            file.display()
        );
    }
}

#[test]
fn crates_stay_where_they_belong() {
    for file in sources(SOURCES) {
        let name = file.to_str().unwrap().to_owned();
        let words: BTreeSet<String> = words(&code(&file)).map(str::to_owned).collect();
        for (used, places) in CRATES {
            let here = words.contains(*used) && code(&file).contains(&format!("{used}::"));
            let allowed = places.iter().any(|place| name.starts_with(place));
            assert!(
                !here || allowed,
                "{name} uses {used}, which belongs to {places:?}"
            );
        }
    }
}

#[test]
fn unsafe_code_is_where_it_has_to_be() {
    let found: BTreeSet<String> = sources(SOURCES)
        .into_iter()
        .filter(|file| words(&code(file)).any(|word| word == "unsafe"))
        .map(|file| file.to_str().unwrap().to_owned())
        .collect();
    let reasons: BTreeMap<&str, &str> = UNSAFE.iter().copied().collect();
    let listed: BTreeSet<String> = reasons.keys().map(|file| file.to_string()).collect();
    assert_eq!(
        found, listed,
        "files with unsafe code, and those that have a reason for it"
    );
}

#[test]
fn files_are_read_in_one_place() {
    let reads = |file: &PathBuf| {
        let code = code(file);
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
        READS.iter().any(|read| code.contains(read))
    };
    let found: BTreeSet<String> = sources(SOURCES)
        .into_iter()
        .filter(|file| !file.ends_with("tests.rs") && reads(file))
        .map(|file| file.to_str().unwrap().to_owned())
        .collect();
    let listed: BTreeSet<String> = READERS.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(
        found, listed,
        "files that open and read, and those that have a reason for it; use crate::files"
    );
}

/// The rule of whose files count as root's stands once.
#[test]
fn trust_alone_judges_owners() {
    // Another file may ask who this process is, for these reasons.
    let reasons = [
        (
            "src/cli/configure/mod.rs",
            "tells users early that engines are root's",
        ),
        (
            "src/runtime/key.rs",
            "finds the low-level runtime's default --root",
        ),
    ];
    let judges = |file: &PathBuf| {
        let code = code(file);
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
        words(code).any(|word| ["0o022", "0o002", "geteuid", "getuid"].contains(&word))
    };
    let mut found: BTreeSet<String> = sources(SOURCES)
        .into_iter()
        .filter(judges)
        .map(|file| file.to_str().unwrap().to_owned())
        .collect();
    assert!(found.remove("crates/lease/src/trust.rs"));
    let listed: BTreeSet<String> = reasons.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(
        found, listed,
        "files that judge owners or modes; use crate::trust"
    );
}

#[test]
fn files_are_short() {
    for file in sources(&[SOURCES, &["nvml-sim/src"]].concat()) {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let lines = text.split(INLINE_TESTS).next().unwrap().lines().count();
        assert!(
            lines <= LONGEST,
            "{} has {lines} lines, more than {LONGEST}",
            file.display()
        );
    }
}

#[test]
fn the_reader_sees_what_the_compiler_sees() {
    let text = r##"
        use crate::{lease::{LeaseManager, Patience}, spec}; // crate::cli
        /* use crate::runtime; */
        fn f<'a>(x: &'a str) { let _ = ("crate::hook", r#"crate::log"#, '"', crate::gpu::nvml::open); }
        use runmig::store;
    "##;
    let seen: Vec<String> = imports(&strip(text)).into_iter().collect();
    assert_eq!(seen, ["gpu", "lease", "spec", "store"]);
}

#[test]
fn reads_imports_inside_rooms() {
    let files = ["mod", "plan", "choose", "defrag/mod", "defrag/search"];
    let files = files.map(|name| (name.to_owned(), PathBuf::new())).into();
    let seen = |name: &str, text: &str| -> Vec<String> {
        room_imports("crates/lease/src/placement", name, &strip(text), &files)
            .into_iter()
            .collect()
    };
    let text = "use super::{choose::{self, choose}, Plan}; use crate::model::Gpu; // super::plan";
    assert_eq!(seen("plan", text), ["choose", "mod"]);
    let text = "use crate::placement::{plan, defrag::search::{a, b}}; fn f() { super::g() }";
    assert_eq!(
        seen("defrag/search", text),
        ["defrag/mod", "defrag/search", "plan"]
    );
    assert_eq!(
        seen("defrag/mod", "mod search; pub use search::a;"),
        ["defrag/search"]
    );
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Rust files below these folders, relative to the repository.
fn sources(folders: &[&str]) -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    let mut found = Vec::new();
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(root().join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty());
    found.sort();
    found
}

type Rows = &'static [&'static [&'static str]];

/// Returns a file's module, and the order of its package: `src/cli/gc.rs` is of `cli`. Programs and lib.rs,
/// which names all, are `bins`.
fn module(file: &Path) -> (Rows, String) {
    let in_folder = |folder: &str| file.strip_prefix(folder).ok();
    let found = { ORDERS.iter() }.find_map(|(folder, order)| Some((*order, in_folder(folder)?)));
    let Some((order, rest)) = found else {
        assert!(file.starts_with("hooks"), "{} has no place", file.display());
        return (ORDERS[0].1, "bins".to_owned());
    };
    let name = rest.iter().next().unwrap().to_str().unwrap();
    let name = match name.trim_end_matches(".rs") {
        "bin" | "lib" => "bins",
        name => name,
    };
    (order, name.to_owned())
}

/// The files of a room but those with tests alone, by their names in `FLOORS`.
fn room_files(room: &str) -> BTreeMap<String, PathBuf> {
    let name = |file: PathBuf| {
        let name = file.strip_prefix(room).unwrap().with_extension("");
        let name = name.to_str().unwrap().to_owned();
        let is_test = name.split('/').any(|part| part == "tests");
        (!is_test).then_some((name, file))
    };
    sources(&[room]).into_iter().filter_map(name).collect()
}

fn floor(rows: &[&[&str]], name: &str) -> usize {
    let row = rows.iter().position(|row| row.contains(&name));
    row.unwrap_or_else(|| panic!("{name} has no place in FLOORS"))
}

/// The files of the same room that a file's paths lead to.
fn room_imports(
    room: &str,
    name: &str,
    code: &str,
    files: &BTreeMap<String, PathBuf>,
) -> BTreeSet<String> {
    let own: Vec<&str> = name.split('/').filter(|part| *part != "mod").collect();
    let parent = own[..own.len().saturating_sub(1)].to_vec();
    let (_, in_crate) = room.split_once("src").unwrap();
    let from_crate = format!("crate{}::", in_crate.replace('/', "::"));
    let mut starts = vec![(from_crate, Vec::new()), ("self::".to_owned(), own.clone())];
    if !own.is_empty() {
        starts.push(("super::".to_owned(), parent));
    }
    // A module names its children without a prefix.
    let children: Vec<String> = words_after(code, "mod ").collect();
    for child in &children {
        starts.push((format!("{child}::"), [&own[..], &[child]].concat()));
    }
    let mut found = BTreeSet::new();
    for (start, base) in &starts {
        for (at, _) in code.match_indices(start.as_str()) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || "_$:".contains(c)) {
                continue;
            }
            for path in branches(&code[at + start.len()..]) {
                let path: Vec<&str> = base.iter().copied().chain(path.split("::")).collect();
                found.insert(file_of(&path, files));
            }
        }
    }
    found
}

/// The file that holds what a path names: the longest part of it that is one.
fn file_of(path: &[&str], files: &BTreeMap<String, PathBuf>) -> String {
    let names = (0..=path.len()).rev().flat_map(|n| {
        let name = path[..n].join("/");
        let module = format!("{name}/mod");
        [name, module.trim_start_matches('/').to_owned()]
    });
    let mut known = names.filter(|name| files.contains_key(name));
    known.next().expect("every room has a mod.rs")
}

/// All paths of a use tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn branches(text: &str) -> Vec<String> {
    if let Some(group) = text.strip_prefix('{') {
        return items(group).into_iter().flat_map(branches).collect();
    }
    let Some(word) = word_at(text) else {
        return Vec::new();
    };
    match text[word.len()..].strip_prefix("::") {
        Some(rest) => {
            let rest = branches(rest).into_iter();
            rest.map(|rest| format!("{word}::{rest}")).collect()
        }
        None => vec![word],
    }
}

fn row(order: Rows, module: &str) -> usize {
    let row = order.iter().position(|row| row.contains(&module));
    row.unwrap_or_else(|| panic!("module {module} has no place in ORDERS"))
}

/// The top modules that paths from the crate's root lead to, groups included.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for start in ["crate::", "runmig::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
                continue;
            }
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(heads(group)),
                None => found.extend(word_at(rest)),
            }
        }
    }
    found
}

/// The first word of each item of a group: `a::{b, c}, d}` gives a and d.
fn heads(group: &str) -> Vec<String> {
    items(group).into_iter().filter_map(word_at).collect()
}

/// Each item of a group, from where it begins: `a::{b, c}, d}` gives two.
fn items(group: &str) -> Vec<&str> {
    let (mut depth, mut at_head, mut found) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_head = true,
            c if c.is_whitespace() => {}
            _ if at_head => {
                at_head = false;
                found.push(&group[at..]);
            }
            _ => {}
        }
    }
    found
}

fn word_at(text: &str) -> Option<String> {
    let word: String = text
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!word.is_empty()).then_some(word)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

fn words_after<'a>(code: &'a str, mark: &'a str) -> impl Iterator<Item = String> + 'a {
    code.match_indices(mark)
        .filter_map(move |(at, _)| word_at(&code[at + mark.len()..]))
}

fn code(file: &Path) -> String {
    strip(&fs::read_to_string(root().join(file)).unwrap())
}

/// Without comments and without what stands in quotes.
fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = hashes + 2;
            rest[inside..]
                .find(&end)
                .map_or(rest.len(), |at| inside + at + end.len())
        } else if c == '"' {
            quoted(rest, '"').unwrap_or(rest.len())
        } else if c == '\'' {
            // a lifetime has no second quote where a character's would be
            quoted(rest, '\'')
                .filter(|end| *end <= 12 && is_char(&rest[1..*end - 1]))
                .unwrap_or(0)
        } else {
            0
        };
        if skip == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.push(' ');
            rest = &rest[skip..];
        }
    }
    out
}

/// `r"`, `r#"`: how many marks there are.
fn raw_string(text: &str) -> Option<usize> {
    let marks = text.strip_prefix('r')?;
    let hashes = marks.len() - marks.trim_start_matches('#').len();
    marks[hashes..].starts_with('"').then_some(hashes)
}

/// Returns the end of a quoted text, the closing quote included.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_char(inside: &str) -> bool {
    inside.starts_with('\\') || inside.chars().count() == 1
}
