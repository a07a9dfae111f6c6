//! The requests and the machines: workloads.toml, or mixes drawn at random.

use super::world::{Kind, Random};
use nvml_sim::engine::Model;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workloads {
    pub loads: Vec<f64>,
    pub fleets: Vec<Fleet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// Models and how many of each, in the order of their indices.
    gpus: Vec<(String, usize)>,
    pub mixes: Vec<Mix>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    pub name: String,
    shares: BTreeMap<String, f64>,
}

impl Workloads {
    pub fn read() -> Workloads {
        toml::from_str(include_str!("workloads.toml")).expect("workloads.toml")
    }

    /// In place of its mixes, each fleet has so many that nobody thought of: of what its mixes ask for,
    /// some, in any shares.
    pub fn with_random_mixes(self, number: u64) -> Workloads {
        let random = |fleet: Fleet| {
            let shares = fleet.mixes.iter().flat_map(|mix| mix.shares.keys());
            let names: BTreeSet<&String> = shares.collect();
            let mixes = (0..number).map(|seed| Mix::random(&names, seed)).collect();
            Fleet { mixes, ..fleet }
        };
        Workloads {
            fleets: self.fleets.into_iter().map(random).collect(),
            ..self
        }
    }
}

impl Mix {
    fn random(names: &BTreeSet<&String>, seed: u64) -> Mix {
        let mut random = Random(seed);
        let mut shares = BTreeMap::new();
        while shares.len() < 2 {
            for name in names {
                if random.uniform() < 0.5 {
                    shares.insert((*name).clone(), random.exponential());
                }
            }
        }
        Mix {
            name: format!("random {seed}"),
            shares,
        }
    }
}

impl Fleet {
    pub fn name(&self) -> String {
        let all: Vec<String> = self
            .gpus
            .iter()
            .map(|(m, n)| format!("{n} × {m}"))
            .collect();
        all.join(", ")
    }

    /// Returns the model of each GPU.
    pub fn models(&self) -> Vec<&'static Model> {
        let of = |(name, count): &(String, usize)| {
            let model = Model::find(name).expect("a model of the simulated driver");
            vec![model; *count]
        };
        self.gpus.iter().flat_map(of).collect()
    }

    pub fn kinds(&self, mix: &Mix) -> Vec<Kind> {
        let models = self.models();
        let total: f64 = mix.shares.values().sum();
        let shares = mix.shares.iter();
        shares
            .map(|(name, share)| Kind::new(name, share / total, &models))
            .collect()
    }
}
