//! Layouts: the MIG modes and instances that an administrator wants, in the files of NVIDIA's mig-parted.
//!
//! `node` reads bounded YAML, `file` knows the format, and `machine` compares the target of each GPU with the instances of the
//! machine and exports these. From the entries of a configuration to the targets it is here.

mod file;
mod machine;
mod node;

pub use file::{Configuration, Devices, Entry, LayoutFile};
pub use machine::{DEFAULT_LABEL, Document, difference, export};

use crate::error::{Context, Error, Result};
use crate::gpu::DetailedGpu;
use crate::model::{Gpu, MigMode, Profile};
use crate::placement::{self, LayoutObstacle, WantedParts};
use machine::{in_words, instance_name};

/// The target of each GPU of a machine, in the order of its GPUs: the entry that names it, if one does.
pub type Targets<'c> = Vec<Option<&'c Entry>>;

/// Returns the target of each GPU.
///
/// # Errors
/// A filter is not a number, the machine lacks a GPU, or two entries for one GPU differ.
pub fn resolve<'c>(configuration: &'c Configuration, gpus: &[DetailedGpu]) -> Result<Targets<'c>> {
    let name = &configuration.name;
    let wanted = |entry: &'c Entry| (entry.mig_enabled, &entry.instances);
    let mut targets: Vec<Option<(usize, &Entry)>> = vec![None; gpus.len()];
    for (entry, n) in configuration.entries.iter().zip(1..) {
        let what = || format!("use entry {n} of configuration {name}");
        for index in positions(entry, gpus).context(what)? {
            let target = &mut targets[index];
            match target {
                Some((other, target)) if wanted(target) != wanted(entry) => {
                    let why = format!(
                        "configuration {name} has two targets for GPU {index}, in the entries {other} and {n}"
                    );
                    return Err(Error::new(why).hint("leave the GPU to one entry"));
                }
                Some(_) => {}
                None => *target = Some((n, entry)),
            }
        }
    }
    if targets.iter().all(Option::is_none) {
        let why = format!("configuration {name} names no GPU of this machine");
        return Err(Error::new(why).hint("see the models of its GPUs with migctl export"));
    }
    Ok(targets.into_iter().map(|t| t.map(|(_, t)| t)).collect())
}

/// Refuses targets that a GPU cannot have. A target that is met already is possible.
///
/// # Errors
/// MIG or a profile that the GPU lacks, a count of 0, and more instances than the GPU holds.
pub fn validate(targets: &Targets<'_>, gpus: &[DetailedGpu]) -> Result<()> {
    for (target, gpu) in targets.iter().zip(gpus) {
        let is_met = |target: &&Entry| difference(Some(target), gpu).is_none();
        if let Some(target) = target.filter(|target| !is_met(target)) {
            check(target, gpu).context(|| format!("make the layout of GPU {}", gpu.gpu.index))?;
        }
    }
    Ok(())
}

fn check(target: &Entry, gpu: &DetailedGpu) -> Result<()> {
    if target.mig_enabled && gpu.gpu.mig == MigMode::Unsupported {
        let why = format!("{} has no MIG", gpu.gpu.name);
        return Err(
            Error::new(why).hint("leave the GPU out of the entry, or write mig-enabled: false")
        );
    }
    for (name, &count) in &target.instances {
        let Some((profile, slices)) = profile_of(gpu, name) else {
            let why = format!("{} has no profile {name}", gpu.gpu.name);
            let names: Vec<&str> = gpu.offers.iter().map(|o| o.profile.name.as_str()).collect();
            return Err(Error::new(why).hint(match names.is_empty() {
                true => "see why the driver offers none: migctl doctor".to_owned(),
                false => format!("use {}", names.join(", ")),
            }));
        };
        if count < 1 {
            let why = format!("{name} has the count {count}");
            return Err(Error::new(why).hint(format!("remove {name}, or write 1 or more")));
        }
        let in_one = profile.compute_slices.checked_div(slices).unwrap_or(0);
        let most = i64::from(profile.max_instances) * i64::from(in_one);
        if count > most {
            let why = format!("{} holds {most} of {name}, not {count}", gpu.gpu.name);
            return Err(Error::new(why).hint(format!("write {most} or less")));
        }
    }
    // From here on the counts are small.
    let empty = Gpu {
        profiles: gpu.offers.iter().map(|o| o.profile.clone()).collect(),
        ..gpu.gpu.clone()
    };
    match placement::plan_layout(&empty, &[], &wanted_parts(target, gpu)) {
        Err(LayoutObstacle::NoFit) => {
            let why = format!(
                "{} cannot hold {}",
                gpu.gpu.name,
                in_words(&target.instances)
            );
            Err(Error::new(why).hint("want fewer instances, or smaller ones"))
        }
        // A search that takes too long says nothing against the layout.
        _ => Ok(()),
    }
}

/// Returns the compute instances of a target by their profile.
pub fn wanted_parts(target: &Entry, gpu: &DetailedGpu) -> WantedParts {
    let mut wanted = WantedParts::new();
    for (name, &count) in &target.instances {
        if let Some((profile, slices)) = profile_of(gpu, name) {
            let parts = wanted.entry(profile.id).or_default();
            parts.extend(std::iter::repeat_n(
                slices,
                usize::try_from(count).unwrap_or(0),
            ));
        }
    }
    wanted
}

/// Returns the profile of an instance by its name, and the compute slices of one: all, or those before `c.`.
fn profile_of<'g>(gpu: &'g DetailedGpu, name: &str) -> Option<(&'g Profile, u32)> {
    gpu.offers.iter().map(|offer| &offer.profile).find_map(|p| {
        let all = p.compute_slices;
        let mut parts = (1..=all).filter(|part| placement::is_part(all, *part));
        let slices = parts.find(|slices| instance_name(p, *slices) == name);
        slices.map(|slices| (p, slices))
    })
}

/// Returns the positions of the GPUs that an entry means. An entry whose models are all absent means none,
/// because its numbers are those of other machines.
fn positions(entry: &Entry, gpus: &[DetailedGpu]) -> Result<Vec<usize>> {
    let model = |filter: &String| {
        let why = || {
            Error::new(format!(
                "device-filter {filter:?} is not the number of a model"
            ))
        };
        let hint = "write a number as 0x20B210DE, which migctl export prints";
        Model::parse(filter).ok_or_else(|| why().hint(hint))
    };
    let models: Vec<Model> = entry.filters.iter().map(model).collect::<Result<_>>()?;
    let is_meant = |gpu: &DetailedGpu| models.is_empty() || models.iter().any(|m| m.is(gpu));
    let mut all = gpus.iter().enumerate().filter(|(_, gpu)| is_meant(gpu));
    let Devices::Listed(listed) = &entry.devices else {
        return Ok(all.map(|(index, _)| index).collect());
    };
    if all.next().is_none() {
        return Ok(Vec::new());
    }
    let here = |number: &i64| usize::try_from(*number).ok().filter(|n| *n < gpus.len());
    if let Some(missing) = listed.iter().find(|number| here(number).is_none()) {
        let count = gpus.len();
        let why = format!("devices names GPU {missing}, and the machine has {count}");
        return Err(Error::new(why).hint(format!("use 0 to {}", count.saturating_sub(1))));
    }
    let mut found: Vec<usize> = listed.iter().filter_map(here).collect();
    found.retain(|index| is_meant(&gpus[*index]));
    Ok(found)
}

/// A model of GPUs by its PCI numbers, with the subsystem's where the file names it.
struct Model {
    device: u32,
    subsystem: Option<u32>,
}

impl Model {
    /// Parses `0x20B210DE` or `0x20B210DE:0x146310DE`.
    fn parse(text: &str) -> Option<Model> {
        let (device, subsystem) = match text.split_once(':') {
            Some((device, subsystem)) => (device, Some(number(subsystem)?)),
            None => (text, None),
        };
        Some(Model {
            device: number(device)?,
            subsystem,
        })
    }

    fn is(&self, gpu: &DetailedGpu) -> bool {
        let subsystem = self.subsystem.unwrap_or(gpu.subsystem_id);
        (self.device, subsystem) == (gpu.device_id, gpu.subsystem_id)
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x")?;
    let is_number = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::geometry::Offer;
    use crate::model::{ComputeInstance, ListedInstance, Placement};

    /// Makes a GPU of a model with so many instances of its only profile, in MIG mode if it has any.
    fn gpu(model: u32, instances: u32) -> DetailedGpu {
        let profile = Profile {
            name: "1g.10gb".to_owned(),
            compute_slices: 1,
            ..Profile::default()
        };
        let instance = |id| ListedInstance {
            id,
            profile_id: profile.id,
            placement: Placement { start: id, size: 1 },
            compute_instances: vec![ComputeInstance {
                id: 0,
                profile_id: 0,
                slices: 1,
            }],
        };
        let mig = match instances {
            0 => MigMode::Disabled,
            _ => MigMode::Enabled,
        };
        DetailedGpu {
            gpu: Gpu {
                mig,
                ..Gpu::default()
            },
            device_id: model,
            subsystem_id: 0x0146_10de,
            instances: (0..instances).map(instance).collect(),
            offers: vec![Offer { number: 0, profile }],
        }
    }

    fn configuration(entries: &str) -> Configuration {
        let file = format!("{{version: v1, mig-configs: {{day: [{entries}]}}}}");
        LayoutFile::parse(&file).unwrap().select(None).unwrap()
    }

    const A: u32 = 0x20b2_10de;
    const B: u32 = 0x2330_10de;

    #[test]
    fn exports_a_layout_that_the_machine_has() {
        const OFF: &str = r#""mig-enabled":false,"mig-devices":{}}"#;
        const ONE: &str = r#""mig-enabled":true,"mig-devices":{"1g.10gb":1}}"#;
        for (gpus, entries) in rows! {
            &[(A, 1), (B, 1)][..] => format!(r#"{{"devices":"all",{ONE}"#);
            &[(A, 0), (A, 1), (A, 0)] => format!(r#"{{"devices":[0,2],{OFF},{{"devices":[1],{ONE}"#);
            &[(B, 1), (A, 0), (A, 1)] => format!(
                r#"{{"device-filter":["0x20B210DE"],"devices":[1],{OFF},{{"device-filter":["0x20B210DE","0x233010DE"],"devices":[0,2],{ONE}"#
            );
        } {
            let gpus: Vec<DetailedGpu> = gpus.iter().map(|(model, n)| gpu(*model, *n)).collect();
            let file = export(&gpus, "now");
            let json = serde_json::to_string(&file).unwrap();
            let expected = format!(r#"{{"version":"v1","mig-configs":{{"now":[{entries}]}}}}"#);
            assert_eq!(json, expected);
            let now = LayoutFile::parse(&file.yaml())
                .unwrap()
                .select(Some("now"))
                .unwrap();
            for (target, gpu) in resolve(&now, &gpus).unwrap().into_iter().zip(&gpus) {
                assert_eq!(difference(target, gpu), None);
            }
        }
    }

    #[test]
    fn entry_means_the_gpus_of_its_models() {
        let gpus = [gpu(A, 0), gpu(B, 0)];
        let meant = |filter: &str| {
            let entry = format!("{{device-filter: '{filter}', devices: all, mig-enabled: false}}");
            let configuration = configuration(&entry);
            let targets = resolve(&configuration, &gpus);
            targets.map(|targets| targets.iter().map(Option::is_some).collect::<Vec<_>>())
        };
        for filter in ["0x20B210DE", "0x20b210de", "0x20B210DE:0x014610DE"] {
            assert_eq!(meant(filter).unwrap(), [true, false], "{filter}");
        }
        for (filter, why) in rows! {
            "0x20B210DE:0x014610DF" => "names no GPU of this machine";
            "0x20B410DE" => "names no GPU of this machine";
            "0x" => "device-filter \"0x\" is not the number of a model";
            "20B210DE" => "is not the number of a model";
            "0x+20B210D" => "is not the number of a model";
            "0x20B210DE:1" => "is not the number of a model";
        } {
            let line = meant(filter).unwrap_err().line();
            assert!(line.contains(why), "{filter}: {line}");
        }
    }

    #[test]
    fn gpu_has_one_target() {
        let gpus = [gpu(A, 0), gpu(A, 0)];
        let off = "{devices: all, mig-enabled: false}";
        let on = "{devices: [1], mig-enabled: true, mig-devices: {1g.10gb: 1}}";
        assert!(resolve(&configuration(&format!("{off}, {off}")), &gpus).is_ok());
        let two = configuration(&format!("{off}, {on}"));
        let line = resolve(&two, &gpus).unwrap_err().line();
        let why = "configuration day has two targets for GPU 1, in the entries 1 and 2";
        assert!(line.starts_with(why), "{line}");
    }
}
