//! All families with their types, units, labels and meanings. They are a promise: a later version adds families and
//! labels, and renames none. `docs` writes this table into docs/metrics.md.

use super::family::{Definition, Type, Unit};

macro_rules! families {
    ($($item:ident: $name:literal $kind:ident $unit:ident [$($label:literal)*] $help:literal)*) => {
        $(pub static $item: Definition = Definition {
            name: $name,
            kind: Type::$kind,
            unit: Unit::$unit,
            labels: &[$($label),*],
            help: $help,
        };)*
        /// All families, in the order of the document.
        #[cfg(test)]
        pub static ALL: &[&Definition] = &[$(&$item),*];
    };
}

families! {
    BUILD: "runmig_build" Info None ["version"]
        "The version of migctl."
    DRIVER: "runmig_driver" Info None ["version"]
        "The version of the NVIDIA driver."
    DRIVER_UP: "runmig_driver_up" Gauge None []
        "Whether every call of the driver succeeded in time: 1 or 0. Absent with --no-driver."
    LEASES: "runmig_leases" Gauge None ["kind" "state"]
        "Leases on record, in every state."
    INSTANCES: "runmig_instances" Gauge None ["resource" "state"]
        "Instances on record, in every state: MIG slices (mig), GPUs outside of MIG mode (gpu), MPS daemons (mps)."
    RECORDS_UNREADABLE: "runmig_records_unreadable" Gauge None []
        "Records that runmig cannot read. A ledger that it cannot read at all counts as one."
    WAITING: "runmig_waiting" Gauge None ["kind" "GPU_I_PROFILE"]
        "Creates that wait for room, by the first alternative. The profile is empty if it depends on the GPU."
    WAITING_OLDEST: "runmig_waiting_oldest_timestamp_seconds" Gauge Seconds []
        "When the earliest create began to wait. Absent if none waits."

    LIMIT_SLICES: "runmig_limit_slices" Gauge None ["limit" "namespace" "pod" "user"]
        "The most slices that a limit allows. Shares and GPUs count as slices if it does not name them."
    LIMIT_USED_SLICES: "runmig_limit_used_slices" Gauge None ["limit" "namespace" "pod" "user"]
        "Slices that count against a limit."
    LIMIT_SHARES: "runmig_limit_shares" Gauge None ["limit" "namespace" "pod" "user"]
        "The most shares that a limit allows."
    LIMIT_USED_SHARES: "runmig_limit_used_shares" Gauge None ["limit" "namespace" "pod" "user"]
        "Shares that count against a limit."
    LIMIT_GPUS: "runmig_limit_gpus" Gauge None ["limit" "namespace" "pod" "user"]
        "The most whole GPUs that a limit allows."
    LIMIT_USED_GPUS: "runmig_limit_used_gpus" Gauge None ["limit" "namespace" "pod" "user"]
        "Whole GPUs that count against a limit."
    LIMIT_MEMORY: "runmig_limit_memory_bytes" Gauge Bytes ["limit" "namespace" "pod" "user"]
        "The most GPU memory that a limit allows."
    LIMIT_USED_MEMORY: "runmig_limit_used_memory_bytes" Gauge Bytes ["limit" "namespace" "pod" "user"]
        "GPU memory that counts against a limit. Absent without the driver."

    CREATES: "runmig_creates" Counter None ["kind" "holder" "outcome"]
        "Requests by their outcome."
    CREATE_SECONDS: "runmig_create_seconds" Histogram Seconds ["kind" "part"]
        "The time of a create: all of it, the wait for room, the driver, the low-level runtime."
    RELEASES: "runmig_releases" Counter None ["kind" "by"]
        "Released leases by the actor."
    RELEASE_SECONDS: "runmig_release_seconds" Histogram Seconds ["kind"]
        "The time of a release."
    DESTROY_RETRIES: "runmig_destroy_retries" Counter None ["resource"]
        "Attempts to destroy an instance after a refusal of the driver."
    QUARANTINES: "runmig_quarantines" Counter None ["resource"]
        "Instances that runmig could not destroy."
    DRIVER_ERRORS: "runmig_driver_errors" Counter None ["code"]
        "Failed calls of the driver in creates and releases, by the return code of NVML."
    COLLECTION_LAST: "runmig_collection_last_timestamp_seconds" Gauge Seconds []
        "When migctl gc last completed a collection."
    EXPOSITION_SECONDS: "runmig_exposition_seconds" Gauge Seconds []
        "The time in which migctl made this exposition."

    GPU: "runmig_gpu" Info None ["UUID" "gpu" "modelName" "device" "pci_bus_id" "mig_mode" "mig_mode_pending" "use"]
        "A GPU. use is that of migctl gpus."
    GPU_MEMORY: "runmig_gpu_memory_bytes" Gauge Bytes ["UUID" "gpu" "state"]
        "The memory that a GPU gives out, in every state. The sum over the states is all of it."
    GPU_MEMORY_SLICES: "runmig_gpu_memory_slices" Gauge None ["UUID" "gpu" "state"]
        "Memory slices of a GPU, in every state. A GPU outside of MIG mode has none."
    GPU_COMPUTE_SLICES: "runmig_gpu_compute_slices" Gauge None ["UUID" "gpu" "state"]
        "Compute slices of a GPU, in every state. A GPU outside of MIG mode is one."
    GPU_FRAGMENTATION: "runmig_gpu_fragmentation_ratio" Gauge Ratio ["UUID" "gpu"]
        "The part of the largest possible profile that only a move of other slices frees, as in migctl gpus."
    GPU_PROFILE_FREE: "runmig_gpu_profile_free" Gauge None ["UUID" "gpu" "GPU_I_PROFILE"]
        "Instances of a profile that the driver would make now."
    GPU_PROFILE_MAX: "runmig_gpu_profile_max" Gauge None ["UUID" "gpu" "GPU_I_PROFILE"]
        "Instances of a profile that fit on the empty GPU."

    SLICE: "runmig_slice" Info None
        ["UUID" "gpu" "GPU_I_ID" "kind" "GPU_I_PROFILE" "mig_uuid" "placement" "state" "namespace" "pod" "container" "claim" "lease"]
        "A GPU instance, or a GPU outside of MIG mode (empty GPU_I_ID). A label is empty if the leases there differ in it."
    SLICE_MEMORY: "runmig_slice_memory_bytes" Gauge Bytes ["UUID" "gpu" "GPU_I_ID"]
        "The memory of a slice."
    SLICE_MEMORY_USED: "runmig_slice_memory_used_bytes" Gauge Bytes ["UUID" "gpu" "GPU_I_ID"]
        "The memory in use on a slice. Absent for instances that others made."
    SLICE_COMPUTE_SLICES: "runmig_slice_compute_slices" Gauge None ["UUID" "gpu" "GPU_I_ID"]
        "The compute slices of a slice."

    LEASE: "runmig_lease" Info None
        ["lease" "kind" "UUID" "GPU_I_ID" "state" "enforcement" "namespace" "pod" "container" "container_id" "claim" "request"]
        "A lease, as in migctl list."
    LEASE_MEMORY: "runmig_lease_memory_bytes" Gauge Bytes ["lease"]
        "The memory of a share, a seat or a whole GPU."
    LEASE_BOOKED: "runmig_lease_booked_bytes" Gauge Bytes ["lease"]
        "The memory that a share, a seat or a whole GPU books."
    LEASE_MEMORY_USED: "runmig_lease_memory_used_bytes" Gauge Bytes ["lease"]
        "The memory that the processes of a share's container use. Absent where the driver does not tell."
    LEASE_CREATED: "runmig_lease_created_timestamp_seconds" Gauge Seconds ["lease"]
        "When the lease was created."
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_openmetrics() {
        let mut names = BTreeSet::new();
        for family in ALL {
            let name = family.name;
            assert!(names.insert(name), "{name} twice");
            assert!(name.starts_with("runmig_"), "{name}");
            assert!(
                name.ends_with(family.unit.word()),
                "{name}: the unit ends a name"
            );
            for suffix in ["_total", "_created", "_info", "_count", "_sum", "_bucket"] {
                assert!(!name.ends_with(suffix), "{name}: formats add {suffix}");
            }
            let labels: BTreeSet<&&str> = family.labels.iter().collect();
            assert_eq!(labels.len(), family.labels.len(), "{name}");
            assert!(!labels.contains(&"le"), "{name}");
            assert!(
                family.help.ends_with('.') && !family.help.contains(['\n', '\\', '"']),
                "{name}"
            );
        }
    }
}
