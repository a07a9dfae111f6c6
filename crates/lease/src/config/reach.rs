//! Limits that no container of this machine can reach.

use super::Config;
use crate::model::{Gpu, MigMode};
use crate::policy::{Kind, Limit};
use crate::request::Slice;

/// The most of each kind that containers can have on all GPUs together. None where it is unknown.
struct Most {
    slices: Option<u64>,
    gpus: u64,
    shares: Option<u64>,
    /// In MiB.
    memory: Option<u64>,
}

impl Config {
    /// Returns each part of a limit that is more than these GPUs can give, in words. A limit that is unknown to be out of
    /// reach, as for a GPU whose MIG mode may change, is left out.
    pub fn unreachable_limits(&self, gpus: &[Gpu]) -> Vec<String> {
        let most = self.most(gpus);
        let limits = self.policy.limit.iter().zip(1..);
        let beyond = |(limit, n): (&Limit, usize)| {
            let parts = self.beyond(limit, &most).into_iter();
            parts.map(move |part| format!("[[policy.limit]] {n} permits {part}"))
        };
        limits.flat_map(beyond).collect()
    }

    fn most(&self, gpus: &[Gpu]) -> Most {
        let slices = gpus.iter().map(most_slices).sum::<Option<u64>>();
        let places = slices.map(|slices| slices + gpus.len() as u64);
        Most {
            slices,
            gpus: gpus.len() as u64,
            shares: places.map(|places| places * u64::from(self.sharing.shares_per_gpu)),
            memory: gpus.iter().map(most_memory).sum(),
        }
    }

    fn beyond(&self, limit: &Limit, most: &Most) -> Vec<String> {
        let may = |kind| self.policy.check_kind(kind).is_ok();
        // Kinds without a key of their own count as slices.
        let as_slices = |kind, own: Option<u32>, most: Option<u64>| match own {
            None if may(kind) => most,
            _ => Some(0),
        };
        let slices = [
            as_slices(Kind::Slice, None, most.slices),
            as_slices(Kind::Share, limit.shares, most.shares),
            as_slices(Kind::Gpu, limit.gpus, Some(most.gpus)),
        ];
        let counts = [
            ("slices", limit.slices, slices.into_iter().sum()),
            ("shares", limit.shares, most.shares),
            ("GPUs", limit.gpus, Some(most.gpus)),
        ];
        let mut parts: Vec<String> = { counts.into_iter() }
            .filter_map(|(noun, limit, most)| {
                let (limit, most) = (limit?, most?);
                let is_beyond = u64::from(limit) > most;
                is_beyond.then(|| format!("{limit} {noun}, and the GPUs give {most} at most"))
            })
            .collect();
        if let (Some(limit), Some(most)) = (limit.memory, most.memory)
            && limit >> 20 > most
        {
            let limit = Slice::Memory(limit);
            parts.push(format!(
                "{limit} of memory, and the GPUs give {most}Mi at most"
            ));
        }
        parts
    }
}

fn most_slices(gpu: &Gpu) -> Option<u64> {
    match gpu.mig {
        MigMode::Enabled => gpu
            .profiles
            .iter()
            .map(|p| u64::from(p.max_instances))
            .max(),
        MigMode::Disabled => None,
        MigMode::Unsupported => Some(0),
    }
}

/// A profile has little more than its part of the memory, and a seat's slice counts as a whole.
fn most_memory(gpu: &Gpu) -> Option<u64> {
    let all = { gpu.profiles.iter() }.map(|p| p.memory_mib * u64::from(p.max_instances));
    all.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Profile;

    fn gpu(mig: MigMode) -> Gpu {
        let profile = |name: &str, memory_mib, max_instances| Profile {
            name: name.to_owned(),
            id: 0,
            compute_slices: 1,
            memory_mib,
            multiprocessors: 1,
            copy_engines: 1,
            decoders: 0,
            encoders: 0,
            jpegs: 0,
            ofas: 0,
            p2p: false,
            max_instances,
            placements: Vec::new(),
        };
        let profiles = match mig {
            MigMode::Enabled => vec![profile("1g.10gb", 9728, 7), profile("7g.80gb", 81_000, 1)],
            _ => Vec::new(),
        };
        Gpu {
            index: 0,
            minor: 0,
            uuid: "GPU-1".into(),
            name: "A100".to_owned(),
            pci_bus_id: String::new(),
            mig,
            mig_pending: None,
            profiles,
            instances: Vec::new(),
        }
    }

    fn beyond(policy: &str, gpus: &[Gpu]) -> Vec<String> {
        let config = Config::parse(policy).unwrap();
        config.unreachable_limits(gpus)
    }

    #[test]
    fn names_limits_beyond_all_gpus() {
        let on = [gpu(MigMode::Enabled), gpu(MigMode::Enabled)];
        let rule = |keys: &str| format!("[[policy.limit]]\n{keys}\n");
        assert_eq!(
            beyond(&rule("gpus = 3\nslices = 2"), &on),
            ["[[policy.limit]] 1 permits 3 GPUs, and the GPUs give 2 at most"]
        );
        assert_eq!(beyond(&rule("gpus = 2"), &on), [""; 0]);
        let slices = |n| {
            format!(
                "policy.kinds = [\"slice\"]\n{}",
                rule(&format!("slices = {n}"))
            )
        };
        assert_eq!(
            beyond(&slices(15), &on),
            ["[[policy.limit]] 1 permits 15 slices, and the GPUs give 14 at most"]
        );
        assert_eq!(beyond(&slices(14), &on), [""; 0]);
        // Shares count as slices too.
        assert_eq!(beyond(&rule("slices = 15"), &on), [""; 0]);
        assert_eq!(
            beyond(&rule("memory = \"200Gi\""), &on),
            ["[[policy.limit]] 1 permits 200Gi of memory, and the GPUs give 162000Mi at most"]
        );
        assert_eq!(beyond(&rule("memory = \"150Gi\""), &on), [""; 0]);
    }

    #[test]
    fn unknown_machine_has_no_bound() {
        let off = [gpu(MigMode::Disabled)];
        let rule = "[[policy.limit]]\nslices = 4000\nmemory = \"4000Gi\"\n";
        assert_eq!(beyond(rule, &off), [""; 0]);
    }
}
