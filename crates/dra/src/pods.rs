//! The pods of the node: pure, from a pod to the claims that it names.

use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

/// Returns the names of the claims of a pod that goes on.
pub(crate) fn claims_of(pod: &Pod) -> BTreeSet<String> {
    let status = pod.status.as_ref();
    let is_over = status
        .and_then(|s| s.phase.as_deref())
        .is_some_and(|phase| ["Succeeded", "Failed"].contains(&phase));
    if is_over || pod.metadata.deletion_timestamp.is_some() {
        return BTreeSet::new();
    }
    let spec = pod.spec.as_ref();
    let named = { spec.into_iter() }
        .flat_map(|s| s.resource_claims.iter().flatten())
        .filter_map(|c| c.resource_claim_name.clone());
    let generated = { status.into_iter() }
        .flat_map(|s| s.resource_claim_statuses.iter().flatten())
        .filter_map(|s| s.resource_claim_name.clone());
    let extended = { status.and_then(|s| s.extended_resource_claim_status.as_ref()) }
        .map(|s| s.resource_claim_name.clone());
    generated.chain(named).chain(extended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds_claims_of_every_kind() {
        let pod = |phase: &str| -> Pod {
            let pod = json!({
                "metadata": {"name": "p", "namespace": "n"},
                "spec": {"containers": [], "resourceClaims": [
                    {"name": "a", "resourceClaimName": "named"},
                    {"name": "b", "resourceClaimTemplateName": "t"},
                ]},
                "status": {
                    "phase": phase,
                    "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}, {"name": "c"}],
                    "extendedResourceClaimStatus": {"requestMappings": [], "resourceClaimName": "extended"},
                },
            });
            serde_json::from_value(pod).unwrap()
        };
        let names: Vec<String> = claims_of(&pod("Running")).into_iter().collect();
        assert_eq!(names, ["extended", "made", "named"]);
        assert!(claims_of(&pod("Succeeded")).is_empty());
        let mut going = pod("Running");
        going.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(claims_of(&going).is_empty() && claims_of(&Pod::default()).is_empty());
    }
}
