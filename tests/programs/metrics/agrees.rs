//! The values are those of `migctl list -o json` and `migctl gpus -o json`.

use super::reading::{Exposition, Series};
use super::*;
use testkit::prelude::*;

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Checks every lease, and that there is no other.
#[track_caller]
pub fn leases_agree(list: &[Value], seen: &Exposition) {
    assert_eq!(seen.of("runmig_lease_info").len(), list.len());
    for lease in list {
        let id = text(&lease["id"]);
        let its: Vec<&Series> = seen.find("runmig_lease_info", &[("lease", &id)]);
        assert_eq!(its.len(), 1, "{lease}");
        let name = match &lease["containerName"] {
            Value::Null => "container",
            _ => "containerName",
        };
        for (label, field) in [
            ("kind", "kind"),
            ("state", "state"),
            ("UUID", "gpuUUID"),
            ("GPU_I_ID", "gpuInstanceID"),
            ("enforcement", "enforcement"),
            ("namespace", "namespace"),
            ("pod", "pod"),
            ("container", name),
            ("container_id", "container"),
            ("request", "request"),
        ] {
            assert_eq!(its[0].label(label), text(&lease[field]), "{label}: {lease}");
        }
        let claim = text(&lease["claim"]["name"]);
        assert_eq!(its[0].label("claim"), claim, "{lease}");
        for (family, field) in [
            ("runmig_lease_memory_bytes", "memoryBytes"),
            ("runmig_lease_booked_bytes", "bookedBytes"),
            ("runmig_lease_memory_used_bytes", "usedBytes"),
        ] {
            let values = seen.find(family, &[("lease", &id)]);
            let values: Vec<f64> = values.iter().map(|series| series.value).collect();
            let wanted: Vec<f64> = lease[field].as_f64().into_iter().collect();
            assert_eq!(values, wanted, "{family}: {lease}");
        }
        let created = humantime::parse_rfc3339(&text(&lease["created"])).unwrap();
        let created = created.duration_since(std::time::UNIX_EPOCH).unwrap();
        let seen = seen.value("runmig_lease_created_timestamp_seconds", &[("lease", &id)]);
        assert_eq!(seen, created.as_secs_f64());
    }
    for (kind, state) in [("slice", "ready"), ("share", "ready"), ("gpu", "creating")] {
        let is_it = |lease: &&Value| lease["kind"] == kind && lease["state"] == state;
        let count = list.iter().filter(is_it).count() as f64;
        let labels = [("kind", kind), ("state", state)];
        assert_eq!(seen.value("runmig_leases", &labels), count, "{labels:?}");
    }
}

#[test]
fn leases_are_those_of_list() {
    let setup = setup();
    fill(&setup);
    let list = setup.leases();
    let kinds: BTreeSet<String> = list.iter().map(|lease| text(&lease["kind"])).collect();
    assert_eq!(Vec::from_iter(&kinds), ["gpu", "seat", "share", "slice"]);
    leases_agree(&list, &metrics(&setup, &[]));
    // The ledger alone knows all but the memory in use.
    let alone = metrics(&setup, &["--no-driver"]);
    assert_eq!(alone.of("runmig_lease_info").len(), list.len());
    assert_eq!(alone.of("runmig_driver_up"), Vec::<&Series>::new());
}

/// The states of memory slices are those of `gpus`, and each kind of amount adds up to the GPU's.
#[test]
fn amounts_are_those_of_gpus() {
    let setup = setup();
    fill(&setup);
    let seen = metrics(&setup, &[]);
    let gpus = setup.items(&["gpus"]);
    assert_eq!(seen.of("runmig_gpu_info").len(), gpus.len());
    for gpu in &gpus {
        let uuid = text(&gpu["uuid"]);
        let info = seen.find("runmig_gpu_info", &[("UUID", &uuid)]);
        for (label, field) in [
            ("gpu", "index"),
            ("modelName", "name"),
            ("pci_bus_id", "pciBusID"),
            ("mig_mode", "migMode"),
            ("mig_mode_pending", "migModePending"),
            ("use", "use"),
        ] {
            assert_eq!(info[0].label(label), text(&gpu[field]), "{label}: {gpu}");
        }
        let sum = |family: &str| -> f64 {
            let all = seen.find(family, &[("UUID", &uuid)]);
            assert_eq!(all.len(), 5, "{family} of {uuid}");
            all.iter().map(|series| series.value).sum()
        };
        let slices = gpu["slices"].as_array().unwrap();
        let all = sum("runmig_gpu_memory_slices");
        assert_eq!(all, slices.len() as f64, "{gpu}");
        for state in ["leased", "idle", "quarantined", "foreign", "free"] {
            let is_it = |slice: &&Value| slice["state"] == state;
            let count = slices.iter().filter(is_it).count();
            let labels = [("UUID", &*uuid), ("state", state)];
            seen.has("runmig_gpu_memory_slices", &labels, count as f64);
        }
        let has_mig = gpu["migMode"] == "enabled";
        let compute = if has_mig { 7.0 } else { 1.0 };
        assert_eq!(sum("runmig_gpu_compute_slices"), compute);
        assert!(sum("runmig_gpu_memory_bytes") > (20_u64 << 30) as f64);
        if let Some(all) = gpu["memoryBytes"].as_f64().filter(|_| gpu["use"] != "mig") {
            assert_eq!(sum("runmig_gpu_memory_bytes"), all, "{gpu}");
        }
        for profile in gpu["profiles"].as_array().unwrap() {
            let name = text(&profile["name"]);
            let labels = [("UUID", &*uuid), ("GPU_I_PROFILE", &*name)];
            for (family, field) in [("free", "instancesFree"), ("max", "instancesTotal")] {
                let family = format!("runmig_gpu_profile_{family}");
                seen.has(&family, &labels, profile[field].as_f64().unwrap());
            }
        }
        let ratio = seen.find("runmig_gpu_fragmentation_ratio", &[("UUID", &uuid)]);
        let ratio: Vec<f64> = ratio.iter().map(|series| series.value * 100.0).collect();
        let percent: Vec<f64> = gpu["fragmentationPercent"].as_f64().into_iter().collect();
        assert_eq!(ratio, percent, "{gpu}");
    }
    let of = |use_: &str| {
        let gpu = gpus.iter().find(|gpu| gpu["use"] == use_);
        text(&gpu.unwrap()["uuid"])
    };
    for (uuid, state, mib) in [
        (of("shared"), "leased", 12 << 10),
        (of("exclusive"), "free", 0),
        (setup.machine.gpu_uuid(1), "foreign", 40_192),
    ] {
        let labels = [("UUID", &*uuid), ("state", state)];
        let bytes = f64::from(mib) * 1_048_576.0;
        seen.has("runmig_gpu_memory_bytes", &labels, bytes);
    }
}

/// A join needs one series for each GPU instance, whoever shares it.
#[test]
fn each_slice_has_one_series() {
    let setup = setup();
    fill(&setup);
    let seen = metrics(&setup, &[]);
    let infos = seen.of("runmig_slice_info");
    let key =
        |series: &&Series| [series.label("UUID"), series.label("GPU_I_ID")].map(str::to_owned);
    let keys: BTreeSet<[String; 2]> = infos.iter().map(key).collect();
    assert_eq!(keys.len(), infos.len(), "{infos:#?}");
    let instances = setup.machine.instances();
    assert_eq!(infos.len(), instances.len() + 2, "two GPUs have no MIG");
    let one = |labels: &[(&str, &str)]| {
        let found = seen.find("runmig_slice_info", labels);
        assert_eq!(found.len(), 1, "{labels:?}: {found:?}");
        found[0].clone()
    };
    for instance in &instances {
        let (uuid, gi) = (&*instance.gpu_uuid, &*instance.gi.to_string());
        let key = [("UUID", uuid), ("GPU_I_ID", gi)];
        let info = one(&key);
        let place = format!("{}:{}", instance.start, instance.size);
        info.is(&[("GPU_I_PROFILE", &instance.profile), ("placement", &place)]);
        let is_foreign = info.label("state") == "foreign";
        info.is(&[("mig_uuid", if is_foreign { "" } else { &instance.uuid })]);
        let used = seen.find("runmig_slice_memory_used_bytes", &key);
        assert_eq!(used.len(), usize::from(!is_foreign));
    }
    for (key, is) in testkit::rows! {
        ("pod", "web") => &[("namespace", "team"), ("container", ""), ("lease", ""), ("state", "leased")][..];
        ("pod", "job") => &[("container", "alone")];
        ("pod", "seats") => &[("kind", "seat"), ("container", "")];
        ("pod", "infer") => &[("kind", "share"), ("GPU_I_ID", ""), ("container", "")];
        ("kind", "gpu") => &[("container", "main"), ("GPU_I_PROFILE", "")];
        ("claim", "train-gpu") => &[("pod", "train"), ("container", "")];
        ("state", "foreign") => &[("kind", ""), ("pod", "")];
    } {
        one(&[key]).is(is);
    }
    assert_eq!(one(&[("pod", "job")]).label("lease").len(), 32);
}

/// The reuse of an id, and a record whose instance is gone, name no wrong container.
#[test]
fn reused_id_names_its_container() {
    let setup = setup();
    let first = create(&setup, "old", "main", SLICE);
    let id = setup.the_lease()["gpuInstanceID"].to_string();
    setup.delete(&first);
    create(&setup, "new", "main", SLICE);
    assert_eq!(setup.the_lease()["gpuInstanceID"].to_string(), id);
    let seen = metrics(&setup, &[]);
    let infos = seen.find("runmig_slice_info", &[("GPU_I_ID", &id)]);
    assert_eq!(infos.len(), 1);
    assert_eq!(infos[0].label("pod"), "new");
}

#[test]
fn limits_count_their_groups() {
    let setup = setup();
    setup.configure(
        "sharing.enforcement = [\"none\"]\n[[policy.limit]]\nnamespace = \"*\"\nslices = 5\nshares = 9\n\
         [[policy.limit]]\nmemory = \"64Gi\"\n[[policy.limit]]\nnamespace = \"nobody\"\ngpus = 1\n",
    );
    create(&setup, "web", "one", SLICE);
    create(&setup, "web", "two", &[("runmig.dev/share", "4Gi")]);
    let seen = metrics(&setup, &[]);
    let (team, machine) = (("1", "team"), ("2", ""));
    let memory = (9_728_u64 << 20) + (4_u64 << 30);
    for ((limit, namespace), amount, allowed, used) in [
        (team, "slices", 5, 1),
        (team, "shares", 9, 1),
        (machine, "memory", 64_u64 << 30, memory),
        (("3", "nobody"), "gpus", 1, 0),
    ] {
        let group = [("limit", limit), ("namespace", namespace)];
        let labels = [group, [("pod", ""), ("user", "")]].concat();
        let labels = [&labels[..], &[("amount", amount)]].concat();
        seen.has("runmig_limit", &labels, allowed as f64);
        seen.has("runmig_limit_used", &labels, used as f64);
    }
    let alone = metrics(&setup, &["--no-driver"]);
    let amounts = alone.of("runmig_limit_used");
    let amounts: Vec<&str> = amounts.iter().map(|one| one.label("amount")).collect();
    assert_eq!(amounts, ["slices", "shares", "gpus"]);
}
