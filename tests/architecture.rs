//! The order of the modules, held: an import points down or it is refused. ARCHITECTURE.md says what
//! each of them is for; this is where the rules are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the top. A module may import those of the rows below its own, and none of its own row.
const ORDER: &[&[&str]] = &[
    &["bins", "fuzzing"],
    &["runtime", "hook", "cli"],
    &["lease"],
    &["log"],
    // values in, values out: the parts know neither the configuration nor each other
    &["placement", "spec", "store", "gpu", "config"],
    &["policy"],
    &["request", "process", "trust"],
    &["model", "error", "paths"],
];

/// The purpose of each crate, and the only places that use it.
const CRATES: &[(&str, &[&str])] = &[
    ("clap", &["src/cli/"]),
    ("nvml_wrapper", &["src/gpu/nvml/"]),
    ("nvml_wrapper_sys", &["src/gpu/nvml/"]),
    ("fs2", &["src/store/lock.rs", "src/store/queue.rs"]),
    ("serde_yaml_ng", &["src/spec/cdi.rs"]),
    ("toml", &["src/config.rs", "src/cli/configure/"]),
    ("similar", &["src/cli/configure/"]),
    ("oci_spec", &["src/spec/"]),
];

/// The files with unsafe code, and the reason for each.
const UNSAFE: &[(&str, &str)] = &[
    (
        "src/bin/runmig.rs",
        "a main of its own, which Rust's would precede with a change of SIGPIPE",
    ),
    ("src/bin/runmig-slice.rs", "the same"),
    ("src/gpu/nvml/mod.rs", "NVML's C ABI"),
    ("src/gpu/nvml/profiles.rs", "NVML's C ABI"),
    ("src/gpu/nvml/session.rs", "NVML's C ABI"),
    (
        "src/process/look.rs",
        "fork for calls that may never end, the memory that the child answers in, statx and kcmp",
    ),
    (
        "src/process/signals.rs",
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

/// Lines of code in a file; the tests at its end do not count.
const LONGEST: usize = 400;

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for file in sources(&["src", "hooks"]) {
        let from = module(&file);
        let row = row(&from);
        for to in imports(&code(&file)) {
            if to != from && self::row(&to) <= row {
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
    let declared: BTreeSet<String> = words_after(&code(Path::new("src/lib.rs")), "mod ").collect();
    let placed: BTreeSet<String> = ORDER
        .iter()
        .copied()
        .flatten()
        .map(|m| m.to_string())
        .collect();
    let mut expected = placed.clone();
    expected.remove("bins");
    assert_eq!(declared, expected, "lib.rs and ORDER differ");
}

#[test]
fn nothing_climbs_out_of_its_module() {
    for file in sources(&["src"]) {
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
    for file in sources(&["src", "hooks"]) {
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
    let found: BTreeSet<String> = sources(&["src", "hooks"])
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
fn files_are_short() {
    for file in sources(&["src", "hooks", "nvml-sim/src"]) {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let lines = text
            .split("\n#[cfg(test)]\nmod tests {")
            .next()
            .unwrap()
            .lines()
            .count();
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
        use crate::{lease::{Leases, Patience}, spec}; // crate::cli
        /* use crate::runtime; */
        fn f<'a>(x: &'a str) { let _ = ("crate::hook", r#"crate::log"#, '"', crate::gpu::nvml::open); }
        use runmig::store;
    "##;
    let seen: Vec<String> = imports(&strip(text)).into_iter().collect();
    assert_eq!(seen, ["gpu", "lease", "spec", "store"]);
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

/// `src/lease/gc.rs` is of `lease`; programs and lib.rs, which names all, are `bins`.
fn module(file: &Path) -> String {
    let mut parts = file.iter().map(|part| part.to_str().unwrap());
    match (parts.next(), parts.next()) {
        (Some("src"), Some("bin" | "lib.rs")) | (Some("hooks"), _) => "bins".to_owned(),
        (Some("src"), Some(name)) => name.trim_end_matches(".rs").to_owned(),
        other => panic!("{} is in no known place: {other:?}", file.display()),
    }
}

fn row(module: &str) -> usize {
    let row = ORDER.iter().position(|row| row.contains(&module));
    row.unwrap_or_else(|| panic!("module {module} has no place in ORDER"))
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
                found.extend(word_at(&group[at..]));
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
