//! The board for Grafana, as far as its text tells. `programs/metrics/board` asks its schema, and sends its queries to
//! Prometheus.

use super::{FOREIGN, names, root, series, words};
use testkit::prelude::*;

const VARIABLES: &[&str] = &["datasource", "node", "gpu", "namespace", "kind"];
/// Variables of Grafana itself.
const BUILT_IN: &[&str] = &["__rate_interval", "__range"];
const WIDTH: u64 = 24;

fn board() -> Value {
    let text = fs::read_to_string(root().join("grafana/runmig.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// No two panels overlap, and none is wider than the board.
#[test]
fn panels_have_their_own_place() {
    let mut taken = BTreeSet::new();
    for panel in board()["panels"].as_array().unwrap() {
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= WIDTH, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            let is_free = taken.insert(cell);
            assert!(is_free, "{} lies on another panel", panel["title"]);
        }
    }
    let bottom = taken.iter().map(|(_, y)| y).max().unwrap();
    let is_empty = |y: &u64| !(0..WIDTH).any(|x| taken.contains(&(x, *y)));
    let empty: Vec<u64> = (0..*bottom).filter(is_empty).collect();
    assert!(empty.is_empty(), "lines without a panel: {empty:?}");
}

/// Returns the names of variables in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let named = text.split('$').skip(1);
    let name = |part: &str| {
        let part = part.trim_start_matches('{');
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        part[..end.unwrap_or(part.len())].to_owned()
    };
    named.map(name).collect()
}

#[test]
fn queries_use_known_names() {
    let board = board();
    let declared = board["templating"]["list"].as_array().unwrap().iter();
    let declared: Vec<&str> = declared.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(declared, VARIABLES);
    let (series, records) = (series(), names("record"));
    let mut used = BTreeSet::new();
    let panels = board["panels"].as_array().unwrap().iter();
    for panel in panels.filter(|panel| panel["type"] != "row") {
        let title = &panel["title"];
        let targets = panel["targets"].as_array().unwrap();
        let refs = targets
            .iter()
            .map(|target| target["refId"].as_str().unwrap());
        let count = refs.collect::<BTreeSet<_>>().len();
        assert!(count > 0 && count == targets.len(), "{title}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            assert_eq!(target["datasource"]["type"], "prometheus", "{title}");
            let query = target["expr"].as_str().unwrap();
            for name in variables(query) {
                let known = declared.contains(&name.as_str()) || BUILT_IN.contains(&name.as_str());
                assert!(known, "{title}: ${name}");
                used.insert(name);
            }
            for word in words(query) {
                let known = match word {
                    _ if word.contains(':') => records.contains(word),
                    _ if word.starts_with("runmig_") => series.contains(word),
                    _ if word.starts_with("DCGM_") => FOREIGN.contains(&word),
                    _ => true,
                };
                assert!(known, "{title}: {word} is in no table");
            }
        }
    }
    for name in VARIABLES.iter().filter(|name| **name != "datasource") {
        assert!(used.contains(*name), "no query uses ${name}");
    }
}
