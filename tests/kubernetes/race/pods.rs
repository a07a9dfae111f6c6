//! The user of Kubernetes: pods with an annotation and pods with a claim, that run until they are deleted.

use super::{PROFILES, RACER, Race};
use crate::node::pod_spec;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use testkit::random::Random;

/// The pods at a time.
const MAX: usize = 9;

/// The way in which a pod requests its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Annotation,
    /// On the plain low-level runtime.
    Claim,
    /// On the class runmig.
    SealedClaim,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Runs,
    /// The user reads why not.
    Refused(&'static str, String),
    Starts,
}

/// A pod that nobody has deleted yet.
#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub kind: Kind,
    pub profile: String,
    /// The scheduler has found a place.
    pub is_bound: bool,
    pub state: State,
}

impl Pod {
    pub fn has_claim(&self) -> bool {
        self.kind != Kind::Annotation
    }
}

pub struct Pods<'a> {
    race: &'a Race<'a>,
    random: Random,
    made: u64,
    /// Those that were counted, with the outcome.
    counted: BTreeSet<(String, &'static str)>,
}

impl<'a> Pods<'a> {
    pub fn new(race: &'a Race<'a>, random: Random) -> Pods<'a> {
        for (profile, ..) in PROFILES {
            let request =
                json!({"name": "slice", "exactly": {"deviceClassName": format!("mig-{profile}")}});
            race.node.apply(&json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": profile},
                "spec": {"spec": {"devices": {"requests": [request]}}},
            }));
        }
        Pods {
            race,
            random,
            made: 0,
            counted: BTreeSet::new(),
        }
    }

    /// Removes the templates.
    pub fn end(&self) {
        for (profile, ..) in PROFILES {
            let template = ["delete", "resourceclaimtemplate", "--ignore-not-found"];
            let node = self.race.node;
            node.kubectl(&[&template[..], &[profile]].concat()).ok();
        }
    }

    /// Counts the pods' outcomes, deletes some of those that have one, and creates others.
    pub fn act(&mut self) {
        let pods = self.all();
        let mut gone = Vec::new();
        for pod in &pods {
            self.note(pod);
            let one_in = match (&pod.state, pod.kind) {
                (State::Starts, _) => continue,
                (State::Runs, _) | (_, Kind::Annotation) => 3,
                (State::Refused(..), _) => 10,
            };
            if self.random.one_in(one_in) {
                gone.push(pod.name.as_str());
            }
        }
        self.delete(&gone);
        if pods.len() < MAX {
            let manifests: Vec<Value> = (0..=self.random.below(3))
                .map(|_| {
                    let kind = self.random.of(&[
                        Kind::Annotation,
                        Kind::Claim,
                        Kind::Claim,
                        Kind::SealedClaim,
                    ]);
                    let (profile, ..) = self.random.of(&PROFILES);
                    self.manifest(kind, profile).1
                })
                .collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
            self.race.node.apply(&list);
        }
        std::thread::sleep(Duration::from_millis(self.random.below(400)));
    }

    /// Creates a pod, and returns its name.
    pub fn create(&mut self, kind: Kind, profile: &str) -> String {
        let (name, manifest) = self.manifest(kind, profile);
        self.race.node.apply(&manifest);
        name
    }

    fn note(&mut self, pod: &Pod) {
        let kind = match pod.kind {
            Kind::Annotation => "annotation",
            Kind::Claim | Kind::SealedClaim => "claim",
        };
        let outcome = match &pod.state {
            State::Starts => return,
            State::Runs => "started",
            State::Refused(why, _) => why,
        };
        if self.counted.insert((pod.name.clone(), outcome)) {
            self.race.count(format!("{kind} {outcome}"));
        }
    }

    fn manifest(&mut self, kind: Kind, profile: &str) -> (String, Value) {
        self.made += 1;
        let name = format!("{}-{}", format!("{kind:?}").to_lowercase(), self.made);
        let mut spec = pod_spec("trap 'exit 0' TERM; sleep 10000 & wait", "Always");
        spec["terminationGracePeriodSeconds"] = json!(1);
        spec["containers"][0]["env"] = json!([{"name": RACER, "value": name}]);
        let mut annotations = json!({});
        match kind {
            Kind::Annotation => annotations = json!({"runmig.dev/slice": profile}),
            Kind::Claim | Kind::SealedClaim => {
                spec["resourceClaims"] =
                    json!([{"name": "gpu", "resourceClaimTemplateName": profile}]);
                spec["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
            }
        }
        if kind == Kind::Claim {
            spec.as_object_mut().unwrap().remove("runtimeClassName");
        }
        let labels = json!({"race": profile});
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations, "labels": labels},
            "spec": spec,
        });
        (name, manifest)
    }

    /// Returns the pods that nobody has deleted yet.
    pub fn all(&self) -> Vec<Pod> {
        let node = self.race.node;
        let refused = "--field-selector=reason=FailedPrepareDynamicResources";
        let refusals = node.get(&["events", refused]);
        let pods = node.get(&["pods", "--selector=race"]);
        let items = pods["items"].as_array().unwrap().iter();
        items
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .map(|pod| read(pod, &refusals))
            .collect()
    }

    pub fn delete(&self, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        let delete = ["delete", "pods", "--wait=false", "--ignore-not-found"];
        let node = self.race.node;
        node.kubectl(&[&delete[..], names].concat()).ok();
    }
}

fn read(pod: &Value, refusals: &Value) -> Pod {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&pod["metadata"]["name"]);
    let kind = match name.split('-').next() {
        Some("annotation") => Kind::Annotation,
        Some("claim") => Kind::Claim,
        _ => Kind::SealedClaim,
    };
    let status = &pod["status"];
    let conditions = status["conditions"].as_array();
    let condition = |name: &str| conditions?.iter().find(|c| c["type"] == name);
    let is = |name: &str| condition(name).is_some_and(|c| c["status"] == "True");
    let container = &status["containerStatuses"][0];
    let of_container = [&container["state"], &container["lastState"]];
    let mut messages = of_container.iter().flat_map(|state| {
        ["waiting", "terminated"].map(|way| state[way]["message"].as_str().unwrap_or_default())
    });
    let no_room = messages.find(|m| m.contains("cannot allocate"));
    let refusal = { refusals["items"].as_array().into_iter().flatten() }
        .find(|event| event["involvedObject"]["uid"] == pod["metadata"]["uid"]);
    let unscheduled = condition("PodScheduled").filter(|c| c["status"] == "False");
    let state = match (no_room, refusal, unscheduled) {
        _ if is("Ready") => State::Runs,
        (Some(why), ..) => State::Refused("refused: no room", why.to_owned()),
        (_, Some(event), _) => State::Refused("refused: Prepare failed", text(&event["message"])),
        (.., Some(why)) => State::Refused("refused: not scheduled", text(&why["message"])),
        (None, None, None) => State::Starts,
    };
    Pod {
        name,
        kind,
        profile: text(&pod["metadata"]["labels"]["race"]),
        is_bound: is("PodScheduled"),
        state,
    }
}
