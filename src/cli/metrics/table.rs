//! All families with their types, labels and meanings. They are a promise: a later version adds families and labels, and
//! renames none. docs/metrics.md has this table.

use super::text::Definition;

macro_rules! families {
    ($($item:ident: $name:literal $kind:ident [$($label:literal)*] $help:literal)*) => {
        $(pub static $item: Definition = Definition {
            name: $name,
            kind: stringify!($kind),
            labels: &[$($label),*],
            help: $help,
        };)*
        /// All families, in the order of the document.
        #[cfg(test)]
        pub static ALL: &[&Definition] = &[$(&$item),*];
    };
}

families! {
    BUILD: "runmig_build_info" gauge ["version"]
        "The version of migctl."
    DRIVER: "runmig_driver_info" gauge ["version"]
        "The version of the NVIDIA driver."
    DRIVER_UP: "runmig_driver_up" gauge []
        "Whether every call of the driver succeeded in time: 1 or 0. Absent with --no-driver."
    LEASES: "runmig_leases" gauge ["kind" "state"]
        "Leases on record, in every state."
    INSTANCES: "runmig_instances" gauge ["resource" "state"]
        "Instances on record, in every state: MIG slices (mig), GPUs outside of MIG mode (gpu), MPS daemons (mps)."
    RECORDS_UNREADABLE: "runmig_records_unreadable" gauge []
        "1 while runmig cannot read its ledger, else 0."
    WAITING: "runmig_waiting" gauge ["kind" "GPU_I_PROFILE"]
        "Creates that wait for room, by the first alternative. The profile is empty if it depends on the GPU."
    WAITING_OLDEST: "runmig_waiting_oldest_timestamp_seconds" gauge []
        "When the earliest create began to wait. Absent if none waits."

    LIMIT: "runmig_limit" gauge ["limit" "amount" "namespace" "pod" "user"]
        "What a limit allows: slices, shares, gpus, or memory in bytes. Shares and GPUs that it does not name count as slices."
    LIMIT_USED: "runmig_limit_used" gauge ["limit" "amount" "namespace" "pod" "user"]
        "What counts against a limit. Memory is absent without the driver."

    CREATES: "runmig_creates_total" counter ["kind" "holder" "outcome"]
        "Requests by their outcome."
    CREATE_SECONDS: "runmig_create_seconds" histogram ["kind" "part"]
        "The time of a create: all of it, the wait for room, the driver, the low-level runtime."
    RELEASES: "runmig_releases_total" counter ["kind" "by"]
        "Released leases by the actor."
    RELEASE_SECONDS: "runmig_release_seconds" histogram ["kind"]
        "The time of a release."
    DESTROY_RETRIES: "runmig_destroy_retries_total" counter ["resource"]
        "Attempts to destroy an instance after a refusal of the driver."
    QUARANTINES: "runmig_quarantines_total" counter ["resource"]
        "Instances that runmig could not destroy."
    DRIVER_ERRORS: "runmig_driver_errors_total" counter ["code"]
        "Failed calls of the driver in creates and releases, by the return code of NVML."
    COLLECTION_LAST: "runmig_collection_last_timestamp_seconds" gauge []
        "When migctl gc last completed a collection."
    EXPOSITION_SECONDS: "runmig_exposition_seconds" gauge []
        "The time in which migctl made this exposition."

    GPU: "runmig_gpu_info" gauge ["UUID" "gpu" "modelName" "device" "pci_bus_id" "mig_mode" "mig_mode_pending" "use"]
        "A GPU. use is that of migctl gpus."
    GPU_CLOSED: "runmig_gpu_closed" gauge ["UUID" "gpu" "reason"]
        "1 for each reason why a GPU gives nothing new: cordoned, or a sign that it is sick. Absent without one."
    GPU_MEMORY: "runmig_gpu_memory_bytes" gauge ["UUID" "gpu" "state"]
        "The memory that a GPU gives out, in every state. The sum over the states is all of it."
    GPU_MEMORY_SLICES: "runmig_gpu_memory_slices" gauge ["UUID" "gpu" "state"]
        "Memory slices of a GPU, in every state. A GPU outside of MIG mode has none."
    GPU_COMPUTE_SLICES: "runmig_gpu_compute_slices" gauge ["UUID" "gpu" "state"]
        "Compute slices of a GPU, in every state. A GPU outside of MIG mode is one."
    GPU_FRAGMENTATION: "runmig_gpu_fragmentation_ratio" gauge ["UUID" "gpu"]
        "The part of the largest possible profile that only a move of other slices frees, as in migctl gpus."
    GPU_PROFILE_FREE: "runmig_gpu_profile_free" gauge ["UUID" "gpu" "GPU_I_PROFILE"]
        "Instances of a profile that the driver would make now."
    GPU_PROFILE_MAX: "runmig_gpu_profile_max" gauge ["UUID" "gpu" "GPU_I_PROFILE"]
        "Instances of a profile that fit on the empty GPU."

    SLICE: "runmig_slice_info" gauge
        ["UUID" "gpu" "GPU_I_ID" "kind" "GPU_I_PROFILE" "mig_uuid" "placement" "state" "namespace" "pod" "container" "claim" "lease"]
        "A GPU instance, or a GPU outside of MIG mode (empty GPU_I_ID). A label is empty if the leases there differ in it."
    SLICE_MEMORY: "runmig_slice_memory_bytes" gauge ["UUID" "gpu" "GPU_I_ID"]
        "The memory of a slice."
    SLICE_MEMORY_USED: "runmig_slice_memory_used_bytes" gauge ["UUID" "gpu" "GPU_I_ID"]
        "The memory in use on a slice. Absent for instances that others made."
    SLICE_COMPUTE_SLICES: "runmig_slice_compute_slices" gauge ["UUID" "gpu" "GPU_I_ID"]
        "The compute slices of a slice."

    LEASE: "runmig_lease_info" gauge
        ["lease" "kind" "UUID" "GPU_I_ID" "state" "enforcement" "namespace" "pod" "container" "container_id" "claim" "request"]
        "A lease, as in migctl list."
    LEASE_MEMORY: "runmig_lease_memory_bytes" gauge ["lease"]
        "The memory of a share, a seat or a whole GPU."
    LEASE_BOOKED: "runmig_lease_booked_bytes" gauge ["lease"]
        "The memory that a share, a seat or a whole GPU books."
    LEASE_MEMORY_USED: "runmig_lease_memory_used_bytes" gauge ["lease"]
        "The memory that the processes of a share's container use. Absent where the driver does not tell."
    LEASE_CREATED: "runmig_lease_created_timestamp_seconds" gauge ["lease"]
        "When the lease was created."
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn names_follow_prometheus() {
        let mut names = BTreeSet::new();
        for family in ALL {
            let name = family.name;
            assert!(names.insert(name), "{name} twice");
            assert!(name.starts_with("runmig_"), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name}");
            for suffix in ["_created", "_count", "_sum", "_bucket"] {
                assert!(!name.ends_with(suffix), "{name}: histograms add {suffix}");
            }
            let labels: BTreeSet<&&str> = family.labels.iter().collect();
            assert_eq!(labels.len(), family.labels.len(), "{name}");
            assert!(!labels.contains(&"le"), "{name}");
            let help = family.help;
            assert!(
                help.ends_with('.') && !help.contains(['\n', '\\', '"']),
                "{name}"
            );
        }
    }

    const BEGIN: &str = "<!-- families: UPDATE=1 cargo test -p runmig --lib cli::metrics -->\n";
    const END: &str = "<!-- end of families -->\n";

    #[test]
    fn document_lists_every_family() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
        let text = fs::read_to_string(&file).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (table, after) = rest.split_once(END).unwrap();
        let mut wanted =
            "| family | type | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
        for family in ALL {
            let labels: Vec<String> = family
                .labels
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let (name, kind, help) = (family.name, family.kind, family.help);
            wanted.push_str(&format!(
                "| `{name}` | {kind} | {} | {help} |\n",
                labels.join(", ")
            ));
        }
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
            return;
        }
        assert_eq!(
            table, wanted,
            "stale: UPDATE=1 cargo test -p runmig --lib cli::metrics"
        );
    }
}
