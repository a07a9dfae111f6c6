use super::*;
use serde_json::{Value, json};

const POOL: &str = "runmig.node";

fn asked() -> ClaimName {
    ClaimName {
        namespace: "team-a".to_owned(),
        name: "train-gpu".to_owned(),
        uid: "u-1".to_owned(),
    }
}

/// Returns a claim that this node prepares.
fn claim() -> Value {
    json!({
        "metadata": {"uid": "u-1"},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [
                {"driver": "gpu.runmig.dev", "pool": POOL, "device": "a", "request": "slice"},
                {"driver": "gpu.nvidia.com", "pool": "node", "device": "x", "request": "other"},
                {"driver": "gpu.runmig.dev", "pool": POOL, "device": "b", "request": "big/first"},
            ]}},
            "reservedFor": [
                {"apiGroup": "x.example", "resource": "jobs", "name": "j", "uid": "u-2"},
                {"resource": "pods", "name": "train", "uid": "u-3"},
            ],
        },
    })
}

fn judged(claim: &Value) -> Result<Allocated, String> {
    let found: ResourceClaim = serde_json::from_value(claim.clone()).unwrap();
    allocated(Some(found), &asked(), POOL).map_err(|e| e.line())
}

#[test]
fn takes_devices_of_this_driver() {
    let allocated = judged(&claim()).unwrap();
    assert_eq!(allocated.title, "train-gpu");
    let mut of_template = claim();
    of_template["metadata"]["annotations"] =
        json!({"resource.kubernetes.io/pod-claim-name": "gpu"});
    assert_eq!(judged(&of_template).unwrap().title, "gpu");
    let devices: Vec<_> = { allocated.devices.iter() }
        .map(|d| (d.request.as_str(), d.pool.as_str(), d.device.as_str()))
        .collect();
    assert_eq!(devices, [("slice", POOL, "a"), ("big/first", POOL, "b")]);
    let pods: Vec<_> = { allocated.devices[1].pods.iter() }
        .map(|p| (p.name.as_str(), p.uid.as_str()))
        .collect();
    assert_eq!(pods, [("train", "u-3")]);
}

#[test]
fn refuses_claims_with_reasons() {
    let line = |change: &dyn Fn(&mut Value)| {
        let mut claim = claim();
        change(&mut claim);
        judged(&claim).unwrap_err()
    };
    const AGAIN: &str =
        "; hint: delete the pod, so that the scheduler allocates a claim for its successor";
    let none = allocated(None, &asked(), POOL).unwrap_err().line();
    assert_eq!(none, format!("the claim does not exist any more{AGAIN}"));
    let replaced = line(&|claim| claim["metadata"]["uid"] = json!("u-9"));
    let words = "the claim has uid u-9, and the pod wants an earlier claim with uid u-1";
    assert_eq!(replaced, format!("{words}{AGAIN}"));
    let pending = line(&|claim| claim["status"]["allocation"] = Value::Null);
    assert_eq!(pending, format!("the claim is not allocated{AGAIN}"));
    let unused = line(&|claim| claim["status"]["reservedFor"][1]["resource"] = json!("jobs"));
    assert_eq!(unused, format!("the claim is reserved for no pod{AGAIN}"));
    let results = |claim: &mut Value, change: &dyn Fn(&mut Value)| {
        let results = &mut claim["status"]["allocation"]["devices"]["results"];
        results.as_array_mut().unwrap().iter_mut().for_each(change);
    };
    let foreign = line(&|claim| results(claim, &|r| r["driver"] = json!("x.example")));
    assert_eq!(
        foreign,
        format!("the claim has no device of gpu.runmig.dev{AGAIN}")
    );
    let elsewhere = line(&|claim| results(claim, &|r| r["pool"] = json!("runmig.other")));
    let words = "device a is in pool runmig.other, and this node's pool is runmig.node";
    assert_eq!(elsewhere, format!("{words}{AGAIN}"));
    let admin = line(&|claim| results(claim, &|r| r["adminAccess"] = json!(true)));
    let words = "request slice has adminAccess, and gpu.runmig.dev gives none";
    assert_eq!(
        admin,
        format!("{words}; hint: remove adminAccess from the claim")
    );
    let configured = line(&|claim| {
        claim["status"]["allocation"]["devices"]["config"] = json!([
            {"source": "FromClaim", "opaque": {"driver": "gpu.runmig.dev", "parameters": {}}},
        ]);
    });
    assert!(configured.starts_with(
        "the claim or its class has a configuration for gpu.runmig.dev, which has none; hint: "
    ));
}

#[test]
fn checks_uids_of_files() {
    check_uid("0b7d5d6c-1111-4222-8333-9c5a0ce4c3a2").unwrap();
    let long = "a".repeat(65);
    for uid in ["", "-", "..", "a/b", "a b", long.as_str()] {
        let line = check_uid(uid).unwrap_err().line();
        assert!(line.contains("is not a uid of Kubernetes"), "{line}");
    }
}

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
