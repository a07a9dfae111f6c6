//! Reads the series of an exposition.

use std::collections::BTreeMap;

pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
}

impl Series {
    /// It has these labels.
    #[track_caller]
    pub fn is(&self, labels: &[(&str, &str)]) {
        for (label, value) in labels {
            assert_eq!(self.label(label), *value, "{label}: {self:?}");
        }
    }

    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug)]
pub struct Exposition(pub Vec<Series>);

impl Exposition {
    #[track_caller]
    pub fn read(text: &str) -> Exposition {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Exposition(lines.map(series).collect())
    }

    pub fn of(&self, name: &str) -> Vec<&Series> {
        self.0.iter().filter(|series| series.name == name).collect()
    }

    /// Returns the value of the only series of a name with these labels.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found = self.find(name, labels);
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].value
    }

    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Series> {
        let mut found = self.of(name);
        found.retain(|series| {
            labels
                .iter()
                .all(|(key, value)| series.label(key) == *value)
        });
        found
    }
}

#[track_caller]
fn series(line: &str) -> Series {
    let (head, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (name, labels) = match head.split_once('{') {
        Some((name, labels)) => (name, read_labels(labels.strip_suffix('}').unwrap())),
        None => (head, Labels::new()),
    };
    Series {
        name: name.to_owned(),
        labels,
        value: value.parse().unwrap_or_else(|_| panic!("{line}")),
    }
}

fn read_labels(mut text: &str) -> Labels {
    let mut labels = Labels::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("a value ends") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{text}");
        text = rest[end + 1..].trim_start_matches(',');
    }
    labels
}
