//! The checks of the cluster: API server, feature gates, rights, and other drivers.

use super::{Finding, fail, ok, warn};
use crate::api;
use crate::api::probe::{self, Client, Right};
use crate::options::Options;
use runmig_lease::error::{Error, Result};

/// The rights without which no claim works.
const NEEDED: &[Right] = &[
    ("resource.k8s.io", "resourceslices", "list"),
    ("resource.k8s.io", "resourceslices", "watch"),
    ("resource.k8s.io", "resourceslices", "create"),
    ("resource.k8s.io", "resourceslices", "update"),
    ("resource.k8s.io", "resourceslices", "delete"),
    ("resource.k8s.io", "resourceclaims", "get"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
];

/// The rights without which the driver serves claims, but reports nothing, or does not see other drivers on the node.
const USEFUL: &[Right] = &[
    ("resource.k8s.io", "resourceclaims/status", "patch"),
    (
        "resource.k8s.io",
        "resourceclaims/driver",
        "associated-node:patch",
    ),
    ("events.k8s.io", "events", "create"),
    ("", "nodes", "get"),
];

pub(super) async fn findings(options: &Options) -> Vec<Finding> {
    let client = match api::connect(options.kubeconfig.as_deref()).await {
        Ok(client) => client,
        Err(e) => return vec![fail(&e)],
    };
    let version = match probe::version(&client).await {
        Ok(version) => version,
        Err(e) => return vec![fail(&e)],
    };
    let mut findings = vec![match probe::is_new_enough(&version) {
        true => ok(format!("the API server has version {version}")),
        false => fail(
            &Error::new(format!(
                "cannot publish GPUs: the API server has version {version}"
            ))
            .hint("upgrade the cluster to Kubernetes 1.36"),
        ),
    }];
    findings.extend(rights(&client).await);
    findings.extend(gates(&client, &options.node).await);
    findings.push(classes(&client).await);
    findings.push(match probe::has_node(&client, &options.node).await {
        Ok(true) => ok(format!("the cluster has Node {}", options.node)),
        Ok(false) => fail(
            &Error::new(format!(
                "cannot publish GPUs: the cluster has no Node {}",
                options.node
            ))
            .hint("name this node with --node as kubectl get nodes does"),
        ),
        Err(e) => warn(&e),
    });
    findings.push(match probe::rival(&client, &options.node).await {
        Ok(None) => ok("no other driver gives out the GPUs of this node"),
        Ok(Some(rival)) => fail(
            &Error::new(format!("cannot publish GPUs: {rival}"))
                .hint("remove the other driver from this node, or runmig-dra"),
        ),
        Err(e) => warn(&e),
    });
    findings.push(
        match probe::intruder_anywhere(&client, &options.node).await {
            Ok(None) => ok("no other program publishes under the name of this driver"),
            Ok(Some(other)) => fail(
                &Error::new(format!("cannot publish GPUs alone: {other}"))
                    .hint("delete the ResourceSlice, and end the program that wrote it"),
            ),
            Err(e) => warn(&e),
        },
    );
    findings
}

async fn rights(client: &Client) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (rights, is_needed) in [(NEEDED, true), (USEFUL, false)] {
        for (group, resource, verb) in rights {
            let lacks = Error::new(format!(
                "cannot {verb} {resource}: this account lacks the right"
            ))
            .hint("apply the ClusterRole of runmig-dra, or use its account");
            match probe::may(client, (group, resource, verb)).await {
                Ok(true) => {}
                Ok(false) if is_needed => findings.push(fail(&lacks)),
                Ok(false) => findings.push(warn(&lacks)),
                Err(e) => return vec![fail(&e)],
            }
        }
    }
    if findings.is_empty() {
        findings.push(ok("this account has all rights"));
    }
    findings
}

async fn gates(client: &Client, node: &str) -> Vec<Finding> {
    let counters = probe::keeps_counters(client, node).await;
    let extended = probe::keeps_extended_resource(client).await;
    let status = "DRAResourceClaimDeviceStatus";
    let is_on = probe::gate(client, status).await.and_then(|is_on| {
        is_on.ok_or_else(|| Error::new("the API server does not know the feature gate"))
    });
    let off = |gate: &str, effect: &str| {
        Error::new(format!(
            "cannot use feature gate {gate}: it is off, and {effect}"
        ))
        .hint(format!(
            "remove {gate}=false from the flags of kube-apiserver"
        ))
    };
    let told = |gate: &str, seen: Result<bool>, effect: &str| match seen {
        Ok(true) => Ok(ok(format!("feature gate {gate} is on"))),
        Ok(false) => Err(off(gate, effect)),
        Err(e) => Ok(warn(
            &Error::new(format!("cannot find out whether feature gate {gate} is on"))
                .hint("run runmig-dra check with an administrator's --kubeconfig")
                .caused_by(e),
        )),
    };
    let counters = told(
        "DRAPartitionableDevices",
        counters,
        "the API server drops counters",
    );
    let extended = told(
        "DRAExtendedResource",
        extended,
        "pods cannot request nvidia.com/mig-… without a claim",
    );
    let status = told(status, is_on, "claims do not show their slices");
    vec![
        counters.unwrap_or_else(|e| fail(&e)),
        extended.unwrap_or_else(|e| fail(&e)),
        status.unwrap_or_else(|e| warn(&e)),
    ]
}

/// Looks for classes of others with the extended resources of ours, of which the newest wins.
async fn classes(client: &Client) -> Finding {
    let all = match probe::classes(client).await {
        Ok(all) => all,
        Err(e) => {
            return warn(&e.hint("run runmig-dra check with an administrator's --kubeconfig"));
        }
    };
    let ours = |name: &str, resource: &str| resource == format!("nvidia.com/{name}");
    let is_mig = |resource: &str| resource.starts_with("nvidia.com/mig-");
    let other = all.iter().find_map(|(name, resource)| {
        let resource = resource.as_deref().filter(|r| is_mig(r))?;
        (!ours(name, resource)).then_some((name, resource))
    });
    let has_ours = all.iter().any(|(name, resource)| {
        resource
            .as_deref()
            .is_some_and(|r| is_mig(r) && ours(name, r))
    });
    match (other, has_ours) {
        (Some((name, resource)), _) => fail(
            &Error::new(format!(
                "cannot serve {resource} alone: DeviceClass {name} has the same extended resource, and the newest class wins"
            ))
            .hint("remove one of the two classes"),
        ),
        (None, false) => warn(
            &Error::new("cannot serve extended resources: the cluster has no DeviceClass with nvidia.com/mig-…")
                .hint("kubectl apply -f kubernetes/dra/classes.yaml"),
        ),
        (None, true) => ok("each extended resource has one DeviceClass"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// The rights in the shipped ClusterRole are those that the check looks for.
    #[test]
    fn asks_for_the_shipped_rights() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../kubernetes/dra/rights.yaml"
        );
        let text = std::fs::read_to_string(file).unwrap();
        let objects = text.split("\n---\n");
        let objects = objects.map(|object| serde_saphyr::from_str::<Value>(object).unwrap());
        let role = { objects }.find(|object| object["kind"] == "ClusterRole");
        let mut shipped = BTreeSet::new();
        for rule in role.unwrap()["rules"].as_array().unwrap() {
            let words = |key: &str| {
                let words = rule[key].as_array().unwrap().iter();
                words
                    .map(|word| word.as_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            };
            for resource in words("resources") {
                for verb in words("verbs") {
                    shipped.insert((words("apiGroups")[0].clone(), resource.clone(), verb));
                }
            }
        }
        let asked = NEEDED.iter().chain(USEFUL).map(|(group, resource, verb)| {
            (
                (*group).to_owned(),
                (*resource).to_owned(),
                (*verb).to_owned(),
            )
        });
        assert_eq!(asked.collect::<BTreeSet<_>>(), shipped);
    }
}
