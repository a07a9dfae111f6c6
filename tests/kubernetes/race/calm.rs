//! Nobody comes or goes: each pod runs or says why, and no claim waits for a free place.

use super::pods::{Pod, Pods, State};
use super::{PROFILES, Race};
use crate::node::eventually;
use serde_json::{Value, json};

/// Memory slices from the first number to before the second.
type Place = (u64, u64);

/// The allocated device of a claim, and its place on record.
struct Allocation {
    pod: String,
    device: Place,
    on_record: Option<Place>,
}

/// Until it is so. The scheduler holds a device for a claim whose promise moved or waits, so it counts that room twice;
/// such claims go first.
pub fn no_claim_waits_for_a_free_place(race: &Race, pods: &Pods) {
    let mut waiting: Vec<Pod> = Vec::new();
    eventually("no claim waits for a free place", || {
        if race.is_over() {
            return true;
        }
        let all = pods.all();
        let leases = race.node.leases();
        let allocations = allocations(&race.node.get(&["resourceclaims"]), &leases);
        let elsewhere = |a: &&Allocation| a.on_record != Some(a.device);
        let away: Vec<&str> = { allocations.iter().filter(elsewhere) }
            .map(|allocation| allocation.pod.as_str())
            .collect();
        let with_outcome = |pod: &&Pod| pod.state != State::Starts && away.contains(&&*pod.name);
        let gone: Vec<&str> = { all.iter().filter(with_outcome) }
            .map(|pod| pod.name.as_str())
            .collect();
        pods.delete(&gone);
        let mut taken: Vec<Place> = leases.iter().map(|l| place(&l["migPlacement"])).collect();
        taken.extend(allocations.iter().map(|allocation| allocation.device));
        waiting = all
            .iter()
            .filter(|pod| waits(pod, &taken))
            .cloned()
            .collect();
        waiting.is_empty() && gone.is_empty() && away.is_empty()
    });
    race.count("calms");
}

/// Whether a pod has no outcome yet, or waits although it need not.
fn waits(pod: &Pod, taken: &[Place]) -> bool {
    match &pod.state {
        State::Runs => false,
        State::Starts => true,
        // It has its device, so nothing but the kubelet's next try is to come.
        State::Refused(..) if pod.has_claim() && pod.is_bound => true,
        State::Refused(..) => pod.has_claim() && has_room(&pod.profile, taken),
    }
}

fn has_room(profile: &str, taken: &[Place]) -> bool {
    let (_, starts, size) = { PROFILES.iter() }
        .find(|(name, ..)| *name == profile)
        .unwrap();
    let is_free = |start: &&u64| {
        taken
            .iter()
            .all(|(from, to)| **start >= *to || **start + size <= *from)
    };
    starts.iter().any(|start| is_free(&start))
}

fn allocations(claims: &Value, leases: &[Value]) -> Vec<Allocation> {
    let items = claims["items"].as_array().unwrap().iter();
    let allocation = |claim: &Value| {
        let status = &claim["status"];
        let device = status["allocation"]["devices"]["results"][0]["device"].as_str()?;
        let mut end = device
            .rsplit('-')
            .map(|number| number.parse::<u64>().unwrap());
        let (size, start) = (end.next()?, end.next()?);
        let its = |lease: &&Value| lease["claim"]["uid"] == claim["metadata"]["uid"];
        let lease = leases.iter().find(its);
        let pod = status["reservedFor"][0]["name"].as_str();
        Some(Allocation {
            pod: pod.unwrap_or_default().to_owned(),
            device: (start, start + size),
            on_record: lease.map(|lease| place(&lease["migPlacement"])),
        })
    };
    items.filter_map(allocation).collect()
}

fn place(placement: &Value) -> Place {
    let start = placement["start"].as_u64().unwrap();
    (start, start + placement["size"].as_u64().unwrap())
}

/// The claims that are left run one after the other, without a competitor.
pub fn each_claim_gets_its_slice(race: &Race, pods: &Pods) {
    eventually("each claim has had its slice", || {
        let all = pods.all();
        let gone = { all.iter() }.filter(|pod| !pod.has_claim() || pod.state == State::Runs);
        let gone: Vec<&str> = gone.map(|pod| pod.name.as_str()).collect();
        pods.delete(&gone);
        race.is_over() || race.node.get(&["pods"])["items"] == json!([])
    });
}

/// The events about promises, which the driver tells once a pod.
pub fn count_events(race: &Race) {
    for (reason, what) in [
        ("SliceMoved", "promises moved"),
        ("SliceWaits", "promises waited for a slice on its way out"),
        (
            "FailedPrepareDynamicResources",
            "promises waited for a local slice",
        ),
    ] {
        let of = format!("--field-selector=reason={reason}");
        let events = race.node.get(&["events", &of]);
        for _ in events["items"].as_array().unwrap() {
            race.count(what);
        }
    }
}
