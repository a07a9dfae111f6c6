//! The documents: their length, their links, the index, the tests that they name, and the page that clap writes.

use testkit::prelude::*;

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns the Markdown files below a folder of the repository, by their paths in it.
fn pages(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(repository().join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = match folder {
            "" => name.clone(),
            folder => format!("{folder}/{name}"),
        };
        let skipped = name.starts_with('.') || name == "target" || name == "node_modules";
        let meta = fs::symlink_metadata(repository().join(&path)).unwrap();
        if meta.is_dir() && !skipped {
            found.extend(pages(&path));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence && !line.starts_with("    ")
    })
}

/// Returns the targets of all links and images.
fn links(text: &str) -> Vec<&str> {
    let parts = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = parts.filter_map(|part| part.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

/// Returns the anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let slug = |line: &str| -> String {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept: String = heading.chars().filter(kept).collect();
        kept.replace(' ', "-")
    };
    headings.map(slug).collect()
}

/// Returns the path in the repository to which a link of a page leads.
fn target(page: &str, link: &str) -> PathBuf {
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for part in link.split('/') {
        match part {
            "." => {}
            ".." => drop(path.pop().unwrap_or_else(|| panic!("{page}: {link}"))),
            part => path.push(part),
        }
    }
    path.iter().collect()
}

#[test]
fn pages_are_short() {
    for page in [vec!["README.md".to_owned()], pages("docs")].concat() {
        let words = read(&page).split_whitespace().count();
        let most = if page == "README.md" { 900 } else { 2500 };
        let hint = "hint: split it by its readers' questions";
        assert!(
            words <= most,
            "{page} has {words} words, and may have {most}; {hint}"
        );
    }
}

#[test]
fn links_lead_somewhere() {
    let mut checked = 0;
    for page in pages("") {
        let text = read(&page);
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = match path {
                "" => PathBuf::from(&page),
                path => target(&page, path),
            };
            assert!(repository().join(&file).exists(), "{page} links {link}");
            if !anchor.is_empty() && file.extension().is_some_and(|e| e == "md") {
                let is_there = anchors(&read(file.to_str().unwrap())).contains(anchor);
                assert!(is_there, "{page} links {link}: no such heading");
            }
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked} links");
}

#[test]
fn index_has_every_page() {
    let index = read("docs/README.md");
    let linked: BTreeSet<PathBuf> = { links(&index).into_iter() }
        .map(|link| target("docs/README.md", link))
        .collect();
    for page in pages("docs") {
        let in_index = linked.contains(Path::new(&page)) || page == "docs/README.md";
        assert!(in_index, "docs/README.md does not link {page}");
    }
}

/// A row names a file, and after a colon tests in it: `` `tests/core/x.rs`: `a`, `b` ``.
#[test]
fn security_names_tests_that_exist() {
    let text = read("docs/security.md");
    let mut functions = 0;
    let cells = text.lines().flat_map(|line| line.split('|'));
    for part in cells.flat_map(|cell| cell.split("; ")) {
        let (file, names) = part.split_once(": ").unwrap_or((part, ""));
        let file = file.trim().trim_matches('`');
        if !["tests/", "crates/"].iter().any(|at| file.starts_with(at)) || file.contains(' ') {
            continue;
        }
        let file = file.split('`').next().unwrap();
        assert!(
            repository().join(file).exists(),
            "docs/security.md names {file}"
        );
        for name in names.split('`').skip(1).step_by(2) {
            assert!(has_test(&read(file), name), "{file}: {name}");
            functions += 1;
        }
    }
    assert!(functions > 40, "{functions} functions");
}

/// Whether a file has a test: a function, a row of a table, or a case of a session.
fn has_test(text: &str, name: &str) -> bool {
    let marks = [
        format!("fn {name}("),
        format!("    {name}: "),
        format!("\n# {name}\n"),
    ];
    marks.iter().any(|mark| text.contains(mark))
}

/// Where a symptom of docs/troubleshooting.md is produced, if no test has its words: the start of its row, and a test.
const SYMPTOMS: &[(&str, &str, &str)] = &testkit::rows! {
    "MIG is off", "sessions/verdicts.txt" => "mig_off";
    "`process … computes", "sessions/whole_gpus.txt" => "waits_for_foreign_process";
    "nvidia-ctk: ", "engines/driver_files.rs" => "nvidia_ctk_finds_no_device_in_mig_mode";
    "`… makes a virtual machine", "sessions/other_kinds.txt" => "refuses_handlers_of_crun";
    "`… (NVML n)`", "sessions/layouts.txt" => "lost_gpu_ends_each_verb";
    "`ready` for a container that is gone", "engines/dying/containers.rs" => "collects_killed_undeleted_container";
    "`ready` for an instance that is gone", "sessions/moving_world.txt" => "survives_reset_under_container";
    "`ready, around MPS`", "engines/around/collecting.rs" => "names_what_bypasses_mps_alone";
    "`layout`", "sessions/layout_leases.txt" => "takes_over_what_is_wanted";
    "a process in its cgroup", "sessions/liveness.txt" => "keeps_cgroups_of_other_namespace";
    "an unreadable file in `/proc`", "sessions/liveness.txt" => "keeps_leases_where_proc_lies";
    "names and requests end in", "sessions/people.txt" => "fits_into_a_hundred_columns";
    "a container was created and never started", "engines/dying/containers.rs" => "keeps_slice_before_start";
    "`the low-level runtime did not run the hook", "engines/driver_level/failures.rs" => "fails_create_without_hook";
    "dockerd does not start:", "sessions/configure_docker.txt" => "refuses_what_flags_say_too";
    "after a removal of runmig no", "sessions/install.txt" => "uninstall_names_engines_that_call_runmig";
    "doctor names CVE", "sessions/doctor_engines.txt" => "names_podman_that_restores_images";
    "the program says that there is no CUDA", "engines/driver_files.rs" => "refuses_container_without_libcuda";
    "docker's `--gpus`", "engines/driver_files.rs" => "program_sees_its_device";
    "persistenced or the fabric", "engines/driver_files.rs" => "leaves_out_missing_sockets";
    "SELinux denies", "sessions/doctor_engines.txt" => "names_enforcing_selinux";
    "dpkg was killed", "sessions/package_roots.txt" => "killed_dpkg_is_repeated";
    "no events at all", "sessions/events.txt" => "failing_history_fails_no_create";
};

/// Symptoms that no test produces, with the reason.
const NOT_PRODUCED: &[(&str, &str)] = &testkit::rows! {
    "podman: `annotations must" => "podman's own refusal, before it calls runmig";
    "podman ignores Ctrl-C" => "podman's own handling of signals, from a terminal";
};

/// Returns the text of the tests below a folder but this file.
fn tests_text(folder: &str) -> String {
    let mut files = all_below(&repository().join(folder));
    let is_test = |path: &Path| path.extension().is_some_and(|e| e == "rs" || e == "txt");
    files.retain(|path| is_test(path) && !path.ends_with(file!()));
    let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
    texts.collect()
}

/// A symptom is produced by a test that has its words, or by one of those above.
#[test]
fn symptoms_are_produced_by_tests() {
    let tests = ["tests", "testkit/src", "crates/dra/tests"]
        .map(tests_text)
        .concat();
    let page = read("docs/troubleshooting.md");
    let (_, page) = page.split_once("\n## A create is refused").unwrap();
    // The line above the marks is the head of a table.
    let next = page.lines().skip(1).chain([""]);
    let marks = |line: &str| line.starts_with("| ---");
    let mut symptoms = 0;
    for (line, next) in page.lines().zip(next) {
        let row = line
            .strip_prefix("| ")
            .filter(|_| !marks(line) && !marks(next));
        let Some(row) = row else { continue };
        symptoms += 1;
        let symptom = row.split(" | ").next().unwrap();
        let words = symptom.split('`').skip(1).step_by(2);
        let mut words = words.flat_map(|code| code.split('…').map(str::trim));
        let is_in_test = words.any(|words| words.len() >= 8 && tests.contains(words));
        let is_excused = { NOT_PRODUCED.iter() }.any(|(start, _)| row.starts_with(start));
        let shown = SYMPTOMS.iter().find(|(start, ..)| row.starts_with(start));
        let Some((_, file, test)) = shown else {
            assert!(is_in_test || is_excused, "no test produces: {symptom}");
            continue;
        };
        let text = read(&format!("tests/{file}"));
        assert!(has_test(&text, test), "{file}: {test}");
    }
    for (start, ..) in SYMPTOMS {
        has(page, &format!("\n| {start}"));
    }
    assert!(symptoms >= 25, "{symptoms} symptoms");
}

fn help(words: &[&str]) -> String {
    let mut migctl = Command::new(env!("CARGO_BIN_EXE_migctl"));
    let text = said(migctl.args(words).arg("--help")).ok().stdout;
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

/// Returns the verbs in the list of a help, without the one that helps.
fn verbs(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap_or_default();
    list.lines()
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

/// Returns the help of a verb without the options that every verb has.
fn own(help: &str) -> String {
    let mut is_common = false;
    let is_own = |line: &&str| {
        let text = line.trim_start();
        if text.starts_with('-') {
            let common = ["--config ", "-o, --output ", "--timeout ", "-h, --help"];
            is_common = common.iter().any(|option| text.starts_with(option));
        } else if text.len() == line.len() && !text.is_empty() {
            is_common = false;
        }
        !is_common
    };
    let lines: Vec<&str> = help.lines().filter(is_own).collect();
    let text = lines.join("\n").trim_end().to_owned();
    // Nothing may be left of the options.
    let text = text.replace("Options:\nIn bash:", "In bash:");
    let text = text.replace("Options:\nExamples:", "Examples:");
    text.replace("\nExamples:", "\n\nExamples:")
        .replace("\n\n\n", "\n\n")
}

#[test]
fn reference_is_what_help_says() {
    const COMMAND: &str = "UPDATE=1 cargo test --workspace --test core -- documents::reference";
    let main = help(&[]);
    let mut page = format!(
        "# Reference of migctl\n\nThe `--help` of each verb, as migctl prints it. Every verb also has the options --config, --output, --timeout \
         and --help that stand here once; `list` can also print wide and name. `{COMMAND}` writes this page. [migctl.md](migctl.md) explains the verbs.\n\n```\n{main}\n```\n"
    );
    let first = verbs(&main);
    assert!(first.len() > 10, "{first:?}");
    for verb in first {
        let said = own(&help(&[&verb]));
        page.push_str(&format!("\n## {verb}\n\n```\n{said}\n```\n"));
        for second in verbs(&said) {
            let said = own(&help(&[&verb, &second]));
            page.push_str(&format!("\n## {verb} {second}\n\n```\n{said}\n```\n"));
        }
    }
    let file = repository().join("docs/migctl-reference.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let is_same = fs::read_to_string(&file).is_ok_and(|there| there == page);
    assert!(is_same, "docs/migctl-reference.md is stale: {COMMAND}");
}

/// By this rule `tests/node/readme.rs` compares what a page prints with what a node says.
#[test]
fn printed_output_varies_in_ids_and_ages_alone() {
    let printed = "c26c3aba7671  train  5s\n…\nGPU-1dc70e62-9b9f-5542-b24c-9eaa3d20f947: … well\n";
    let said = |text: &str| testkit::pages::is_as_printed(printed, text);
    let last = "GPU-0445b887-c2cd-51a4-8d02-05cb811357f1: 24 of 24 well\n";
    assert!(said(&format!("0123456789ab  train  47m\n{last}")));
    assert!(said(&format!("0123456789ab  train  0s  \none\n\n{last}")));
    let first = "0123456789ab  train  0s\n";
    for wrong in [
        format!("0123456789ab  infer  0s\n{last}"),
        format!("0123456789a  train  0s\n{last}"),
        format!("0123456789ab  train  0\n{last}"),
        format!("0123456789ab train  0s\n{last}"),
        format!("{first}\n"),
        format!("{first}MIG-0445b887-c2cd-51a4-8d02-05cb811357f1: 24 well\n"),
        format!("{first}GPU-0445b887: 24 well\n"),
        format!("{first}24 well\n"),
        format!("{first}{last}more\n"),
    ] {
        assert!(!said(&wrong), "{wrong}");
    }
}

/// The configuration as it is shipped says what the defaults are.
#[test]
fn configuration_names_the_defaults() {
    // With the heads of the sections of Kubernetes, events, health and dcgm.
    const KEYS: usize = 26;
    let text = fs::read_to_string(repository().join("scripts/config.toml")).unwrap();
    let default = runmig_lease::config::Config::default();
    assert_eq!(runmig_lease::config::Config::parse(&text).unwrap(), default);
    // The policy is an example: by default there is none.
    let (text, _) = text.split_once("\n# The administrator's rules").unwrap();
    let without_default = ["runtime", "file = \"/etc", "config ="];
    let sections = ["[kubernetes]", "[health]", "[events]", "[dcgm]"];
    let keys = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(key) if without_default.iter().any(|k| key.starts_with(k)) => line,
        Some(key) if key.contains(" = ") || sections.contains(&key) => key,
        _ => line,
    });
    let uncommented = keys.collect::<Vec<_>>().join("\n");
    let comments = |text: &str| text.matches("\n# ").count();
    assert_eq!(comments(&uncommented), comments(text) - KEYS);
    let mut parsed = runmig_lease::config::Config::parse(&uncommented).unwrap();
    // It names the file that goes with the default ledger.
    assert_eq!(parsed.events_file(), default.events_file());
    parsed.events.file = None;
    assert_eq!(parsed, default);
}
