//! The rules for Prometheus: promtool runs the cases beside this file, every alert has its remedy in docs/alerts.md, and
//! every family in an expression is in the document's table.

mod board;

use serde_yaml_ng::Value;
use testkit::prelude::*;

/// Families of others: of dcgm-exporter and node_exporter.
const FOREIGN: &[&str] = &[
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "node_textfile_mtime_seconds",
    "node_textfile_scrape_error",
];
const SEVERITIES: &[&str] = &["critical", "warning", "info"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rules_file() -> PathBuf {
    root().join("prometheus/runmig.rules.yml")
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

fn yaml(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn list(value: &Value) -> &[Value] {
    value.as_sequence().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns every rule, recording rules and alerts.
fn rules() -> Vec<Value> {
    let file = yaml(&rules_file());
    let groups = list(&file["groups"]).iter();
    let rules = groups.flat_map(|group| list(&group["rules"]));
    rules.cloned().collect()
}

fn names(kind: &str) -> BTreeSet<String> {
    let rules = rules();
    let names = rules.iter().filter_map(|rule| rule[kind].as_str());
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(!names.is_empty());
    names
}

/// Returns the files of cases for `promtool test rules`.
fn case_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("tests/core/rules")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "yml"));
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Returns promtool.
fn promtool() -> Option<PathBuf> {
    let promtool = testkit::prometheus::program(&testkit::runtimes::cache()?, "promtool");
    if !promtool.exists() {
        let shown = promtool.display();
        skip(&format!("{shown} is not there: scripts/setup full"));
        return None;
    }
    Some(promtool)
}

#[track_caller]
fn accepts(command: &mut Command) {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
}

#[test]
fn promtool_accepts_rules() {
    let Some(promtool) = promtool() else { return };
    let mut check = Command::new(promtool);
    check.args(["check", "rules", "--lint-fatal"]);
    accepts(check.arg(rules_file()));
}

/// Each alert fires on its cases and is silent on their neighbours, and each record has its values.
#[test]
fn promtool_passes_cases() {
    let Some(promtool) = promtool() else { return };
    let mut test = Command::new(promtool);
    accepts(test.args(["test", "rules"]).args(case_files()));
}

#[test]
fn alerts_have_case_and_neighbour() {
    let mut cases: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for file in case_files().iter().map(|file| yaml(file)) {
        for case in list(&file["tests"]) {
            for test in list(&case["alert_rule_test"]) {
                let name = text(&test["alertname"]).to_owned();
                let seen = cases.entry(name).or_default();
                match list(&test["exp_alerts"]).is_empty() {
                    true => seen.1 += 1,
                    false => seen.0 += 1,
                }
            }
        }
    }
    let tested: BTreeSet<String> = cases.keys().cloned().collect();
    assert_eq!(tested, names("alert"), "alerts with cases, and alerts");
    cases.retain(|_, (fires, silent)| *fires == 0 || *silent == 0);
    assert!(cases.is_empty(), "no case or no neighbour: {cases:?}");
}

/// A record has a sample in a case: its own value, or that of a record or an alert that is made from it.
#[test]
fn records_have_values_in_cases() {
    let mut expected = String::new();
    for file in case_files().iter().map(|file| yaml(file)) {
        for case in list(&file["tests"]) {
            for test in list(&case["promql_expr_test"]) {
                for sample in list(&test["exp_samples"]) {
                    expected.push_str(text(&sample["labels"]));
                    expected.push('\n');
                }
            }
        }
    }
    let rules = rules();
    for record in names("record") {
        let has_it = |rule: &Value| words(text(&rule["expr"])).contains(&record.as_str());
        let is_step = rules.iter().any(has_it);
        let begin = format!("{record}{{");
        let has_value = expected.lines().any(|line| line.starts_with(&begin));
        assert!(has_value || is_step, "{record} has no value in a case");
    }
}

/// Returns the anchor that a heading has on a page.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

#[test]
fn alerts_link_their_remedy() {
    let document = document("alerts.md");
    let (_, remedies) = document.split_once("\n## Alerts\n").unwrap();
    let mut linked = BTreeSet::new();
    for alert in rules().iter().filter(|rule| rule["alert"].is_string()) {
        let name = text(&alert["alert"]);
        assert!(name.starts_with("Runmig"), "{name}");
        let severity = text(&alert["labels"]["severity"]);
        assert!(SEVERITIES.contains(&severity), "{name}: {severity}");
        let notes = &alert["annotations"];
        for note in ["summary", "description"] {
            assert!(text(&notes[note]).contains("{{ $labels."), "{name}: {note}");
        }
        let link = text(&notes["runbook"]).strip_prefix("docs/alerts.md#");
        let link = link.unwrap_or_else(|| panic!("{name} links no remedy"));
        let parts = remedies.split("\n### ");
        let mut parts = parts.filter_map(|part| part.split_once('\n'));
        let found = parts.find(|(heading, _)| anchor(heading) == link);
        let (_, remedy) = found.unwrap_or_else(|| panic!("{name}: docs/alerts.md has no #{link}"));
        assert_eq!(link, anchor(name));
        let remedy = remedy.trim();
        let begins = remedy.starts_with(&format!("{severity}: "));
        assert!(begins, "{name}: {remedy}");
        assert!(remedy.contains("\n\n"), "{name} has no remedy");
        linked.insert(name.to_owned());
    }
    let lines = remedies.lines();
    let headings = lines.filter_map(|line| line.strip_prefix("### "));
    let headings: BTreeSet<String> = headings.map(str::to_owned).collect();
    assert_eq!(headings, linked, "remedies, and alerts");
}

/// Returns the series of the families in the document's table.
fn series() -> BTreeSet<String> {
    let document = document("metrics.md");
    let (_, rest) = document.split_once("<!-- families:").unwrap();
    let (table, _) = rest.split_once("<!-- end of families -->").unwrap();
    let mut series = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| `runmig_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let suffixes: &[&str] = match cells[2] {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let name = cells[1].trim_matches('`');
        series.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    assert!(series.len() > 30, "{series:?}");
    series
}

/// Returns the words of an expression, outside of its texts.
fn words(expression: &str) -> BTreeSet<&str> {
    let outside = expression.split('"').step_by(2);
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c);
    outside.flat_map(|part| part.split(is_end)).collect()
}

#[test]
fn rules_use_families_of_document() {
    let (series, records) = (series(), names("record"));
    let mut used = BTreeSet::new();
    for rule in rules() {
        for word in words(text(&rule["expr"])) {
            let is_record = word.contains(':');
            let is_own = word.starts_with("runmig_");
            let is_foreign = word.starts_with("DCGM_") || word.starts_with("node_");
            let known = match (is_record, is_own, is_foreign) {
                (true, ..) => records.contains(word),
                (_, true, _) => series.contains(word),
                (_, _, true) => FOREIGN.contains(&word),
                _ => continue,
            };
            assert!(known, "{word} of {:?} is in no table", rule);
            used.insert(word.to_owned());
        }
    }
    for name in FOREIGN {
        assert!(used.contains(*name), "no rule uses {name}");
    }
}

#[test]
fn finds_planted_words() {
    let found = words("max by (UUID) (a:b:ratio{file=~\"x_y\"} > 1)\n  / c_total");
    for word in ["max", "UUID", "a:b:ratio", "file", "c_total"] {
        assert!(found.contains(word), "{word} is not in {found:?}");
    }
    assert!(!found.contains("x_y"), "{found:?}");
}
