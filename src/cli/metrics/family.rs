//! The model of an exposition: families with samples, apart from any text format.

use super::label;
use std::collections::BTreeSet;

/// The type of a family, in the words of OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Gauge,
    /// A constant 1 whose labels carry the information.
    Info,
    Counter,
    Histogram,
}

/// The unit of a family. The name of the family ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
    Seconds,
    Ratio,
}

impl Unit {
    pub fn word(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Ratio => "ratio",
        }
    }
}

/// The promise about a family. `table` declares all of them.
#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    pub kind: Type,
    pub unit: Unit,
    /// The names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A gauge, or the 1 of an info.
    Number(f64),
    Counter(f64),
    Histogram(Histogram),
}

/// Observations by their size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The upper bounds of the buckets in ascending order, without the infinite one.
    pub bounds: Vec<f64>,
    /// The observations in each bucket alone, one more than bounds.
    pub counts: Vec<u64>,
    /// The sum of all observations.
    pub sum: f64,
}

impl Histogram {
    /// Returns the upper bound of each bucket, and the observations up to it. The last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.enumerate().map(|(at, bound)| {
            let up_to = self.counts.iter().take(at + 1);
            (bound, up_to.sum())
        })
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The values of the labels, in the order of their names.
    pub labels: Vec<String>,
    pub value: Value,
}

/// A family with all of its samples.
#[derive(Debug)]
pub struct Family {
    pub definition: &'static Definition,
    pub samples: Vec<Sample>,
}

/// The families of an exposition, each once. A family without a sample is absent.
#[derive(Debug, Default)]
pub struct Families(Vec<Family>, BTreeSet<(&'static str, Vec<String>)>);

impl Families {
    pub fn iter(&self) -> impl Iterator<Item = &Family> {
        self.0.iter()
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, definition: &'static Definition, labels: &[&str], value: f64) {
        self.add(definition, labels, Value::Number(value));
    }

    /// Adds a gauge, if its value is known.
    pub fn known(&mut self, of: &'static Definition, labels: &[&str], value: Option<u64>) {
        if let Some(value) = value {
            self.gauge(of, labels, value as f64);
        }
    }

    /// Adds an info.
    pub fn info(&mut self, definition: &'static Definition, labels: &[&str]) {
        self.add(definition, labels, Value::Number(1.0));
    }

    /// Adds a sample. A second one with the same labels would make the whole exposition invalid, so the first stays.
    pub fn add(&mut self, definition: &'static Definition, labels: &[&str], value: Value) {
        debug_assert_eq!(definition.labels.len(), labels.len(), "{}", definition.name);
        let labels: Vec<String> = labels.iter().map(|text| label::safe(text)).collect();
        if !self.1.insert((definition.name, labels.clone())) {
            return;
        }
        let sample = Sample { labels, value };
        match self
            .0
            .iter_mut()
            .find(|f| f.definition.name == definition.name)
        {
            Some(family) => family.samples.push(sample),
            None => self.0.push(Family {
                definition,
                samples: vec![sample],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::metrics::table;

    #[test]
    fn keeps_first_of_equal_series() {
        let mut families = Families::default();
        families.gauge(&table::WAITING, &["slice", ""], 1.0);
        families.gauge(&table::WAITING, &["slice", ""], 2.0);
        families.gauge(&table::WAITING, &["share", ""], 3.0);
        let samples = &families.iter().next().unwrap().samples;
        let values: Vec<&Value> = samples.iter().map(|sample| &sample.value).collect();
        assert_eq!(values, [&Value::Number(1.0), &Value::Number(3.0)]);
    }

    #[test]
    fn buckets_add_up() {
        let histogram = Histogram {
            bounds: vec![0.1, 1.0],
            counts: vec![2, 3, 1],
            sum: 4.5,
        };
        let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
        assert_eq!(buckets, [(0.1, 2), (1.0, 5), (f64::INFINITY, 6)]);
        assert_eq!(histogram.count(), 6);
    }
}
