//! Looks at processes, ledger and driver all the time: each container that runs has its own slice.
//!
//! The looks are not at one moment. A process that two looks show lived between them, and so did two records that two
//! looks show.

use super::{RACER, Race};
use crate::node::Node;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use testkit::Instance;

/// The init of a container of the race.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Init {
    racer: String,
    /// The first MIG UUID in its environment.
    uuid: String,
}

/// By the pid in the node, and the start time.
type Inits = BTreeMap<(i64, String), Init>;

pub fn watch(race: &Race) {
    let mut before = Vec::new();
    while !race.is_over() {
        let first = inits(race.node);
        let leases = race.node.leases();
        let instances = race.node.machine.instances();
        let second = inits(race.node);
        let lived = first
            .into_iter()
            .filter(|(id, init)| second.get(id) == Some(init));
        each_has_its_own(&lived.collect(), &leases, &instances);
        no_two_overlap(&before, &leases);
        apart(&instances);
        before = leases;
        race.count("looks");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn inits(node: &Node) -> Inits {
    let proc = node.root().join("proc");
    let entries = fs::read_dir(proc).unwrap().flatten();
    let init = |entry: fs::DirEntry| {
        let pid: i64 = entry.file_name().to_str()?.parse().ok()?;
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let environment = read("environ")?;
        let variables = || {
            environment
                .split('\0')
                .filter_map(|one| one.split_once('='))
        };
        let (_, racer) = variables().find(|(name, _)| *name == RACER)?;
        // The first process of its own namespace.
        let status = read("status")?;
        let numbers = status.lines().find(|line| line.starts_with("NSpid:"))?;
        (numbers.split_whitespace().count() > 2 && numbers.split_whitespace().last()? == "1")
            .then_some(())?;
        let uuid = variables()
            .map(|(_, value)| value)
            .find(|v| v.starts_with("MIG-"));
        let stat = read("stat")?;
        let started = stat.rsplit(") ").next()?.split(' ').nth(19)?.to_owned();
        let init = Init {
            racer: racer.to_owned(),
            uuid: uuid.unwrap_or_default().to_owned(),
        };
        Some(((pid, started), init))
    };
    entries.filter_map(init).collect()
}

/// Each container has a slice that no other one has, by its own lease, at the place on record.
fn each_has_its_own(lived: &Inits, leases: &[Value], instances: &[Instance]) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for ((pid, _), init) in lived {
        let all = || format!("{leases:#?}\n{instances:#?}\n{lived:#?}");
        let Init { racer, uuid } = init;
        assert!(!uuid.is_empty(), "{racer} runs without a slice\n{}", all());
        let other = users.insert(uuid, racer);
        assert_eq!(other, None, "{racer} has the same slice\n{}", all());
        let of_it = |lease: &&Value| lease["initPid"] == *pid && lease["migUUID"] == uuid.as_str();
        let Some(lease) = leases.iter().find(of_it) else {
            panic!("{racer} (process {pid}) has no lease on {uuid}\n{}", all());
        };
        assert_eq!(lease["state"], "ready", "{racer}\n{}", all());
        let is_its = lease["pod"].is_null() || lease["pod"] == racer.as_str();
        assert!(is_its, "{racer} has the lease of another\n{}", all());
        let place = &lease["migPlacement"];
        let is_there = instances
            .iter()
            .any(|i| i.uuid == *uuid && place["start"] == i.start && place["size"] == i.size);
        assert!(is_there, "{racer} has lost {uuid}\n{}", all());
    }
}

fn no_two_overlap(before: &[Value], leases: &[Value]) {
    let was_so = |lease: &&Value| {
        before.iter().any(|old| {
            ["id", "migPlacement", "gpuInstanceID"]
                .iter()
                .all(|key| old[*key] == lease[*key])
        })
    };
    let lasting: Vec<&Value> = leases.iter().filter(was_so).collect();
    for (at, one) in lasting.iter().enumerate() {
        for other in &lasting[at + 1..] {
            let same = |key: &str| one[key] == other[key];
            // A claim's containers are on its slice.
            let is_shared = !one["gpuInstanceID"].is_null() && same("gpuInstanceID") && same("pod");
            assert!(
                is_shared || !overlap(&one["migPlacement"], &other["migPlacement"]),
                "two leases on one place: {one:#}\n{other:#}"
            );
        }
    }
}

fn overlap(one: &Value, other: &Value) -> bool {
    let bounds = |place: &Value| {
        let start = place["start"].as_u64().unwrap();
        (start, start + place["size"].as_u64().unwrap())
    };
    let (one, other) = (bounds(one), bounds(other));
    one.0 < other.1 && other.0 < one.1
}

fn apart(instances: &[Instance]) {
    let mut ends = 0;
    let mut sorted: Vec<&Instance> = instances.iter().collect();
    sorted.sort_by_key(|instance| instance.start);
    for instance in sorted {
        assert!(instance.start >= ends, "overlap: {instances:#?}");
        ends = instance.start + instance.size;
    }
}
